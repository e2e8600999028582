package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes: what a supervisor or script can tell apart.
const (
	exitFailure = 1 // it did not work; trying again may help
	exitUsage   = 2 // what it was told makes no sense; trying again does not help
)

// program is one run of the command: its surroundings, and what it starts. Tests
// replace both.
type program struct {
	env    []string
	stdout io.Writer
	stderr io.Writer
	start  assemblies
}

// run runs the command with its arguments and environment. It returns when the
// work is done, or when the context has ended and everything has been put down.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) error {
	p := &program{env: env, stdout: stdout, stderr: stderr, start: theAssemblies}
	return p.run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) error {
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	err := root.ExecuteContext(ctx)
	var stopped signalled
	if errors.As(context.Cause(ctx), &stopped) && errors.Is(err, stopped) {
		return nil // asked to end, and ended
	}
	return err
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "argocd-agent",
		Short: "One Argo CD for many clusters",
		Long: `One Argo CD for many clusters, without a hub that holds the keys to all of them.

The principal runs beside Argo CD on the hub. An agent runs beside Argo CD on each
workload cluster and dials the principal, never the other way round. The two keep
Applications, projects, repositories and their state the same on both sides.`,
		Args:          noSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true, // report prints them
		SilenceUsage:  true,
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { rootHelp(cmd.OutOrStdout(), cmd) })
	root.Version = thisBuild().Version
	root.SetVersionTemplate(thisBuild().String())
	root.Flags().Bool("version", false, "Print what this program was built from.") // beside the command: a habit of many
	root.AddCommand(p.principalCommand(), p.agentCommand(), p.versionCommand())
	return root
}

func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("there is no command %q: `%s --help` lists them", args[0], cmd.CommandPath())}
	}
	return nil
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q: `%s` takes flags only, no arguments", args[0], cmd.CommandPath())}
	}
	return nil
}

// usageError is about what the program was told, not about what it then did.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

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
		return usageError{fmt.Errorf("there is no flag %s: `%s --help` lists them", name, cmd.CommandPath())}
	case errors.As(err, &invalid):
		return usageError{fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())}
	}
	return usageError{err}
}

// report prints an error, a line for each thing that is wrong, and returns the
// exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code := exitFailure
	if usage, ok := errors.AsType[usageError](err); ok {
		code, err = exitUsage, usage.error
	}
	all := []error{err}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		all = many.Unwrap()
	}
	for _, err := range all {
		fmt.Fprintln(w, "argocd-agent:", err)
	}
	return code
}
