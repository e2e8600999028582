package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) pkiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "Manage the hub's certificate authority (CA)",
		Long: `Manages the certificate authority (CA) in Secrets of the Argo CD namespace on the hub.

The principal issues and renews its own certificates. Workload clusters get a certificate when they join, and agents
renew it over their connection. If cert-manager or a user manages the Secrets, argocd-agent reads them and never
changes them.`,
	}
	cmd.AddCommand(p.pkiInitCommand(), p.pkiIssueCommand(), p.pkiPropagateCommand(), p.pkiInspectCommand(),
		p.pkiDumpCommand(), p.pkiRotateCommand(), p.pkiDeleteCommand())
	return cmd
}

func (p *Program) pki(hub *cluster) *pki.Manager {
	return &pki.Manager{Secrets: secrets{hub}, Now: p.Now}
}

func (p *Program) pkiInitCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "init",
		Short:   "Create a CA",
		Long:    "Creates a CA (ECDSA, ten years) in Secret " + pki.AuthoritySecret + " on the hub. An existing CA is not changed.",
		Example: "  argocd-agentctl pki init",
		PreRunE: func(*cobra.Command, []string) error {
			if force {
				return cmdline.UsageErrorf("--force is not possible: every agent would lose its connection. To replace the CA without an interruption, run `argocd-agentctl pki rotate`")
			}
			return nil
		},
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			a, created, err := p.pki(hub.cluster).Init(ctx)
			if err != nil {
				return err
			}
			p.say("%s a CA in Secret %s of %s, valid until %s.", map[bool]string{true: "Created", false: "Found"}[created], pki.AuthoritySecret, hub, date(a.Cert.NotAfter))
			return nil
		}),
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "")
	hide(cmd.Flags(), "force")
	return p.withIgnored(cmd, "the CA has an ECDSA key and is valid for ten years", append([]string{"days"}, keyFlags...)...)
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func (p *Program) pkiPropagateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "propagate",
		Short: "Copy the CA certificate to a workload cluster",
		Long: `Writes the CA certificate without its key into Secret ` + pki.AuthoritySecret + ` on a workload cluster, so that the agent
trusts the hub. This is not needed for clusters that join with a token. It is needed if an agent was disconnected
during a whole rotation of the CA.`,
		Example: "  argocd-agentctl pki propagate --principal-context hub --agent-context w1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, spoke, err := p.bothSides()
			if err != nil {
				return err
			}
			a, err := p.pki(hub).Authority(cmd.Context())
			if err != nil {
				return err
			}
			return p.propagate(cmd.Context(), a, spoke)
		},
	}
	cmd.Flags().BoolP("force", "f", false, "") // an existing CA certificate is always replaced
	hide(cmd.Flags(), "force")
	return cmd
}

func (p *Program) propagate(ctx context.Context, a *pki.Authority, spoke *cluster) error {
	to := secrets{spoke}
	existing, err := to.Get(ctx, pki.AuthoritySecret)
	if err != nil {
		return fmt.Errorf("get Secret %s of %s: %w", pki.AuthoritySecret, spoke, err)
	}
	if existing != nil && len(existing.Data[pki.KeyKey]) > 0 {
		return fmt.Errorf("Secret %s of %s has a CA key, so it is a hub. Check --agent-context and --agent-namespace", pki.AuthoritySecret, spoke)
	}
	if err := pki.PutBundle(ctx, to, pki.AuthoritySecret, existing, a.BundlePEM()); err != nil {
		return fmt.Errorf("copy the CA to %s: %w", spoke, err)
	}
	p.say("Wrote the CA certificate to Secret %s of %s.", pki.AuthoritySecret, spoke)
	return nil
}

func (p *Program) pkiDumpCommand() *cobra.Command {
	var key, onlyKey, cert, both bool
	cmd := &cobra.Command{
		Use:     "dump",
		Short:   "Print the trusted CA certificates as PEM",
		Long:    `Prints the trusted CA certificates as PEM: the CA and, during a rotation, the previous CA.`,
		Example: "  argocd-agentctl pki dump > ca.crt",
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			a, err := p.pki(hub.cluster).Authority(ctx)
			if err != nil {
				return err
			}
			out := a.BundlePEM()
			if onlyKey && !cert && !both {
				out = nil
			}
			if key || onlyKey || both {
				s, err := secrets(hub).Get(ctx, pki.AuthoritySecret)
				if err != nil {
					return err
				}
				if !a.CanIssue() || s == nil {
					return pki.ErrNoKey
				}
				out = append(out, s.Data[pki.KeyKey]...)
			}
			_, err = p.Stdout.Write(out)
			return err
		}),
	}
	cmd.Flags().BoolVar(&key, "with-key", false, "Print the private key of the CA as well, for a backup. Anyone with this key can impersonate any agent.")
	for name, value := range map[string]*bool{"key": &onlyKey, "cert": &cert, "all": &both} {
		cmd.Flags().BoolVar(value, name, false, "")
		hide(cmd.Flags(), name)
	}
	return cmd
}

func (p *Program) pkiRotateCommand() *cobra.Command {
	var finish, force bool
	cmd := p.withYes(&cobra.Command{
		Use:   "rotate",
		Short: "Replace the CA without an interruption",
		Long: `Creates a new CA. Both CAs are trusted at first. Certificates of the old CA stay valid, and agents get new ones when
they renew. If every agent has a new certificate, or the last old certificate has expired, run the command with
--finish. The old CA is then no longer trusted.`,
		Example: `  argocd-agentctl pki rotate
  argocd-agentctl pki inspect          # shows how long the old CA is needed
  argocd-agentctl pki rotate --finish`,
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			if force && !finish {
				return cmdline.UsageErrorf("--force requires --finish")
			}
			ca := p.pki(hub.cluster)
			if !finish {
				a, err := ca.Rotate(ctx)
				if err != nil {
					return fmt.Errorf("rotate the CA: %w", err)
				}
				p.say("Created a new CA in Secret %s of %s, valid until %s. The old CA stays trusted until you run `argocd-agentctl pki rotate --finish`.",
					pki.AuthoritySecret, hub, date(a.Cert.NotAfter))
				return nil
			}
			if force {
				if err := p.askConfirmation("finish the rotation by force and disconnect agents with a certificate of the old CA"); err != nil {
					return err
				}
			}
			if _, err := ca.Finish(ctx, force); err != nil {
				return fmt.Errorf("finish the rotation: %w", err)
			}
			p.say("The old CA is no longer trusted.")
			return nil
		}),
	})
	cmd.Flags().BoolVar(&finish, "finish", false, "Finish a rotation. Fails while certificates of the old CA can be in use.")
	cmd.Flags().BoolVar(&force, "force", false, "Finish it anyway. Agents with a certificate of the old CA must join again.")
	return cmd
}

func (p *Program) pkiDeleteCommand() *cobra.Command {
	return p.withYes(&cobra.Command{
		Use:   "delete",
		Short: "Delete the CA and the certificates of the hub",
		Long: `Deletes the CA with its key and the certificates of principal and resource proxy. Every agent must join again. Secrets
that argocd-agent does not manage, for example those of cert-manager, are not deleted.`,
		Example: "  argocd-agentctl pki delete --yes",
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			if err := p.askConfirmation(fmt.Sprintf("delete the CA of %s permanently, so that every agent must join again", hub)); err != nil {
				return err
			}
			return p.deletePKI(ctx, secrets(hub))
		}),
	})
}

func (p *Program) deletePKI(ctx context.Context, from secrets) error {
	var deleted, unmanaged []string
	for _, name := range []string{pki.ProxySecret, pki.PrincipalSecret, pki.AuthoritySecret} {
		s, err := from.Get(ctx, name)
		switch {
		case err != nil:
			return fmt.Errorf("get Secret %s: %w", name, err)
		case s == nil:
			continue
		case !s.Managed():
			unmanaged = append(unmanaged, name)
			continue
		}
		gone, err := from.Delete(ctx, s)
		if err == nil && !gone {
			err = pki.ErrBusy
		}
		if err != nil {
			return fmt.Errorf("delete Secret %s: %w", name, err)
		}
		deleted = append(deleted, name)
	}
	if len(unmanaged) > 0 {
		p.warn("Not managed by argocd-agent and not deleted: %s", strings.Join(unmanaged, ", "))
	}
	if len(deleted) == 0 {
		p.say("Nothing to delete in %s.", from.cluster)
		return nil
	}
	p.say("Deleted in %s: %s.", from.cluster, strings.Join(deleted, ", "))
	return nil
}
