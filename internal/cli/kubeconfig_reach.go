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

// reachTimeout bounds the try whether a kubeconfig lets its owner list.
const reachTimeout = 3 * time.Second

// warnOfLists says that lists are shut, which people meet at once with a new kubeconfig: `kubectl get pods` is one. The
// agent is asked itself, by the way that the kubeconfig describes; where that way is not open from here, the settings of
// the agent are looked at, if it was said where they are; else nothing is known.
func (p *Program) warnOfLists(ctx context.Context, config *clientcmdapi.Config, agent, namespace string) {
	level, known := listsThrough(ctx, config, namespace)
	if !known && p.global.agentContext != "" {
		if spoke, err := p.spoke(); err == nil {
			if set, err := spoke.agentSettings(ctx); err == nil && set.installed {
				level, known = set.get(resource.SettingLevel), true
			}
		}
	}
	const do = "to open more, set --resource-proxy-level of the agent to namespaces (with --resource-proxy-namespaces) or all: agent.settings of the chart, or ConfigMap " + paramsConfigMap + " on the cluster"
	switch {
	case !known:
	case level == string(resource.LevelNone):
		p.warn("the agent of %s lets the hub reach nothing: %s", agent, do)
	case level == "" || level == string(resource.LevelApplications):
		p.warn("the agent of %s opens single objects of its Applications and no lists: `kubectl get deployment NAME` and `kubectl logs POD` work, `kubectl get pods` does not; %s", agent, do)
	}
}

// listsThrough finds out by a list whether lists are open; known: there was an answer of the agent's.
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
		return string(resource.LevelAll), true // as far as anybody will notice
	case apierrors.IsForbidden(err) && errors.As(err, &status) && strings.Contains(status.Status().Message, resource.SettingLevel):
		return string(resource.LevelApplications), true
	}
	return "", false
}
