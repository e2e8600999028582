package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterAccess is the content of a cluster Secret.
type clusterAccess struct {
	Server      string // without the agentName query
	BearerToken string
	Cert        []byte
	Key         []byte
	CA          []byte
}

func (c *cluster) access(ctx context.Context, agent string) (*clusterAccess, error) {
	name := "cluster-" + agent
	secret, err := c.kube.CoreV1().Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if notFound(err) {
		if _, err := (agents{c}).get(ctx, agent); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("agent %s has no cluster Secret %s in %s yet. Check that the principal is running", agent, name, c)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", name, c.explain(err))
	}
	server, err := url.Parse(string(secret.Data["server"]))
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("Secret %s has no valid server URL", name)
	}
	server.RawQuery = ""
	var config struct {
		BearerToken     string `json:"bearerToken"`
		TLSClientConfig struct {
			CertData, KeyData, CAData []byte
		} `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		return nil, fmt.Errorf("decode config of Secret %s: %w", name, err)
	}
	t := config.TLSClientConfig
	return &clusterAccess{Server: server.String(), BearerToken: config.BearerToken, Cert: t.CertData, Key: t.KeyData, CA: t.CAData}, nil
}

func (p *Program) agentPrintTLSCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "print-tls AGENT [cert|key|ca]",
		Short: "Print the client certificate, key or CA that Argo CD uses for an agent",
		Long: `Prints PEM from the cluster Secret of an agent: the client certificate (cert), its key or the CA (ca) that Argo CD uses
to connect to the resource proxy.`,
		Example: `  argocd-agentctl agent print-tls w1 cert | openssl x509 -noout -text
  argocd-agentctl agent print-tls w1 ca > ca.crt`,
		Args:              argCount(1, 2),
		ValidArgsFunction: p.agentNames,
		RunE: p.onHub(func(ctx context.Context, hub agents, args []string) error {
			what := "cert"
			if len(args) > 1 {
				what = args[1]
			}
			access, err := hub.access(ctx, args[0])
			if err != nil {
				return err
			}
			text, ok := map[string][]byte{"cert": access.Cert, "key": access.Key, "ca": access.CA}[what]
			if !ok {
				return usageErrorf("%q: must be cert, key or ca", what)
			}
			if len(text) == 0 {
				return fmt.Errorf("the cluster Secret of %s has no %s", args[0], what)
			}
			_, err = p.Stdout.Write(text)
			return err
		}),
	}
}
