package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// certificate is one of a Secret, for people and scripts.
type certificate struct {
	Where       string    `json:"where"`
	Secret      string    `json:"secret"`
	Subject     string    `json:"subject"`
	Issuer      string    `json:"issuer"`
	Names       []string  `json:"names,omitempty"`
	Key         string    `json:"key"`
	Authority   bool      `json:"authority"`
	NotBefore   time.Time `json:"notBefore"`
	NotAfter    time.Time `json:"notAfter"`
	Fingerprint string    `json:"fingerprint"`
	Pin         string    `json:"pin,omitempty"`
	Kept        bool      `json:"kept"` // renewed by us
}

func (p *Program) pkiInspectCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "inspect",
		Short: "Show the CA and the certificates that are in use",
		Long: `Shows the certificates in the Secrets of the hub and, if --agent-context is given, of a workload cluster: whose,
for which names, until when, and who renews them.`,
		Example: `  argocd-agentctl pki inspect
  argocd-agentctl pki inspect --agent-context w1 -o wide`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := p.hub()
			if err != nil {
				return err
			}
			found, err := certificatesOf(cmd.Context(), hub, pki.AuthoritySecret, pki.PrincipalSecret, pki.ProxySecret)
			if err != nil {
				return err
			}
			if p.global.agentContext != "" {
				spoke, err := p.spoke()
				if err != nil {
					return err
				}
				more, err := certificatesOf(cmd.Context(), spoke, pki.AuthoritySecret, pki.ClientSecret)
				if err != nil {
					return err
				}
				found = append(found, more...)
			}
			return p.show(format, p.certificateTable(found, hub))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func certificatesOf(ctx context.Context, c *cluster, names ...string) ([]certificate, error) {
	var all []certificate
	for _, name := range names {
		s, err := secrets{c}.Get(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("read Secret %s of %s: %w", name, c, err)
		}
		if s == nil {
			continue
		}
		bundle := s.Data[pki.CertKey]
		if name == pki.AuthoritySecret && len(s.Data[pki.BundleKey]) > 0 {
			bundle = s.Data[pki.BundleKey]
		}
		infos, err := pki.Inspect(bundle)
		if err != nil {
			return nil, fmt.Errorf("the Secret %s of %s: %w", name, c, err)
		}
		if name != pki.AuthoritySecret {
			infos = infos[:1] // the rest is the chain
		}
		for _, info := range infos {
			one := certificate{Where: c.role, Secret: name, Subject: info.Subject, Issuer: info.Issuer, Names: info.Names, Key: info.Key,
				Authority: info.Authority, NotBefore: info.NotBefore, NotAfter: info.NotAfter, Fingerprint: info.Fingerprint, Kept: s.Managed()}
			if info.Authority {
				one.Pin = info.Pin
			}
			all = append(all, one)
		}
	}
	return all, nil
}

func (p *Program) certificateTable(found []certificate, hub *cluster) view {
	v := view{object: found, wide: 4, nothing: fmt.Sprintf("No certificates in %s: make a CA with `argocd-agentctl pki init`.", hub),
		headings: []string{"WHERE", "SECRET", "SUBJECT", "FOR", "EXPIRES", "RENEWED", "KEY", "FINGERPRINT", "PIN", "NAMES"}}
	if found == nil {
		v.object = []certificate{}
	}
	for _, one := range found {
		renewed := "by others"
		if one.Kept {
			renewed = "by us"
		}
		left := one.NotAfter.Sub(p.Now())
		expires := cell{text: "in " + span(left)}
		switch {
		case left <= 0:
			expires = cell{"expired", bad}
		case left < one.NotAfter.Sub(one.NotBefore)/6:
			expires.paint = unsure
		}
		v.names = append(v.names, "secret/"+one.Secret)
		v.rows = append(v.rows, []cell{c(one.Where), c(one.Secret), c(one.Subject), c(orDash(first(one.Names))), expires, c(renewed),
			c(one.Key), c(one.Fingerprint), c(orDash(one.Pin)), c(orDash(strings.Join(one.Names, ",")))})
	}
	return v
}

// first is the first of some names, and how many more there are.
func first(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}
