package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

func (p *Program) agentSuspendCommand() *cobra.Command {
	return p.suspension("suspend", "suspended", true, "Disconnect agents and refuse them until resumed",
		`Disconnects agents immediately and refuses them until they are resumed. Nothing is deleted on either side. The
Applications on the hub stay, and workloads on the workload cluster keep running.`)
}

func (p *Program) agentResumeCommand() *cobra.Command {
	return p.suspension("resume", "resumed", false, "Accept suspended agents again",
		`Accepts suspended agents again. An agent reconnects within a minute. Changes on either side are then synced.`)
}

func (p *Program) suspension(verb, done string, suspended bool, short, long string) *cobra.Command {
	return &cobra.Command{
		Use:     verb + " AGENT…",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  argocd-agentctl agent %s w1 w2", verb),
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			for _, name := range args {
				agent, err := a.patch(ctx, verb+" agent "+name, name, map[string]any{"spec": map[string]any{"suspended": suspended}})
				if err != nil {
					return err
				}
				p.say("%s %s", nameOf(agent), done)
			}
			return nil
		}),
	}
}
