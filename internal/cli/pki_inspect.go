package cli

import (
	"context"
	"crypto/x509"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// certificate describes a certificate in a Secret.
type certificate struct {
	Cluster string `json:"cluster"`
	Secret  string `json:"secret"`
	pki.Info
	Managed bool `json:"managed"` // argocd-agent renews it

	leaf *x509.Certificate
}

func (p *Program) pkiInspectCommand() *cobra.Command {
	var full bool
	cmd := p.withOutput(&cobra.Command{
		Use:   "inspect",
		Short: "Show the CA and the certificates",
		Long: `Shows the certificates in the Secrets of the hub and, with --agent-context, of a workload cluster: subject, names,
expiry, and whether argocd-agent renews them.`,
		Example: `  argocd-agentctl pki inspect
  argocd-agentctl pki inspect --agent-context w1 -o wide`,
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			found, err := certificatesOf(ctx, hub.cluster, pki.AuthoritySecret, pki.PrincipalSecret, pki.ProxySecret)
			if err != nil {
				return err
			}
			if p.global.agentContext != "" {
				spoke, err := p.spoke()
				if err != nil {
					return err
				}
				more, err := certificatesOf(ctx, spoke, pki.AuthoritySecret, pki.ClientSecret)
				if err != nil {
					return err
				}
				found = append(found, more...)
			}
			if full && p.output == asTable {
				p.output = asWide
			}
			return p.show(p.certificateTable(found, hub.cluster))
		}),
	})
	cmd.Flags().BoolVarP(&full, "full", "f", false, "")
	hide(cmd.Flags(), "full")
	return cmd
}

func certificatesOf(ctx context.Context, c *cluster, names ...string) ([]certificate, error) {
	var all []certificate
	for _, name := range names {
		s, err := secrets{c}.Get(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("get Secret %s of %s: %w", name, c, err)
		}
		if s == nil {
			continue
		}
		bundle := s.Data[pki.CertKey]
		if name == pki.AuthoritySecret && len(s.Data[pki.BundleKey]) > 0 {
			bundle = s.Data[pki.BundleKey]
		}
		certs, err := pki.Certificates(bundle)
		if err != nil {
			return nil, fmt.Errorf("Secret %s of %s: %w", name, c, err)
		}
		if name != pki.AuthoritySecret {
			certs = certs[:1] // the rest is the chain
		}
		for _, cert := range certs {
			one := certificate{leaf: cert, Cluster: c.role, Secret: name, Info: pki.Describe(cert), Managed: s.Managed()}
			if !one.Authority {
				one.Pin = ""
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func (p *Program) certificateTable(found []certificate, hub *cluster) view {
	v := view{object: found, wide: 4, empty: fmt.Sprintf("No certificates in %s. To create a CA, run `argocd-agentctl pki init`.", hub),
		headings: []string{"CLUSTER", "SECRET", "SUBJECT", "FOR", "EXPIRES", "MANAGED", "KEY", "FINGERPRINT", "PIN", "NAMES"}}
	if found == nil {
		v.object = []certificate{}
	}
	for _, one := range found {
		left := one.NotAfter.Sub(p.Now())
		expires := cell{text: "in " + span(left)}
		switch {
		case left <= 0:
			expires = cell{"expired", red}
		case left < one.NotAfter.Sub(one.NotBefore)/6:
			expires.color = yellow
		}
		v.names = append(v.names, "secret/"+one.Secret)
		v.rows = append(v.rows, []cell{c(one.Cluster), c(one.Secret), c(one.Subject), c(shortList(one.Names, 1)), expires, c(strconv.FormatBool(one.Managed)),
			c(one.Key), c(one.Fingerprint), c(one.Pin), c(strings.Join(one.Names, ","))})
	}
	return v
}

// shortList joins at most n names and counts the others.
func shortList(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}
