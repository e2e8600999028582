// Command argocd-agentctl manages workload clusters that are connected to one Argo CD through agents.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/argocd-agent/argocd-agent/internal/cli"
)

// The linker sets these for releases: -ldflags "-X main.version=… -X main.commit=… -X main.date=…".
var version, commit, date string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := cli.Program{
		Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Version: version, Commit: commit, Date: date,
		Screen: cli.ScreenOf(os.Stdout), Interactive: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	code := p.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
