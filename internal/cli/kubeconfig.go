package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) kubeconfigCommand() *cobra.Command {
	var server, namespace, file string
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "kubeconfig AGENT",
		Short: "Write a kubeconfig for a workload cluster through the hub",
		Long: `Writes a kubeconfig for a workload cluster through the resource proxy of the hub. kubectl get -w, logs -f, exec -it and
port-forward work as far as the agent allows them. By default, an agent allows single objects of Applications and
denies lists. To allow more, set --resource-proxy-level of the agent to all or namespaces.

The kubeconfig gets its own client certificate, with your user name and groups on the hub, so that audit logs show you.
If the key of the CA is not on the hub, it contains the certificate of Argo CD.

The default server is the address that Argo CD uses, usually a Service on the hub. From another network, set --server
to a load balancer or to a local ` + "`kubectl port-forward`" + `.`,
		Example: `  argocd-agentctl kubeconfig w1 --file w1.yaml
  kubectl --kubeconfig w1.yaml -n web get deployment web

  # From outside the hub
  kubectl --context hub -n argocd port-forward svc/argocd-agent-resource-proxy 9090 &
  argocd-agentctl kubeconfig w1 --server 127.0.0.1:9090 > w1.yaml`,
		RunE: p.onHub(func(ctx context.Context, hub agents, args []string) error {
			access, err := hub.access(ctx, args[0])
			if err != nil {
				return err
			}
			ca := p.pki(hub.cluster)
			ca.ClientLifetime = duration
			if err := p.issueClientCert(ctx, hub, ca, args[0], access); err != nil {
				return err
			}
			var proxy *certificate
			if found, err := certificatesOf(ctx, hub.cluster, pki.ProxySecret); err == nil && len(found) > 0 {
				proxy = &found[0]
			}
			config, err := kubeconfigFor(args[0], namespace, server, proxy, access)
			if err != nil {
				return err
			}
			p.warnListsDenied(ctx, config, args[0], cmp.Or(namespace, "default"))
			content, err := clientcmd.Write(*config)
			if err != nil {
				return fmt.Errorf("encode kubeconfig: %w", err)
			}
			if file == "" {
				_, err = p.Stdout.Write(content)
				return err
			}
			if err := writePrivate(file, content); err != nil {
				return err
			}
			p.say("%s written for the cluster of %s through %s", file, args[0], config.Clusters[args[0]].Server)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&server, "server", "", "`HOST:PORT` of the resource proxy for kubectl. If unset, that of the cluster Secret.")
	f.StringVarP(&namespace, "namespace", "n", "", "Default `NAMESPACE` of the context.")
	f.StringVarP(&file, "file", "f", "", "Output `FILE` with mode 0600. If unset, standard output.")
	f.DurationVar(&duration, "duration", 8*time.Hour, "Lifetime of the certificate.")
	return cmd
}

// issueClientCert replaces the certificate of Argo CD by a new one if the CA key is on the hub. It records it in the Agent.
func (p *Program) issueClientCert(ctx context.Context, hub agents, ca *pki.Manager, agent string, access *clusterAccess) error {
	issued, err := ca.ProxyUser(ctx, agent, p.self(ctx, hub.cluster))
	switch {
	case err == nil:
		if err := hub.recordIssued(ctx, p.Now(), agent, v1alpha1.IssuedProxyAnnotation, issued.Cert, func(r pki.Record, entry pki.RecordEntry) (pki.Record, error) {
			return append(r, entry).Newest(pki.MaxProxyClients), nil
		}); err != nil {
			return err
		}
		access.Cert, access.Key, access.CA, access.BearerToken = issued.Cert, issued.Key, issued.Bundle, ""
		return nil
	case !errors.Is(err, pki.ErrNoKey) && !errors.Is(err, pki.ErrNoAuthority):
		return fmt.Errorf("issue a certificate for the cluster of %s: %w", agent, err)
	case len(access.Cert) == 0 && access.BearerToken == "":
		return fmt.Errorf("no credentials for the cluster of %s: the CA key is not on the hub, and the cluster Secret has no certificate", agent)
	}
	p.warn("The CA key is not on the hub. The kubeconfig contains the credentials of Argo CD. Protect it.")
	return nil
}

// maxGroups is the number of groups that agents accept.
const maxGroups = 64

// self returns the user of this program on the hub. Without a name, audit logs do not show the user.
func (p *Program) self(ctx context.Context, hub *cluster) pki.User {
	review, err := hub.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		p.warn("The certificate does not name you, because the hub does not say who you are: %v", err)
		return pki.User{}
	}
	user := pki.User{Name: review.Status.UserInfo.Username, Groups: review.Status.UserInfo.Groups}
	if len(user.Groups) > maxGroups {
		p.warn("The certificate does not name your groups, because you have more than %d.", maxGroups)
		user.Groups = nil
	}
	return user
}

// kubeconfigFor returns a kubeconfig with one context, named after the agent. If proxy is nil, the certificate of the
// resource proxy is unknown.
func kubeconfigFor(agent, namespace, server string, proxy *certificate, access *clusterAccess) (*clientcmdapi.Config, error) {
	standard, err := url.Parse(access.Server)
	if err != nil {
		return nil, fmt.Errorf("parse server URL %q: %w", access.Server, err)
	}
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.CertificateAuthorityData = access.Server, access.CA
	if server != "" {
		custom, err := url.Parse("https://" + strings.TrimPrefix(server, "https://"))
		if err != nil || custom.Hostname() == "" {
			return nil, cmdline.UsageErrorf("--server %q does not have the form host:port", server)
		}
		cluster.Server = custom.String()
		switch { // use a name that the certificate is valid for
		case proxy != nil && proxy.leaf.VerifyHostname(custom.Hostname()) == nil:
		case proxy != nil && proxy.leaf.VerifyHostname(standard.Hostname()) != nil && len(proxy.Names) > 0:
			cluster.TLSServerName = proxy.Names[0]
		default:
			cluster.TLSServerName = standard.Hostname()
		}
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificateData, user.ClientKeyData, user.Token = access.Cert, access.Key, access.BearerToken
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = agent, agent, cmp.Or(namespace, "default")
	config := clientcmdapi.NewConfig()
	config.Clusters[agent], config.AuthInfos[agent], config.Contexts[agent], config.CurrentContext = cluster, user, context, agent
	return config, nil
}

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
