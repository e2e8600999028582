package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *Program) agentSuspendCommand() *cobra.Command {
	return p.suspension("suspend", "suspended", true, "Cut an agent off and keep it off; nothing is deleted", `Cuts an agent's connection at once, and refuses it until it is resumed. Nothing is deleted on either side: its
Applications on the hub stay, and the cluster goes on running what it has.`)
}

func (p *Program) agentResumeCommand() *cobra.Command {
	return p.suspension("resume", "resumed", false, "Let a suspended agent in again", `Lets a suspended agent in again. It dials by itself, within a minute; what changed meanwhile on either side is
then brought over.`)
}

func (p *Program) suspension(verb, done string, suspended bool, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " AGENT…",
		Short:             short,
		Long:              long,
		Example:           fmt.Sprintf("  argocd-agentctl agent %s w1 w2", verb),
		Args:              argCount(1, -1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			for _, name := range args {
				agent, err := a.patch(cmd.Context(), verb+" agent "+name, name, map[string]any{"spec": map[string]any{"suspended": suspended}})
				if err != nil {
					return err
				}
				p.say("%s %s", nameOf(agent), done)
			}
			return nil
		},
	}
}
