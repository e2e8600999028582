package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
)

// reachTimeout limits the test request through a new kubeconfig.
const reachTimeout = 3 * time.Second

// warnListsDenied warns if the agent denies lists, for example `kubectl get pods`. It sends a list through the kubeconfig. If
// that fails, it reads the settings of the agent if --agent-context is set.
func (p *Program) warnListsDenied(ctx context.Context, config *clientcmdapi.Config, agent, namespace string) {
	level, known := listsThrough(ctx, config, namespace)
	if !known && p.global.agentContext != "" {
		if spoke, err := p.spoke(); err == nil {
			if set, err := spoke.agentSettings(ctx); err == nil && set.installed {
				level, known = set.get(resource.SettingLevel), true
			}
		}
	}
	const remedy = "To allow more, set --resource-proxy-level of the agent to namespaces (with --resource-proxy-namespaces) or all, in agent.settings of the chart or in ConfigMap " + paramsConfigMap + " on the cluster."
	switch {
	case !known:
	case level == string(resource.LevelNone):
		p.warn("Agent %s denies all requests from the hub. %s", agent, remedy)
	case level == "" || level == string(resource.LevelApplications):
		p.warn("Agent %s denies lists and allows single objects of its Applications: `kubectl get deployment NAME` and `kubectl logs POD` work, `kubectl get pods` does not. %s", agent, remedy)
	}
}

// listsThrough sends a list through a kubeconfig. known reports whether the agent answered.
func listsThrough(ctx context.Context, config *clientcmdapi.Config, namespace string) (level string, known bool) {
	client, err := clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	if err != nil {
		return "", false
	}
	client.Timeout, client.WarningHandler = reachTimeout, rest.NoWarnings{}
	kube, err := kubernetes.NewForConfig(client)
	if err != nil {
		return "", false
	}
	_, err = kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return string(resource.LevelAll), true
	case apierrors.IsForbidden(err) && errors.As(err, &status) && strings.Contains(status.Status().Message, resource.SettingLevel):
		return string(resource.LevelApplications), true
	}
	return "", false
}
