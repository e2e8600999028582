package cli

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func (p *Program) pkiIssueCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a certificate: for the principal, the resource proxy or an agent",
		Long: `Issues a certificate of the hub's CA and writes it into the Secret that it is read from. This is rarely needed:
the principal issues its own certificates and those of agents that join by token, and all are renewed in time.`,
	}
	cmd.AddCommand(
		p.issueServer("principal", pki.PrincipalSecret, "the principal, which agents connect to"),
		p.issueServer("resource-proxy", pki.ProxySecret, "the resource proxy, which Argo CD connects to"),
		p.issueAgent())
	return cmd
}

func (p *Program) issueServer(what, secret, forWhom string) *cobra.Command {
	var dns []string
	var ips []net.IP
	var upsert bool
	cmd := &cobra.Command{
		Use:   what,
		Short: "Issue a certificate for " + forWhom,
		Long:  fmt.Sprintf("Issues a certificate for %s,\ninto Secret %s on the hub.", forWhom, secret),
		Example: fmt.Sprintf(`  argocd-agentctl pki issue %s --dns principal.example.com,localhost --ip 10.0.0.7
  argocd-agentctl pki issue %s --dns principal.example.com --upsert     # a new one in place of the old`, what, what),
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			names := dns
			for _, name := range dns {
				if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
					return usageErrorf("--dns %q is no host name: %s", name, wrong[0])
				}
			}
			for _, ip := range ips {
				names = append(names, ip.String())
			}
			if len(names) == 0 {
				return usageErrorf("--dns or --ip is missing: a server's certificate is for host names or addresses; give those by which it is reached")
			}
			h, hub, err := p.authority()
			if err != nil {
				return err
			}
			a, err := h.Authority(cmd.Context())
			if err != nil {
				return err
			}
			pair, err := a.Server(names, pki.ServerLifetime, p.Now())
			if err != nil {
				return err
			}
			return p.putPair(cmd.Context(), hub, secret, pki.Issued{Pair: pair, Bundle: a.BundlePEM()}, upsert)
		},
	}
	cmd.Flags().StringSliceVar(&dns, "dns", nil, "Host `NAMES,…` by which it is reached.")
	cmd.Flags().IPSliceVar(&ips, "ip", nil, "`ADDRESSES,…` by which it is reached.")
	cmd.Flags().BoolVarP(&upsert, "upsert", "u", false, "Replace a certificate that is there.")
	return cmd
}

func (p *Program) issueAgent() *cobra.Command {
	var upsert, same bool
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "agent AGENT",
		Short: "Issue a certificate for an agent, onto its cluster",
		Long: `Issues a certificate for an agent and writes it, with its key, into Secret ` + pki.ClientSecret + ` on its cluster:
for clusters that cannot join by token. It needs access to both clusters at once.`,
		Example: `  argocd-agentctl pki issue agent w1 --principal-context hub --agent-context w1 --upsert
  argocd-agentctl pki propagate --principal-context hub --agent-context w1`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName(args[0]); err != nil {
				return err
			}
			if same && p.global.agentContext == "" {
				p.global.agentContext = p.global.principalContext
			}
			spoke, err := p.spoke()
			if err == nil && !same && p.global.agentContext == "" {
				_, _, err = p.bothSides() // says what is missing
			}
			if err != nil {
				return err
			}
			h, _, err := p.authority()
			if err != nil {
				return err
			}
			h.ClientLifetime = life
			issued, err := h.Client(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.putPair(cmd.Context(), spoke, pki.ClientSecret, issued, upsert)
		},
	}
	cmd.Flags().BoolVarP(&upsert, "upsert", "u", false, "Replace a certificate that is there.")
	cmd.Flags().BoolVar(&same, "same-context", false, "The agent runs on the hub's cluster itself.")
	cmd.Flags().DurationVar(&life, "life", pki.ClientLifetime, "How long it is good. The agent renews it after two thirds of that.")
	return cmd
}

// putPair writes a certificate into a Secret, over one that is there only if asked to.
func (p *Program) putPair(ctx context.Context, to *cluster, name string, issued pki.Issued, upsert bool) error {
	there, err := secrets{to}.Get(ctx, name)
	if err != nil {
		return fmt.Errorf("read Secret %s of %s: %w", name, to, err)
	}
	if there != nil && !upsert {
		return fmt.Errorf("the Secret %s of %s is there already: replace what is in it with --upsert", name, to)
	}
	stored, err := pki.PutPair(ctx, secrets{to}, name, there, issued.Pair, issued.Bundle)
	if err == nil && !stored {
		err = pki.ErrBusy
	}
	if err != nil {
		return fmt.Errorf("write the certificate to %s: %w", to, err)
	}
	certs, err := pki.Certificates(issued.Cert)
	if err != nil {
		return err
	}
	p.say("A certificate of %s is in Secret %s of %s, good until %s.", certs[0].Subject, name, to, date(certs[0].NotAfter))
	return nil
}
