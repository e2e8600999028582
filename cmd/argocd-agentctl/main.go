// Command argocd-agentctl looks after a fleet of clusters that one Argo CD runs through agents. What it can do is in
// internal/cli.
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

// Set by the linker for releases: -ldflags "-X main.version=… -X main.commit=…".
var version, commit string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := cli.Program{
		Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Version: version, Commit: commit,
		Screen: cli.ScreenOf(os.Stdout), Asks: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
	}
	code := p.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
