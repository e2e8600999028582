package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) pkiIssueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "issue",
		Aliases: []string{"new-cert"},
		Short:   "Issue a certificate",
		Long: `Issues a certificate with the CA of the hub and writes it into its Secret. This is rarely needed: the principal issues
its own certificates and those of agents that join with a token, and all are renewed in time.`,
	}
	cmd.AddCommand(
		p.issueServer("principal", pki.PrincipalSecret, "the principal"),
		p.issueServer("resource-proxy", pki.ProxySecret, "the resource proxy"),
		p.issueAgent())
	return cmd
}

func (p *Program) issueServer(name, secret, server string) *cobra.Command {
	var dns []string
	var ips []net.IP
	var upsert bool
	var life lifetime
	cmd := &cobra.Command{
		Use:   name,
		Short: "Issue a certificate for " + server,
		Long:  fmt.Sprintf("Issues a certificate for %s into Secret %s on the hub.", server, secret),
		Example: fmt.Sprintf(`  argocd-agentctl pki issue %s --dns principal.example.com,localhost --ip 10.0.0.7
  argocd-agentctl pki issue %s --dns principal.example.com --upsert     # replace the certificate`, name, name),
		RunE: func(cmd *cobra.Command, _ []string) error {
			names := dns
			for _, name := range dns {
				if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
					return cmdline.UsageErrorf("--dns %q is not a host name: %s", name, wrong[0])
				}
			}
			for _, ip := range ips {
				names = append(names, ip.String())
			}
			if len(names) == 0 {
				return cmdline.UsageErrorf("--dns or --ip is missing: set the host names or addresses of the server")
			}
			duration, err := life.value()
			if err != nil {
				return err
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			a, err := p.pki(hub).Authority(cmd.Context())
			if err != nil {
				return err
			}
			pair, err := a.Server(names, duration, p.Now())
			if err != nil {
				return err
			}
			return p.putPair(cmd.Context(), hub, secret, pki.Issued{Pair: pair, Bundle: a.BundlePEM()}, upsert)
		},
	}
	cmd.Flags().StringSliceVar(&dns, "dns", nil, "Host `NAMES,…` of the server.")
	cmd.Flags().IPSliceVar(&ips, "ip", nil, "IP `ADDRESSES,…` of the server.")
	cmd.Flags().BoolVarP(&upsert, "upsert", "u", false, "Replace an existing certificate.")
	life.addFlags(cmd, pki.ServerLifetime, "")
	return p.withIgnored(cmd, ecdsaKeys, keyFlags...)
}

func (p *Program) issueAgent() *cobra.Command {
	var upsert, same bool
	var life lifetime
	cmd := &cobra.Command{
		Use:               "agent AGENT",
		ValidArgsFunction: cobra.NoFileCompletions,
		Short:             "Issue a certificate for an agent",
		Long: `Issues a certificate for an agent and writes it with its key into Secret ` + pki.ClientSecret + ` on the workload
cluster. Use it for clusters that cannot join with a token. It needs access to both clusters. The agent must be
registered.`,
		Example: `  argocd-agentctl pki issue agent w1 --principal-context hub --agent-context w1 --upsert
  argocd-agentctl pki propagate --principal-context hub --agent-context w1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName(args[0]); err != nil {
				return err
			}
			duration, err := life.value()
			if err != nil {
				return err
			}
			if same && p.global.agentContext == "" {
				p.global.agentContext = p.global.principalContext
			}
			spoke, err := p.spoke()
			if err == nil && !same && p.global.agentContext == "" {
				_, _, err = p.bothSides() // returns the usage error
			}
			if err != nil {
				return err
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			if _, err := p.replaceable(cmd.Context(), spoke, pki.ClientSecret, upsert); err != nil {
				return err
			}
			ca := p.pki(hub)
			ca.ClientLifetime = duration
			issued, err := ca.Client(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := p.recordAgentCertificate(cmd.Context(), agents{hub}, args[0], issued.Cert); err != nil {
				return err
			}
			return p.putPair(cmd.Context(), spoke, pki.ClientSecret, issued, upsert)
		},
	}
	cmd.Flags().BoolVarP(&upsert, "upsert", "u", false, "Replace an existing certificate.")
	cmd.Flags().BoolVar(&same, "same-context", false, "The agent runs on the hub.")
	life.addFlags(cmd, pki.ClientLifetime, "Lifetime of the certificate. The agent renews it after two thirds.")
	return p.withIgnored(cmd, ecdsaKeys, keyFlags...)
}

// recordAgentCertificate records a certificate in the Agent.
func (p *Program) recordAgentCertificate(ctx context.Context, a agents, name string, chain []byte) error {
	if _, err := a.in().Get(ctx, name, metav1.GetOptions{}); notFound(err) {
		return fmt.Errorf("agent %s is not registered, so its certificate could not be revoked: run `argocd-agentctl agent create %s --mode …` first", name, name)
	}
	return a.recordIssued(ctx, p.Now(), name, v1alpha1.IssuedAnnotation, chain, func(r pki.Record, entry pki.RecordEntry) (pki.Record, error) {
		if len(r) >= pki.MaxIssued {
			return nil, fmt.Errorf("agent %s has %d valid certificates, more than it needs: delete the Agent to revoke them, or remove annotation %s", name, len(r), v1alpha1.IssuedAnnotation)
		}
		return r.Joined(entry), nil
	})
}

// replaceable returns the existing Secret of a certificate. It fails if there is one and upsert is not set.
func (p *Program) replaceable(ctx context.Context, in *cluster, name string, upsert bool) (*pki.Secret, error) {
	existing, err := secrets{in}.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("get Secret %s of %s: %w", name, in, err)
	}
	if existing != nil && !upsert {
		return nil, fmt.Errorf("Secret %s of %s exists. To replace the certificate, set --upsert", name, in)
	}
	return existing, nil
}

// putPair writes a certificate into a Secret. It replaces an existing one only with upsert.
func (p *Program) putPair(ctx context.Context, to *cluster, name string, issued pki.Issued, upsert bool) error {
	existing, err := p.replaceable(ctx, to, name, upsert)
	if err != nil {
		return err
	}
	if err := pki.PutPair(ctx, secrets{to}, name, existing, issued.Pair, issued.Bundle); err != nil {
		return fmt.Errorf("write the certificate to %s: %w", to, err)
	}
	certs, err := pki.Certificates(issued.Cert)
	if err != nil {
		return err
	}
	p.say("Wrote a certificate for %s to Secret %s of %s, valid until %s.", certs[0].Subject, name, to, date(certs[0].NotAfter))
	return nil
}
