package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// This file has the commands and flags that scripts of existing argocd-agent installations use. The help does not show
// them. docs/migration.md lists them.

// existingCommands are commands that have no meaning here. Any argument and flag is accepted.
func (p *Program) existingCommands() []*cobra.Command {
	group := func(use string, answer func() error, names ...string) *cobra.Command {
		cmd := &cobra.Command{Use: use, Hidden: true, Short: "Command of existing installations"}
		for _, name := range names {
			cmd.AddCommand(&cobra.Command{Use: name + " [ARGUMENT…]", Short: cmd.Short, DisableFlagParsing: true,
				Example: "  argocd-agentctl " + use + " " + name,
				RunE:    func(*cobra.Command, []string) error { return answer() }})
		}
		return cmd
	}
	noKey := func() error {
		p.say("No key is needed: agents authenticate with client certificates, and connections use no JWT. Nothing was changed.")
		return nil
	}
	return []*cobra.Command{
		group("jwt", noKey, "create-key", "inspect-key", "inspect", "delete-key", "delete"),
	}
}

// hide declares a flag that the help does not show.
func hide(flags *pflag.FlagSet, name string) {
	flags.Lookup(name).Hidden = true
}

// maxDays bounds lifetimes that are given in days.
const maxDays = 36500

// lifetime is the lifetime of a certificate.
type lifetime struct {
	cmd      *cobra.Command
	duration time.Duration
	days     int
}

// addFlags adds --days of existing installations, and --duration if the command shows it.
func (l *lifetime) addFlags(cmd *cobra.Command, standard time.Duration, show string) {
	l.cmd = cmd
	cmd.Flags().DurationVar(&l.duration, "duration", standard, show)
	cmd.Flags().IntVar(&l.days, "days", 0, "")
	hide(cmd.Flags(), "days")
	if show == "" {
		hide(cmd.Flags(), "duration")
	}
}

func (l *lifetime) value() (time.Duration, error) {
	switch changed := l.cmd.Flags().Changed; {
	case changed("days") && changed("duration"):
		return 0, cmdline.UsageErrorf("--days contradicts --duration: remove one of them")
	case changed("days") && (l.days < 1 || l.days > maxDays):
		return 0, cmdline.UsageErrorf("--days %d: must be a number from 1 to %d", l.days, maxDays)
	case changed("days"):
		return time.Duration(l.days) * 24 * time.Hour, nil
	case l.duration < time.Minute:
		return 0, cmdline.UsageErrorf("--duration %s is too short: the minimum is 1m", l.duration)
	}
	return l.duration, nil
}

// withIgnored adds flags that have no effect here. If one of them is set, the command prints the reason once.
func (p *Program) withIgnored(cmd *cobra.Command, reason string, flags ...string) *cobra.Command {
	for _, name := range flags {
		cmd.Flags().String(name, "", "")
		hide(cmd.Flags(), name)
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var given []string
		for _, name := range flags {
			if cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 0 {
			p.warn("No effect: %s. Reason: %s", strings.Join(given, ", "), reason)
		}
		return run(cmd, args)
	}
	return cmd
}

const (
	ecdsaKeys = "all keys are ECDSA"
	ownAccess = "the principal writes the cluster Secret with a certificate of its own and renews it"
)

// keyFlags select the kind of key in existing installations.
var keyFlags = []string{"key-algorithm", "key-size"}
