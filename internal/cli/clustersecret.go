package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterAccess is what an agent's cluster Secret says about reaching its cluster.
type clusterAccess struct {
	Server      string // without the query that names the agent
	BearerToken string
	Cert        []byte
	Key         []byte
	CA          []byte
}

// access reads the cluster Secret of an agent.
func (c *cluster) access(ctx context.Context, agent string) (*clusterAccess, error) {
	name := "cluster-" + agent
	secret, err := c.kube.CoreV1().Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if notFound(err) {
		if _, err := (agents{c}).get(ctx, agent); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("agent %s has no cluster Secret %s in %s yet: is the principal running?", agent, name, c)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s: %w", name, c.explain(err))
	}
	server, err := url.Parse(string(secret.Data["server"]))
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("the Secret %s has no server's URL in it", name)
	}
	server.RawQuery = ""
	var config struct {
		BearerToken     string `json:"bearerToken"`
		TLSClientConfig struct {
			CertData, KeyData, CAData []byte
		} `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		return nil, fmt.Errorf("the config in Secret %s: %w", name, err)
	}
	t := config.TLSClientConfig
	return &clusterAccess{Server: server.String(), BearerToken: config.BearerToken, Cert: t.CertData, Key: t.KeyData, CA: t.CAData}, nil
}

func (p *Program) agentPrintTLSCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "print-tls AGENT [cert|key|ca]",
		Short: "Print what Argo CD reaches an agent's cluster with, as PEM",
		Long: `Prints the client certificate (cert), its key, or the authority (ca) that Argo CD uses to reach an agent's cluster
through the resource proxy, from its cluster Secret.`,
		Example: `  argocd-agentctl agent print-tls w1 cert | openssl x509 -noout -text
  argocd-agentctl agent print-tls w1 ca > ca.crt`,
		Args:              argCount(1, 2),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			what := "cert"
			if len(args) > 1 {
				what = args[1]
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			access, err := hub.access(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			text, ok := map[string][]byte{"cert": access.Cert, "key": access.Key, "ca": access.CA}[what]
			if !ok {
				return usageErrorf("%q: say cert, key or ca", what)
			}
			if len(text) == 0 {
				return fmt.Errorf("the cluster Secret of %s has no %s in it", args[0], what)
			}
			_, err = p.Stdout.Write(text)
			return err
		},
	}
}
