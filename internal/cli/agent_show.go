package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
)

func (p *Program) agentShowCommand() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "show AGENT",
		Aliases: []string{"inspect"},
		Short:   "Show the full status of one agent",
		Long:    "Shows the spec, the status and the conditions of an agent.",
		Example: `  argocd-agentctl agent show w1
  argocd-agentctl agent show w1 -o json | jq -r .status.certificate.fingerprint`,
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			agent, err := a.get(ctx, args[0])
			if err != nil {
				return err
			}
			p.warnWriteOutage(ctx, a.cluster)
			return p.show(view{object: agent, names: []string{nameOf(agent)}, text: p.describeAgent(agent)})
		}),
	})
}

func (p *Program) describeAgent(agent *v1alpha1.Agent) string {
	s := agent.Status
	state := stateCell(agent)
	b := &strings.Builder{}
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "%-20s %s\n", name+":", printable(value)) // agents send some of the values
		}
	}
	line("Name", agent.Name)
	line("Mode", cmp.Or(agent.Spec.Mode, "not set"))
	line("Namespace", agentrows.HubNamespace(agent)+" on the hub")
	line("Mapping", cmp.Or(agent.Spec.Mapping, "default of the principal"))
	line("Kinds", cmp.Or(strings.Join(agent.Spec.Kinds, ", "), "all"))
	line("Owners", strings.Join(agent.Spec.Owners, ", "))
	line("Child Applications", agent.Spec.ChildApplications)
	line("Allowed on the hub", strings.Join(agent.Spec.Allow, ", "))
	line("Shared", strconv.FormatBool(agent.Spec.Shared))
	line("Cluster labels", labels.Set(agent.Spec.Cluster.Labels).String())
	line("Cluster annotations", labels.Set(agent.Spec.Cluster.Annotations).String())
	fmt.Fprintf(b, "\n%-20s %s\n", "State:", p.paint(state.color, state.text)+p.sinceText(s.Since))
	if meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionWritable) {
		line("Write outage", conditionMessage(agent, v1alpha1.ConditionWritable))
	}
	line("Principal", s.Principal)
	version := s.Version
	if s.Protocol != "" {
		version = strings.TrimSpace(version + " (protocol " + s.Protocol + ")")
	}
	line("Version", version)
	if u := agent.Spec.Upgrade; u != nil {
		line("Upgrade to", u.Version+" (request "+u.ID+")")
	}
	if u := s.Upgrade; u != nil {
		line("Upgrade", strings.TrimSuffix(strings.TrimSpace(u.Phase+" "+u.ID)+": "+u.Message, ": "))
	}
	line("Not replicated", strings.Join(s.UnsupportedKinds, ", "))
	line("Cluster", s.ClusterUID)
	line("Applications", strconv.FormatInt(s.Applications, 10))
	line("Diverged", strconv.FormatInt(s.Diverged, 10))
	line("Oldest unacked", p.ago(s.OldestUnacked))
	line("In sync", p.ago(s.LastConfirmed))
	if s.ClockSkewSeconds != nil {
		line("Clock", skewText(*s.ClockSkewSeconds))
	}
	if s.Certificate != nil {
		expires := ""
		if s.Certificate.Expires != nil {
			expires = fmt.Sprintf(", expires %s (in %s)", s.Certificate.Expires.UTC().Format(time.RFC3339), p.expiry(s.Certificate.Expires).text)
		}
		line("Certificate", s.Certificate.Fingerprint+expires)
		if last := agentrows.CertifiedUntil(agent); last != nil && !last.Equal(s.Certificate.Expires) {
			line("Renewed", fmt.Sprintf("after it connected; the new certificate expires %s (in %s)", last.UTC().Format(time.RFC3339), p.expiry(last).text))
		}
	}
	if len(s.Conditions) > 0 {
		var rows [][]cell
		for _, one := range s.Conditions {
			rows = append(rows, []cell{c(one.Type), c(string(one.Status)), c(p.age(one.LastTransitionTime.Time)), c(one.Reason), c(one.Message)})
		}
		b.WriteString("\n" + p.table([]string{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}, rows))
	}
	return b.String()
}

func skewText(seconds int64) string {
	switch d := time.Duration(seconds) * time.Second; {
	case seconds > 1:
		return span(d) + " ahead of the hub"
	case seconds < -1:
		return span(-d) + " behind the hub"
	}
	return "same as the hub"
}

func (p *Program) sinceText(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" since %s (%s)", t.UTC().Format(time.RFC3339), p.age(t.Time))
}

func (p *Program) ago(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return p.age(t.Time) + " ago"
}
