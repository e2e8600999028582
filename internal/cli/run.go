package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes for scripts.
const (
	exitFailure  = 1
	exitUsage    = 2 // the arguments are invalid
	exitFindings = 3 // the command found a problem, a difference or something that waits
)

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

	global     globals
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

// report prints one line per error and returns the exit code.
func (p *Program) report(err error) int {
	code := exitFailure
	var usage usageError
	var found findingsError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &found):
		return exitFindings // the command printed them
	case errors.Is(err, context.Canceled):
		return exitFailure // the user interrupted the command
	case errors.As(err, &usage):
		code, err = exitUsage, usage.error
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		fmt.Fprintln(p.Stderr, "argocd-agentctl:", err)
	}
	return code
}

// usageError reports invalid arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

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
		Use:   "argocd-agentctl",
		Short: "Manage argocd-agent",
		Long: `Manages workload clusters that are connected to one Argo CD through agents.

On the hub, it lists and checks agents, creates join tokens and manages certificates. On a workload cluster, it
installs the agent and connects it to a hub.

Output is a table. For scripts, use -o json, yaml or name. Colors are printed only on a terminal and never if NO_COLOR
is set. Destructive commands ask for confirmation on a terminal and require --yes otherwise.

Exit codes: 0 success; 1 failure; 2 invalid arguments; 3 findings (doctor and validate: a problem, diff: a difference,
pending: something waits).`,
		Example: `  # Connect a workload cluster: run the first command on the hub and the command that it prints on the cluster
  argocd-agentctl agent join-token w1 --mode managed --label env=prod
  argocd-agentctl join TOKEN

  # List agents, check the installation
  argocd-agentctl agent list
  argocd-agentctl doctor

  # Use kubectl through the hub
  argocd-agentctl kubeconfig w1 > w1.yaml
  kubectl --kubeconfig w1.yaml -n web get deployment web`,
		Args:              noSuchCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true, // report prints them
		SilenceUsage:      true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.global.complete(p.Env) },
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageTemplate(usageTemplate)
	root.CompletionOptions.DisableDefaultCmd = true
	cobra.EnableCommandSorting = false
	p.global.addFlags(root.PersistentFlags())
	root.Version = p.build().Version
	root.SetVersionTemplate(p.build().String())
	root.Flags().Bool("version", false, "Print the version of argocd-agentctl. For principal and agents, use the command version.")
	root.AddCommand(p.agentCommand(), p.joinCommand(), p.topCommand(), p.fleetCommand(), p.doctorCommand(), p.validateCommand(), p.pendingCommand(),
		p.diffCommand(), p.kubeconfigCommand(), p.pkiCommand(), p.blocklistCommand(), p.configCommand(), p.versionCommand(), p.completionCommand())
	finishCommands(root)
	return root
}

// finishCommands sets the defaults of all commands. A group without a subcommand prints its help. A group with an
// unknown subcommand fails.
func finishCommands(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.DisableFlagsInUseLine = true
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args = noSuchCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		finishCommands(sub)
	}
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("run `%s --help` to list commands", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = min(2, len(args[0])/2) // two changes leave little of a short word
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageErrorf("unknown command %q: %s", cmd.CommandPath()+" "+args[0], hint)
}

// argCount limits the number of arguments. Errors use the names in the usage line.
func argCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch names := strings.Fields(cmd.Use)[1:]; {
		case len(args) < least:
			return usageErrorf("%s is missing: run `%s --help` for examples", names[len(args)], cmd.CommandPath())
		case most >= 0 && len(args) > most:
			return usageErrorf("unexpected argument %q: run `%s --help` for examples", args[most], cmd.CommandPath())
		}
		return nil
	}
}

func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return usageErrorf("unknown flag %s: run `%s --help` to list flags", name, cmd.CommandPath())
	case errors.As(err, &invalid):
		return usageErrorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return usageError{err}
}

// oneOf is the value of a flag with a fixed set of words.
type oneOf struct {
	target *string
	words  []string
}

func choice(target *string, standard string, words ...string) pflag.Value {
	*target = standard
	return &oneOf{target, words}
}

func (v *oneOf) Set(s string) error {
	if !slices.Contains(v.words, s) {
		return fmt.Errorf("must be one of %s", strings.Join(v.words, ", "))
	}
	*v.target = s
	return nil
}

func (v *oneOf) String() string {
	if v.target == nil {
		return ""
	}
	return *v.target
}

func (v *oneOf) Type() string { return strings.Join(v.words, "|") }
