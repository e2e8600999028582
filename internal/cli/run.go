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

// Exit codes: what a script can tell apart.
const (
	exitFailure  = 1 // it did not work
	exitUsage    = 2 // what it was told makes no sense; trying again does not help
	exitFindings = 3 // it worked, and found something: a problem, a difference, something that waits
)

// Program is one run of argocd-agentctl and its surroundings.
type Program struct {
	Env     []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Screen  Screen // what Stdout is shown on
	Asks    bool   // somebody sits in front of Stdin and can be asked
	Now     func() time.Time
	Version string // of a release; empty: what the Go tool has recorded
	Commit  string

	global   globals
	patience time.Duration // with pods that are asked how they are; 0: the usual
}

// Screen is a terminal; the zero value is a pipe or a file.
type Screen struct {
	Terminal      bool
	Width, Height func() int // now
}

// Run runs the command with these arguments and returns its exit code.
func (p *Program) Run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	return p.report(root.ExecuteContext(ctx))
}

// report prints an error, a line for each thing that is wrong, and returns the exit code.
func (p *Program) report(err error) int {
	code := exitFailure
	var usage usageError
	var found findingsError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &found):
		return exitFindings // what was found has been shown
	case errors.Is(err, context.Canceled):
		return exitFailure // interrupted by the person who reads this
	case errors.As(err, &usage):
		code, err = exitUsage, usage.error
	}
	all := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		all = many.Unwrap()
	}
	for _, err := range all {
		fmt.Fprintln(p.Stderr, "argocd-agentctl:", err)
	}
	return code
}

// usageError is about what the program was told, not about what it then did.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// findingsError ends a command that has found and shown something.
type findingsError struct{}

func (findingsError) Error() string { return "something was found" }

func (p *Program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "argocd-agentctl",
		Short: "Looks after agents: one Argo CD for many clusters",
		Long: `Looks after a fleet of clusters that one Argo CD runs through agents.

On the hub it lists agents and says what is wrong with them, lets clusters join and leave, and
keeps certificates. On a workload cluster it joins that cluster to a hub.`,
		Example: `  # Let a cluster join: on the hub, then, with what that prints, on the cluster
  argocd-agentctl agent join-token w1 --mode managed --label env=prod
  argocd-agentctl join TOKEN

  # How is the fleet? What is wrong, and what to do about it?
  argocd-agentctl agent list
  argocd-agentctl doctor

  # kubectl through the hub
  argocd-agentctl kubeconfig w1 > w1.yaml
  kubectl --kubeconfig w1.yaml -n web get deployment web`,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // report prints them
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return p.global.complete(p.Env)
		},
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help(cmd.OutOrStdout(), cmd) })
	root.CompletionOptions.DisableDefaultCmd = true
	cobra.EnableCommandSorting = false
	root.Flags().SortFlags = false
	p.global.declare(root.PersistentFlags())
	root.Version = p.build().Version
	root.SetVersionTemplate(p.build().String())
	root.Flags().Bool("version", false, "Print what this program was built from; see the command version for the hub's programs.")
	root.AddCommand(p.agentCommand(), p.joinCommand(), p.topCommand(), p.fleetCommand(), p.doctorCommand(), p.validateCommand(), p.pendingCommand(), p.diffCommand(), p.kubeconfigCommand(), p.pkiCommand(), p.blocklistCommand(), p.configCommand(), p.versionCommand(), p.completionCommand())
	for _, cmd := range root.Commands() {
		describeAll(cmd)
	}
	return root
}

// describeAll makes a group of commands answer with its help when no command of it is named, and with an error when
// one is named that it does not have.
func describeAll(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.SuggestionsMinimumDistance = 2
	if !cmd.HasSubCommands() {
		return
	}
	if cmd.RunE == nil {
		cmd.Args = noSuchCommand
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		describeAll(sub)
	}
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("`%s --help` lists them", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = min(2, len(args[0])/2) // of a short word little is left after two changes
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageErrorf("there is no command %q: %s", cmd.CommandPath()+" "+args[0], hint)
}

// argCount says how many arguments a command takes, by their names in its usage line.
func argCount(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		names := strings.Fields(cmd.Use)[1:]
		switch {
		case len(args) < least:
			return usageErrorf("%s is missing: `%s --help` has examples", names[len(args)], cmd.CommandPath())
		case most >= 0 && len(args) > most:
			return usageErrorf("%q is one argument too many: `%s --help` has examples", args[most], cmd.CommandPath())
		}
		return nil
	}
}

// flagError says in our words what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return usageErrorf("`%s` has no flag %s: its --help lists them", cmd.CommandPath(), name)
	case errors.As(err, &invalid):
		return usageErrorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	return usageError{err}
}

// oneOf is a flag's value that is one of a few words.
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
		return fmt.Errorf("it must be one of %s", strings.Join(v.words, ", "))
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
