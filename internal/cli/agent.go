package cli

import "github.com/spf13/cobra"

func (p *Program) agentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "See agents, let clusters join, suspend and remove them",
		Long: `Looks after agents: the clusters that this hub runs. Each is an Agent object in Argo CD's namespace on the
hub, which may as well be declared in Git; ` + "`kubectl get agents`" + ` shows the same.`,
	}
	cmd.AddCommand(p.agentListCommand(), p.agentShowCommand(), p.agentJoinTokenCommand(), p.agentCreateCommand(), p.agentReconfigureCommand(),
		p.agentSuspendCommand(), p.agentResumeCommand(), p.agentRetireCommand(), p.agentDeleteCommand(), p.agentPrintTLSCommand())
	return cmd
}
