package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) fleetCommand() *cobra.Command {
	var port int
	var selector agentSelector
	var expiring time.Duration
	var search searchFlags
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show agents in a browser",
		Long: `Serves a web page on this machine and prints its URL. The page shows the connection, sync state, holds, clock,
certificate and version of each agent and updates itself. It reads the Agents of the hub with your credentials. If the
principal has --search-port, the page also shows Applications, as ` + "`argocd-agentctl search`" + ` does.

The URL contains a secret. It works only on this machine and only while the command runs. To use a browser on another
machine, run ` + "`ssh -L 8765:127.0.0.1:8765 HOST`" + ` and, on HOST, ` + "`argocd-agentctl fleet --port 8765`" + `.

The page is read-only. For a terminal, use ` + "`argocd-agentctl top`" + `. For scripts, use
` + "`argocd-agentctl agent list -o json`" + `.`,
		Example: `  argocd-agentctl fleet
  argocd-agentctl fleet -l env=prod --expiring 168h`,
		RunE: p.onHub(func(ctx context.Context, a agents, _ []string) error {
			if port < 0 || port > 65535 {
				return cmdline.UsageErrorf("--port %d is not a valid port", port)
			}
			// Report missing permissions here, not on the page.
			if _, err := a.restrictedTo(ctx); err != nil {
				return a.failed("list agents", "", err)
			}
			if err := search.check(); err != nil {
				return err
			}
			about := agentrows.About{Hub: a.String(), Command: p.commandPrefix(), Expiring: int64(expiring.Seconds())}
			if settings, err := a.configMap(ctx, "argocd-cm"); err == nil { // else there are no links
				about.ArgoCD = agentrows.ArgoCDURL(settings["url"])
			}
			return p.serveFleet(ctx, a, selector, port, about, search)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&port, "port", 0, "Local `PORT` of the page. If unset, a free port.")
	selector.addFlag(f)
	search.addServer(f)
	f.DurationVar(&expiring, "expiring", 72*time.Hour, "Count certificates that expire within this time. Agents renew after two thirds of the lifetime.")
	return cmd
}

func (p *Program) serveFleet(ctx context.Context, a agents, selector agentSelector, port int, about agentrows.About, search searchFlags) error {
	state := agentrows.NewState()
	ctx, end := context.WithCancel(ctx)
	f, err := watchAgents(ctx, a, watcher{
		changed: func(agent *v1alpha1.Agent) {
			if !selector.matches(agent) {
				state.Remove(agent.Name)
				return
			}
			_ = state.Set(agentrows.Of(agent)) // encoding a row cannot fail
		},
		deleted: state.Remove, failed: state.SetStale,
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
	forwarder, tried := &searchForwarder{hub: a.cluster, flags: search}, make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { forwarder.run(ctx, func() { close(tried) }) })
	select { // the page asks once whether there are Applications
	case <-tried:
	case <-time.After(searchPatience):
	}
	server, err := fleet.Listen(ctx, port, state, about, forwarder)
	if err != nil {
		return fmt.Errorf("%w; set another --port", err)
	}
	fmt.Fprintln(p.Stdout, server.URL())
	fmt.Fprintln(p.Stderr, "Open this URL in a browser on this machine. Press Ctrl-C to stop.")
	return server.Serve(ctx)
}

// ready waits until the watch has reported all Agents.
func (f *agentWatch) ready(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, requestTimeout, true, func(context.Context) (bool, error) { return f.synced(), nil })
	if reason := f.staleReason(); err != nil && reason != "" {
		return errors.New(reason)
	}
	return err
}

// commandPrefix returns argocd-agentctl with the flags that select the current hub.
func (p *Program) commandPrefix() string {
	words := []string{"argocd-agentctl"}
	for _, name := range []string{"kubeconfig", "config", "principal", "principal-context", "principal-namespace"} {
		if flag := p.global.set.Lookup(name); flag != nil && flag.Changed {
			words = append(words, "--"+name, quoted(flag.Value.String()))
		}
	}
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[-A-Za-z0-9_./:@=,]+$`)

// quoted returns a word quoted for a shell.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
