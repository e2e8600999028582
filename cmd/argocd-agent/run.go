package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// Exit codes, for supervisors and scripts.
const (
	exitFailure = 1 // a retry may help
	exitUsage   = 2 // the settings are invalid: a retry does not help
)

// program is one run of the command. Tests replace its environment and what it starts.
type program struct {
	env    []string
	stdout io.Writer
	stderr io.Writer
	start  components
}

// components has the function that runs each component until its context ends.
type components struct {
	principal func(context.Context, principal.Config) error
	agent     func(context.Context, agent.Config) error
}

// run runs the command. It returns when the command is done, or after the shutdown that the end of the context causes.
func run(ctx context.Context, args, env []string, stdout, stderr io.Writer) error {
	p := &program{env: env, stdout: stdout, stderr: stderr, start: components{principal: principal.Run, agent: agent.Run}}
	return p.run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) error {
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	err := root.ExecuteContext(ctx)
	var stopped signalled
	if errors.As(context.Cause(ctx), &stopped) && errors.Is(err, stopped) {
		return nil // requested by the signal
	}
	return err
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "argocd-agent",
		Short: "One Argo CD for many clusters",
		Long: `One Argo CD for many clusters, without a hub that holds the keys to all of them.

The principal runs next to Argo CD on the hub. An agent runs next to Argo CD on each workload cluster
and connects to the principal. The principal never connects to a workload cluster. Both keep
Applications, projects, repositories and their status in sync.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q: `%s --help` lists the commands", args[0], cmd.CommandPath())}
			}
			return nil
		},
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
	root.Flags().Bool("version", false, "Print version and build information.")
	root.AddCommand(p.principalCommand(), p.agentCommand(), p.versionCommand())
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q: `%s` accepts flags only", args[0], cmd.CommandPath())}
	}
	return nil
}

// usageError is an error in the command line or in the settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

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
		return usageError{fmt.Errorf("unknown flag %s: `%s --help` lists the flags", name, cmd.CommandPath())}
	case errors.As(err, &invalid):
		return usageError{fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())}
	}
	return usageError{err}
}

// report prints an error, one line for each joined error, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	code := exitFailure
	if usage, ok := errors.AsType[usageError](err); ok {
		code, err = exitUsage, usage.error
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		fmt.Fprintln(w, "argocd-agent:", err)
	}
	return code
}
