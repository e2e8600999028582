package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// The linker sets these for releases: -ldflags "-X main.version=… -X main.commit=… -X main.date=…".
var version, commit, date string

const programName = "argocd-agent"

func thisBuild() cmdline.Build { return cmdline.BuildOf(version, commit, date) }

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
		Use:   programName,
		Short: "One Argo CD for many clusters",
		Long: `One Argo CD for many clusters, without a hub that holds the keys to all of them.

The principal runs next to Argo CD on the hub. An agent runs next to Argo CD on each workload cluster
and connects to the principal. The principal never connects to a workload cluster. Both keep
Applications, projects, repositories and their status in sync.`,
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { rootHelp(cmd.OutOrStdout(), cmd) })
	root.Version = thisBuild().Version
	root.SetVersionTemplate(thisBuild().Text(programName))
	root.Flags().Bool("version", false, "Print version and build information.")
	root.AddCommand(p.principalCommand(), p.agentCommand(), p.checkCommand(), p.restoreCommand(), p.versionCommand())
	cmdline.Prepare(root)
	return root
}

func (p *program) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print version and build information",
		Long:    "Prints the version of this binary, its commit with date, and the version of Go that built it.",
		Example: "  argocd-agent version -o json",
		RunE: func(*cobra.Command, []string) error {
			if format == formatJSON {
				encoder := json.NewEncoder(p.stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(thisBuild())
			}
			_, err := io.WriteString(p.stdout, thisBuild().Text(programName))
			return err
		},
	}
	cmd.Flags().VarP(cmdline.Choice(&format, formatText, formatText, formatJSON), "output", "o", "Output format.")
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage:\n  %s [-o text|json]\n\nExample:\n%s\n", cmd.Long, cmd.CommandPath(), cmd.Example)
	})
	return cmd
}
