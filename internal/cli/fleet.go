package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func (p *Program) fleetCommand() *cobra.Command {
	var port int
	var selector agentSelector
	var expiring time.Duration
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Show agents in a browser",
		Long: `Serves a web page on this machine and prints its URL. The page shows the connection, sync state, holds, clock,
certificate and version of each agent and updates itself. It reads the Agents of the hub with your credentials.

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
			about := fleet.About{Hub: a.String(), Command: p.commandPrefix(), Expiring: int64(expiring.Seconds())}
			return p.serveFleet(ctx, a, selector, port, about)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&port, "port", 0, "Local `PORT` of the page. If unset, a free port.")
	selector.addFlag(f)
	f.DurationVar(&expiring, "expiring", 72*time.Hour, "Count certificates that expire within this time. Agents renew after two thirds of the lifetime.")
	return cmd
}

func (p *Program) serveFleet(ctx context.Context, a agents, selector agentSelector, port int, about fleet.About) error {
	state := fleet.NewState()
	ctx, end := context.WithCancel(ctx)
	f, err := watchAgents(ctx, a, watcher{
		changed: func(agent *v1alpha1.Agent) {
			if !selector.matches(agent) {
				state.Remove(agent.Name)
				return
			}
			_ = state.Set(rowOf(agent)) // encoding a row cannot fail
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
	server, err := fleet.Listen(ctx, port, state, about)
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

func rowOf(agent *v1alpha1.Agent) fleet.Row {
	s := &agent.Status
	r := fleet.Row{
		Name: agent.Name, State: stateOf(agent), Urgency: urgency(agent), Refused: refusalOf(agent),
		Connected: s.Connected, Since: seconds(s.Since), Applications: s.Applications, Diverged: s.Diverged,
		Unacked: seconds(s.OldestUnacked), Confirmed: seconds(s.LastConfirmed), Skew: s.ClockSkewSeconds, Expires: seconds(certifiedUntil(agent)), Version: s.Version,
		Mode: agent.Spec.Mode, Mapping: agent.Spec.Mapping, Namespace: hubNamespace(agent), Kinds: strings.Join(agent.Spec.Kinds, ", "), Allow: strings.Join(agent.Spec.Allow, ", "), Owners: strings.Join(agent.Spec.Owners, ", "),
		Labels: labels.Set(agent.Spec.Cluster.Labels).String(), Shared: agent.Spec.Shared, Created: seconds(&agent.CreationTimestamp),
		Principal: s.Principal, Protocol: s.Protocol, Cluster: s.ClusterUID,
	}
	if s.Pending != nil {
		r.Pending = pendingText(s)
	}
	if s.Certificate != nil {
		r.Fingerprint = s.Certificate.Fingerprint
	}
	for _, one := range holdsOf(agent) {
		r.Holds = append(r.Holds, fleet.Hold{Description: one.Description, Reason: one.Reason, ID: one.ID})
	}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, fleet.Condition{Type: c.Type, Status: string(c.Status), Since: seconds(&c.LastTransitionTime), Reason: c.Reason, Message: c.Message})
	}
	return r
}

// certificateReused is the reason of an agent that must join again.
const certificateReused engine.Code = "CertificateReused"

// refusals are the reasons of condition Connected that an operator must fix.
var refusals = []engine.Code{engine.NotAllowed, engine.NameTaken, engine.WrongMode, engine.WrongCluster, engine.WrongProtocol, engine.BadMessage, engine.Revoked, certificateReused}

// refusalOf returns why an agent is refused or its registration is not accepted.
func refusalOf(agent *v1alpha1.Agent) string {
	var reasons []string
	for _, c := range agent.Status.Conditions {
		if c.Status != metav1.ConditionFalse {
			continue
		}
		if c.Type == v1alpha1.ConditionRegistered || c.Type == v1alpha1.ConditionConnected && slices.Contains(refusals, engine.Code(c.Reason)) {
			reasons = append(reasons, c.Message)
		}
	}
	return strings.Join(reasons, "\n")
}

// certifiedUntil returns the latest expiry of the known certificates of an agent. The principal may have issued newer
// ones after the agent connected.
func certifiedUntil(agent *v1alpha1.Agent) *metav1.Time {
	var last *metav1.Time
	if agent.Status.Certificate != nil {
		last = agent.Status.Certificate.Expires
	}
	issued := pki.ParseRecord(agent.Annotations[v1alpha1.IssuedAnnotation]).LastExpiry()
	if !issued.IsZero() && (last == nil || issued.After(last.Time)) {
		last = &metav1.Time{Time: issued}
	}
	return last
}

func seconds(t *metav1.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.Unix()
}
