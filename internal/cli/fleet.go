package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
)

func (p *Program) fleetCommand() *cobra.Command {
	var port int
	var selector string
	var expiring time.Duration
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Watch the fleet in a browser, live",
		Long: `Serves a page that shows the fleet and keeps itself up to date, and prints its address: who is connected, who is
away and since when, what differs, what is held back and how to confirm it, clocks, certificates, versions. It
reads the hub's Agent objects as you, by one list and one watch; on the hub nothing listens for it.

The address is for you alone: it works on this machine, as long as this command runs, and has a secret in it
that is new each time. From another machine, let ssh carry the port: ` + "`ssh -L 8765:127.0.0.1:8765 HOST`" + `, and there
` + "`argocd-agentctl fleet --port 8765`" + `.

The page only shows. On a terminal, ` + "`argocd-agentctl top`" + ` does the same; scripts use
` + "`argocd-agentctl agent list -o json`" + `.`,
		Example: `  argocd-agentctl fleet
  argocd-agentctl fleet -l env=prod --expiring 168h`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return usageErrorf("--port %d cannot be a port", port)
			}
			a, err := p.agents()
			if err != nil {
				return err
			}
			// Whether it can be read at all is said here, and not on a page.
			if _, err := a.in().List(cmd.Context(), metav1.ListOptions{LabelSelector: selector, Limit: 1}); err != nil {
				return a.failed("list agents", "", err)
			}
			about := fleet.About{Hub: a.String(), Command: p.sameHub(), Expiring: int64(expiring.Seconds())}
			return p.serveFleet(cmd.Context(), a, selector, port, about)
		},
	}
	f := cmd.Flags()
	f.IntVar(&port, "port", 0, "`PORT` of this machine that the page is on. Without it, one that is free.")
	f.StringVarP(&selector, "selector", "l", "", "Only agents whose labels match this `SELECTOR`.")
	f.DurationVar(&expiring, "expiring", 72*time.Hour, "Certificates that end within this time are counted as ending soon: less than what is left of them when they are renewed, which is a third of their life.")
	return cmd
}

// serveFleet shows a hub's agents in browsers until the context ends.
func (p *Program) serveFleet(ctx context.Context, a agents, selector string, port int, about fleet.About) error {
	board := fleet.NewBoard()
	ctx, end := context.WithCancel(ctx)
	f, err := follow(ctx, a, selector, follower{
		changed: func(agent *v1alpha1.Agent) { _ = board.Set(rowOf(agent)) }, // such rows can be written
		gone:    board.Remove, trouble: board.SetTrouble,
	})
	if err != nil {
		end()
		return err
	}
	defer f.wait()
	defer end()
	if err := f.ready(ctx); err != nil {
		return a.failed("list agents", "", err)
	}
	server, err := fleet.Listen(ctx, port, board, about)
	if err != nil {
		return fmt.Errorf("%w; choose another --port, or none", err)
	}
	fmt.Fprintln(p.Stdout, server.URL())
	fmt.Fprintln(p.Stderr, "Open this address in a browser of this machine. Ctrl-C ends it.")
	return server.Serve(ctx)
}

// ready waits until everything that there is has been told.
func (f *following) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !f.read() {
		select {
		case <-look.C:
		case <-ctx.Done():
			if why := f.old(); why != "" {
				return errors.New(why)
			}
			return ctx.Err()
		}
	}
	return nil
}

// sameHub is how this program is called for the hub that it is called for now.
func (p *Program) sameHub() string {
	words := []string{"argocd-agentctl"}
	for _, name := range []string{"kubeconfig", "config", "principal", "principal-context", "principal-namespace"} {
		if flag := p.global.set.Lookup(name); flag != nil && flag.Changed {
			words = append(words, "--"+name, quoted(flag.Value.String()))
		}
	}
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[-A-Za-z0-9_./:@=,]+$`)

// quoted is a word as a shell reads it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
