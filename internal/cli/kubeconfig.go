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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func (p *Program) kubeconfigCommand() *cobra.Command {
	var server, namespace, file string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "kubeconfig AGENT",
		Short: "Write a kubeconfig that reaches an agent's cluster through the hub",
		Long: `Writes a kubeconfig with which kubectl reaches an agent's cluster through the hub's resource proxy: get -w,
logs -f, exec -it, port-forward and all else, as far as the agent lets the hub. By default that is single objects
of Applications and no lists: --resource-proxy-level of the agent (all, or namespaces) opens more.

A certificate is issued for it, good for a working day; where the CA's key is not on the hub, it is the one that
Argo CD uses.

The proxy's address is the one that Argo CD uses, usually a Service of the hub's cluster. From elsewhere give
another with --server, such as that of a load balancer or of ` + "`kubectl port-forward`" + `.`,
		Example: `  argocd-agentctl kubeconfig w1 --file w1.yaml
  kubectl --kubeconfig w1.yaml -n web get deployment web

  # From outside of the hub's cluster
  kubectl --context hub -n argocd port-forward svc/argocd-agent-resource-proxy 9090 &
  argocd-agentctl kubeconfig w1 --server 127.0.0.1:9090 > w1.yaml`,
		Args:              argCount(1, 1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, hub, err := p.authority()
			if err != nil {
				return err
			}
			access, err := hub.access(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			h.ClientLifetime = life
			if err := p.issueClientCert(cmd.Context(), h, args[0], access); err != nil {
				return err
			}
			proxyNames := []string(nil)
			if found, err := certificatesOf(cmd.Context(), hub, pki.ProxySecret); err == nil && len(found) > 0 {
				proxyNames = found[0].Names
			}
			config, err := kubeconfigFor(args[0], namespace, server, proxyNames, access)
			if err != nil {
				return err
			}
			p.warnOfLists(cmd.Context(), config, args[0], cmp.Or(namespace, "default"))
			content, err := clientcmd.Write(*config)
			if err != nil {
				return fmt.Errorf("write the kubeconfig: %w", err)
			}
			if file == "" {
				_, err = p.Stdout.Write(content)
				return err
			}
			if err := writePrivate(file, content); err != nil {
				return err
			}
			p.say("%s reaches the cluster of %s through %s", file, args[0], config.Clusters[args[0]].Server)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&server, "server", "", "`HOST:PORT` of the resource proxy as kubectl reaches it. Without it, that of the cluster Secret.")
	f.StringVarP(&namespace, "namespace", "n", "", "`NAMESPACE` that kubectl uses where none is said.")
	f.StringVarP(&file, "file", "f", "", "`FILE` to write, which only you can read. Without it, standard output.")
	f.DurationVar(&life, "life", 8*time.Hour, "How long the certificate is good.")
	return cmd
}

// issueClientCert puts a certificate of our own into the place of Argo CD's, where one can be issued.
func (p *Program) issueClientCert(ctx context.Context, h *pki.Manager, agent string, access *clusterAccess) error {
	issued, err := h.ProxyClient(ctx, agent)
	switch {
	case err == nil:
		access.Cert, access.Key, access.CA, access.BearerToken = issued.Cert, issued.Key, issued.Bundle, ""
		return nil
	case !errors.Is(err, pki.ErrNoKey) && !errors.Is(err, pki.ErrNoAuthority):
		return fmt.Errorf("issue a certificate for the cluster of %s: %w", agent, err)
	case len(access.Cert) == 0 && access.BearerToken == "":
		return fmt.Errorf("there is nothing to reach the cluster of %s with: the CA's key is not on the hub, and its cluster Secret has no certificate", agent)
	}
	p.warn("the CA's key is not on the hub, so the kubeconfig has what Argo CD uses itself: keep it as well as that")
	return nil
}

// kubeconfigFor makes a kubeconfig with one context, named after the agent.
func kubeconfigFor(agent, namespace, server string, proxyNames []string, access *clusterAccess) (*clientcmdapi.Config, error) {
	usual, err := url.Parse(access.Server)
	if err != nil {
		return nil, fmt.Errorf("the server's URL %q: %w", access.Server, err)
	}
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.CertificateAuthorityData = access.Server, access.CA
	if server != "" {
		there, err := url.Parse("https://" + strings.TrimPrefix(server, "https://"))
		if err != nil || there.Hostname() == "" {
			return nil, usageErrorf("--server %q is not of the form host:port", server)
		}
		cluster.Server = there.String()
		if !certifies(proxyNames, there.Hostname()) { // reached by a name that its certificate is not for
			cluster.TLSServerName = usual.Hostname()
			if len(proxyNames) > 0 && !certifies(proxyNames, usual.Hostname()) {
				cluster.TLSServerName = proxyNames[0]
			}
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
