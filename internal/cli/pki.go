package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

func (p *Program) pkiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pki",
		Short: "Keep the certificate authority of the hub, and what it issues",
		Long: `Keeps the certificate authority (CA) of an installation, in Secrets of the hub's Argo CD namespace.

With a CA there, principal and agents see to their own certificates: the principal issues and renews its own,
clusters get theirs by joining, and agents renew theirs over their connection. A CA or certificates that
cert-manager or a person keeps in the same Secrets are used as they are, and never written.`,
	}
	cmd.AddCommand(p.pkiInitCommand(), p.pkiIssueCommand(), p.pkiPropagateCommand(), p.pkiInspectCommand(),
		p.pkiDumpCommand(), p.pkiRotateCommand(), p.pkiDeleteCommand())
	return cmd
}

// authority is the hub's, and the hub.
func (p *Program) authority() (*pki.Manager, *cluster, error) {
	hub, err := p.hub()
	if err != nil {
		return nil, nil, err
	}
	return &pki.Manager{Secrets: secrets{hub}, Now: p.Now}, hub, nil
}

func (p *Program) pkiInitCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "init",
		Short:   "Make a CA, unless there is one",
		Long:    "Makes a CA (ECDSA, ten years) in Secret " + pki.AuthoritySecret + " on the hub. One that is there already stays as it is.",
		Example: "  argocd-agentctl pki init",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, hub, err := p.authority()
			if err != nil {
				return err
			}
			a, made, err := h.Init(cmd.Context())
			if err != nil {
				return err
			}
			if made {
				p.say("There is a CA now in Secret %s of %s, good until %s.", pki.AuthoritySecret, hub, date(a.Cert.NotAfter))
			} else {
				p.say("There is a CA already in Secret %s of %s, good until %s.", pki.AuthoritySecret, hub, date(a.Cert.NotAfter))
			}
			return nil
		},
	}
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func (p *Program) pkiPropagateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "propagate",
		Short: "Bring the CA's certificate to a workload cluster",
		Long: `Writes the CA's certificate, not its key, into Secret ` + pki.AuthoritySecret + ` on a workload cluster, so that the agent
there recognises the hub. A cluster that joins by token needs no such step; one whose agent was away for all of
a rotation of the CA does.`,
		Example: "  argocd-agentctl pki propagate --principal-context hub --agent-context w1",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, spoke, err := p.bothSides()
			if err != nil {
				return err
			}
			a, err := (&pki.Manager{Secrets: secrets{hub}, Now: p.Now}).Authority(cmd.Context())
			if err != nil {
				return err
			}
			return p.propagate(cmd.Context(), a, spoke)
		},
	}
}

func (p *Program) propagate(ctx context.Context, a *pki.Authority, spoke *cluster) error {
	to := secrets{spoke}
	there, err := to.Get(ctx, pki.AuthoritySecret)
	if err != nil {
		return fmt.Errorf("read Secret %s of %s: %w", pki.AuthoritySecret, spoke, err)
	}
	if there != nil && len(there.Data[pki.KeyKey]) > 0 {
		return fmt.Errorf("the Secret %s of %s holds a CA's key: this is a hub, not a workload cluster; choose the right --agent-context and --agent-namespace", pki.AuthoritySecret, spoke)
	}
	stored, err := pki.PutBundle(ctx, to, pki.AuthoritySecret, there, a.BundlePEM())
	if err == nil && !stored {
		err = pki.ErrBusy
	}
	if err != nil {
		return fmt.Errorf("bring the CA to %s: %w", spoke, err)
	}
	p.say("The CA's certificate is in Secret %s of %s now.", pki.AuthoritySecret, spoke)
	return nil
}

func (p *Program) pkiDumpCommand() *cobra.Command {
	var key bool
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Print the CA's certificates as PEM",
		Long: `Prints the certificates that are to be believed, as PEM: the CA's and, while it is being replaced, that of the
one before.`,
		Example: "  argocd-agentctl pki dump > ca.crt",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, _, err := p.authority()
			if err != nil {
				return err
			}
			a, err := h.Authority(cmd.Context())
			if err != nil {
				return err
			}
			out := a.BundlePEM()
			if key {
				s, err := h.Secrets.Get(cmd.Context(), pki.AuthoritySecret)
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
		},
	}
	cmd.Flags().BoolVar(&key, "with-key", false, "The CA's private key too, for a backup. Whoever has it can pass for any agent.")
	return cmd
}

func (p *Program) pkiRotateCommand() *cobra.Command {
	var finish, force, yes bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the CA, with an overlap and without an interruption",
		Long: `Puts a new CA into the place of the old one. Both are believed at first: what the old one has issued stays
good, and agents change over by themselves as they renew their certificates. When the last certificate of
the old one has expired, or every agent has one of the new, the rotation is ended with --finish: from then on
the old one is believed no longer.`,
		Example: `  argocd-agentctl pki rotate
  argocd-agentctl pki inspect          # until when is the old one needed?
  argocd-agentctl pki rotate --finish`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if force && !finish {
				return usageErrorf("--force is for --finish alone")
			}
			h, hub, err := p.authority()
			if err != nil {
				return err
			}
			if !finish {
				a, err := h.Rotate(cmd.Context())
				if err != nil {
					return fmt.Errorf("replace the CA: %w", err)
				}
				p.say("There is a new CA in Secret %s of %s, good until %s. The old one is believed too until you say --finish.",
					pki.AuthoritySecret, hub, date(a.Cert.NotAfter))
				return nil
			}
			if force {
				if err := p.askConfirmation(yes, "end the rotation by force: agents that still have a certificate of the old CA are cut off"); err != nil {
					return err
				}
			}
			if _, err := h.Finish(cmd.Context(), force); err != nil {
				return fmt.Errorf("finish replacing the CA: %w", err)
			}
			p.say("The old CA is believed no longer.")
			return nil
		},
	}
	cmd.Flags().BoolVar(&finish, "finish", false, "End a rotation: believe the old CA no longer. Refused while certificates of it can be in use.")
	cmd.Flags().BoolVar(&force, "force", false, "End it all the same. Agents that still have such a certificate have to join again.")
	yesFlag(cmd, &yes)
	return cmd
}

func (p *Program) pkiDeleteCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "Delete the CA and the hub's certificates that it has issued",
		Long: `Deletes the CA from the hub, with its key, and the certificates of the principal and the resource proxy. Every
agent has to join again under another CA. Secrets that somebody else keeps, such as cert-manager, stay.`,
		Example: "  argocd-agentctl pki delete --yes",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := p.hub()
			if err != nil {
				return err
			}
			if err := p.askConfirmation(yes, fmt.Sprintf("delete the CA of %s for good, so that every agent has to join again", hub)); err != nil {
				return err
			}
			return p.deletePKI(cmd.Context(), secrets{hub})
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}

func (p *Program) deletePKI(ctx context.Context, from secrets) error {
	var deleted, kept []string
	for _, name := range []string{pki.ProxySecret, pki.PrincipalSecret, pki.AuthoritySecret} {
		s, err := from.Get(ctx, name)
		switch {
		case err != nil:
			return fmt.Errorf("read Secret %s: %w", name, err)
		case s == nil:
			continue
		case !s.Managed():
			kept = append(kept, name)
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
	if len(kept) > 0 {
		p.warn("not made by us, and left alone: %s", strings.Join(kept, ", "))
	}
	if len(deleted) == 0 {
		p.say("There is nothing of ours to delete in %s.", from.cluster)
		return nil
	}
	p.say("Deleted in %s: %s.", from.cluster, strings.Join(deleted, ", "))
	return nil
}
