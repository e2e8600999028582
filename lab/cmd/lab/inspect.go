package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
)

func runLogs(ctx context.Context, c *call) error {
	follow := c.flags.Bool("f", false, "follow the log")
	if err := c.parse(1, 1); err != nil {
		return err
	}
	l, err := c.open(ctx)
	if err != nil {
		return err
	}
	file, err := l.LogFile(ctx, c.args[0])
	if err != nil {
		return err
	}
	log, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", c.args[0], err)
	}
	defer log.Close()
	for {
		if _, err := io.Copy(c.out, log); err != nil || !*follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func runKubeconfig(ctx context.Context, c *call) error {
	installed := c.flags.Bool("installed", false, "the ServiceAccount of the principal or agent instead of the admin")
	if err := c.parse(1, 1); err != nil {
		return err
	}
	l, err := c.open(ctx)
	if err != nil {
		return err
	}
	cluster, err := l.FindCluster(c.args[0])
	if err != nil {
		return err
	}
	file := cluster.Kubeconfig
	if *installed {
		file = cluster.RunAs.File
	}
	fmt.Fprintln(c.out, file)
	return nil
}

func runShell(ctx context.Context, c *call) error {
	if err := c.parse(0, math.MaxInt); err != nil {
		return err
	}
	l, err := c.open(ctx)
	if err != nil {
		return err
	}
	words := c.args
	if len(words) == 0 {
		words = []string{"/bin/sh"}
		if shell := os.Getenv("SHELL"); shell != "" {
			words[0] = shell
		}
		fmt.Fprintf(c.errOut, "contexts: %v; argocd is logged in to %s; leave with exit\n", contexts(l), l.ArgoCD.Address)
	}
	environment := append(os.Environ(), l.Environment()...)
	for _, entry := range environment { // look up the command in the PATH of the shell
		if len(entry) > 5 && entry[:5] == "PATH=" {
			_ = os.Setenv("PATH", entry[5:])
		}
	}
	shell := exec.Command(words[0], words[1:]...)
	shell.Env = environment
	shell.Stdin, shell.Stdout, shell.Stderr = os.Stdin, c.out, c.errOut
	err = shell.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(failed.ExitCode()) // the exit code of the shell
	}
	return err
}

func contexts(l *lab.Lab) []string {
	var names []string
	for _, one := range l.Clusters {
		names = append(names, one.Name)
	}
	return names
}

// act returns the command for an action on a component.
func act(what string) func(context.Context, *call) error {
	return func(ctx context.Context, c *call) error {
		if err := c.parse(1, 1); err != nil {
			return err
		}
		l, err := c.open(ctx)
		if err != nil {
			return err
		}
		component := c.args[0]
		switch what {
		case "stop":
			return l.Stop(ctx, component)
		case "continue":
			return l.Continue(ctx, component)
		case "kill":
			return l.Kill(ctx, component)
		default:
			return l.Restart(ctx, component)
		}
	}
}
