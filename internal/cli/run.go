package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// exitFindings is the exit code of a command that found a problem, a difference or something that waits.
const exitFindings = 3

// Program is one run of argocd-agentctl and its environment.
type Program struct {
	Env         []string
	Stdin       io.Reader
	Stdout      io.Writer
	Stderr      io.Writer
	Screen      Screen // of Stdout
	Interactive bool   // a user can answer questions on Stdin
	Now         func() time.Time
	Version     string // of a release. If empty, the version that the Go tool recorded
	Commit      string
	Date        string // of the commit

	global     globals
	output     string        // value of -o
	yes        bool          // value of --yes
	podTimeout time.Duration // for health requests to pods. If 0, the default
}

// Screen is a terminal. The zero value is a pipe or a file.
type Screen struct {
	Terminal      bool
	Width, Height func() int // current size
}

// Run runs the command with these arguments and returns its exit code.
func (p *Program) Run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	return p.report(root.ExecuteContext(ctx))
}

func (p *Program) report(err error) int {
	var found findingsError
	switch {
	case errors.As(err, &found):
		return exitFindings // the command printed them
	case errors.Is(err, context.Canceled):
		return cmdline.ExitFailure // the user interrupted the command
	}
	return cmdline.Report(p.Stderr, programName, err)
}

const programName = "argocd-agentctl"

// findingsError ends a command that printed findings.
type findingsError struct{}

func (findingsError) Error() string { return "findings" }

// onHub returns a RunE that connects to the hub first.
func (p *Program) onHub(run func(ctx context.Context, a agents, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a, err := p.agents()
		if err != nil {
			return err
		}
		return run(cmd.Context(), a, args)
	}
}

func (p *Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   programName,
		Short: "Manage argocd-agent",
		Long: `Manages workload clusters that are connected to one Argo CD through agents.

On the hub, it lists and checks agents, creates join tokens and manages certificates. On a workload cluster, it
installs the agent and connects it to a hub.

Output is a table. For scripts, use -o json, yaml or name. Colors are printed only on a terminal and never if NO_COLOR
is set. Destructive commands ask for confirmation on a terminal and require --yes otherwise.

Exit codes: 0 success; 1 failure; 2 invalid arguments; 3 findings (doctor and validate: a problem, diff: a difference,
pending: something waits, upgrade: an agent was not upgraded,
hub status: both hubs claim to be active).`,
		Example: `  # Connect a workload cluster: run the first command on the hub and the command that it prints on the cluster
  argocd-agentctl agent join-token w1 --mode managed --label env=prod
  argocd-agentctl join TOKEN

  # List agents, check the installation
  argocd-agentctl agent list
  argocd-agentctl doctor

  # Use kubectl through the hub
  argocd-agentctl kubeconfig w1 > w1.yaml
  kubectl --kubeconfig w1.yaml -n web get deployment web`,
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.global.complete(p.Env) },
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetUsageTemplate(usageTemplate)
	cobra.EnableCommandSorting = false
	p.global.addFlags(root.PersistentFlags())
	root.Version = p.build().Version
	root.SetVersionTemplate(p.build().Text(programName))
	root.Flags().Bool("version", false, "Print the version of argocd-agentctl. For principal and agents, use the command version.")
	root.AddCommand(p.agentCommand(), p.joinCommand(), p.topCommand(), p.searchCommand(), p.fleetCommand(), p.doctorCommand(), p.validateCommand(), p.pendingCommand(),
		p.traceCommand(), p.diffCommand(), p.sysdumpCommand(), p.upgradeCommand(), p.importCommand(), p.policyCommand(), p.kubeconfigCommand(), p.pkiCommand(), p.blocklistCommand(), p.hubCommand(), p.configCommand(), p.versionCommand(), p.completionCommand())
	root.AddCommand(p.existingCommands()...)
	p.completeNames(root)
	cmdline.Prepare(root)
	return root
}
