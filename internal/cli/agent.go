package cli

import "github.com/spf13/cobra"

func (p *Program) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "agent",
		Aliases: []string{"agents"},
		Short:   "Manage agents",
		Long: `Manages agents. Each workload cluster has an Agent object in the Argo CD namespace on the hub. You can also declare
Agents in Git. To list them with kubectl, run ` + "`kubectl get agents`" + `.`,
	}
	cmd.AddCommand(p.agentListCommand(), p.agentShowCommand(), p.agentJoinTokenCommand(), p.agentCreateCommand(), p.agentReconfigureCommand(),
		p.agentSuspendCommand(), p.agentResumeCommand(), p.agentRetireCommand(), p.agentDeleteCommand(), p.agentAccessCommand(), p.agentPrintTLSCommand())
	return cmd
}
