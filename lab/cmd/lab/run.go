package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"

	"github.com/argocd-agent/argocd-agent/lab"
)

// command is a subcommand.
type command struct {
	name  string
	usage string // arguments
	help  string // one line. If empty, the subcommand is hidden
	run   func(ctx context.Context, call *call) error
}

// call is one invocation of a subcommand.
type call struct {
	flags       *flag.FlagSet
	folderName  *string
	args        []string
	out, errOut io.Writer
}

func commands() []command {
	return []command{
		{"build", "", "build and cache the tools (etcd, Kubernetes, kwok, Argo CD, helm, kustomize)", runBuild},
		{"up", "[-spoke NAME=managed|autonomous]… [-no-spokes] [-bare] [-argocd-port N] [-fsync]", "start a lab: a hub and, by default, the spokes managed and autonomous", runUp},
		{"down", "", "stop the lab and delete its directory", runDown},
		{"status", "", "show the components and their addresses", runStatus},
		{"logs", "[-f] NAME", "show the log of a component, such as hub/argocd-server", runLogs},
		{"kubeconfig", "[-installed] NAME", "print the path of a cluster's kubeconfig", runKubeconfig},
		{"shell", "[COMMAND…]", "run a shell with a kubectl context per cluster and the argocd CLI logged in", runShell},
		{"agents", "", "run the principal and an agent on each spoke, built from this checkout, until interrupted", runAgents},
		{"stop", "NAME", "stop a component (SIGSTOP)", act("stop")},
		{"continue", "NAME", "continue a stopped component", act("continue")},
		{"kill", "NAME", "kill a component until it is restarted", act("kill")},
		{"restart", "NAME", "restart a component and wait until it is ready", act("restart")},
		{"keep", "", "", runCleanup},
		{"supervise", "", "", runSupervise},
		{"serve-git", "", "", runServeGit},
	}
}

// run finds the subcommand and runs it.
func run(ctx context.Context, args []string, out, errOut io.Writer) error {
	all := commands()
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		printHelp(out, all)
		return nil
	}
	i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return fmt.Errorf("unknown command %q: run `lab help`", args[0])
	}
	verb := all[i]
	flags := flag.NewFlagSet(verb.name, flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() {
		fmt.Fprintf(errOut, "lab %s [-lab NAME] %s\n  %s\n", verb.name, verb.usage, verb.help)
		flags.PrintDefaults()
	}
	folder := flags.String("lab", "", "the lab's name or directory (default $"+lab.DirVariable+", or \"default\")")
	err := verb.run(ctx, &call{flags: flags, folderName: folder, args: args[1:], out: out, errOut: errOut})
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	return err
}

// parse parses the flags and checks the number of arguments.
func (c *call) parse(least, most int) error {
	if err := c.flags.Parse(c.args); err != nil {
		return err
	}
	c.args = c.flags.Args()
	if len(c.args) < least || len(c.args) > most {
		c.flags.Usage()
		return fmt.Errorf("%s takes %d to %d arguments, not %d", c.flags.Name(), least, most, len(c.args))
	}
	return nil
}

func (c *call) folder() (string, error) { return lab.DefaultDir(*c.folderName) }

// open returns the running lab of the call.
func (c *call) open(ctx context.Context) (*lab.Lab, error) {
	folder, err := c.folder()
	if err != nil {
		return nil, err
	}
	return lab.Open(ctx, folder)
}

func printHelp(out io.Writer, all []command) {
	fmt.Fprint(out, "lab runs real clusters with real Argo CD as local processes.\n\n")
	for _, c := range all {
		if c.help != "" {
			fmt.Fprintf(out, "  %-11s %s\n", c.name, c.help)
		}
	}
	fmt.Fprint(out, "\nEvery command takes -lab NAME, so that several labs can run. `lab COMMAND -h` lists the flags.\n")
}
