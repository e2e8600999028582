package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func (p *Program) agentShowCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "show AGENT",
		Aliases: []string{"inspect"},
		Short:   "Show everything about one agent",
		Long:    "Shows what an agent is meant to be, what it is, and what the principal has to say about it.",
		Example: `  argocd-agentctl agent show w1
  argocd-agentctl agent show w1 -o json | jq -r .status.certificate.fingerprint`,
		Args:              argCount(1, 1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			agent, err := a.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			p.warnWriteOutage(cmd.Context(), a.cluster)
			return p.show(format, view{object: agent, names: []string{nameOf(agent)}, text: p.describeAgent(agent)})
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// describeAgent tells everything about an agent in words.
func (p *Program) describeAgent(agent *v1alpha1.Agent) string {
	s := agent.Status
	state := stateOf(agent)
	t := &text{}
	t.line("Name", agent.Name)
	t.line("Mode", cmp.Or(agent.Spec.Mode, "what it first connects with"))
	t.line("Namespace", hubNamespace(agent)+" on the hub")
	t.line("Mapping", cmp.Or(agent.Spec.Mapping, "as the principal is set"))
	t.line("Kinds", cmp.Or(strings.Join(agent.Spec.Kinds, ", "), "all"))
	t.line("Shared", yesNo(agent.Spec.Shared))
	t.line("Cluster labels", joined(agent.Spec.Cluster.Labels))
	t.line("Cluster annotations", joined(agent.Spec.Cluster.Annotations))
	t.gap()
	fmt.Fprintf(t, textLine, "State:", p.colour(state.paint, state.text)+p.sinceText(s.Since))
	if condition(agent, v1alpha1.ConditionWritable) == metav1.ConditionFalse {
		t.line("Trouble", conditionMessage(agent, v1alpha1.ConditionWritable))
	}
	t.line("Principal", s.Principal)
	t.line("Version", strings.TrimSpace(s.Version+protocolText(s.Protocol)))
	t.line("Cluster", s.ClusterUID)
	t.line("Applications", strconv.FormatInt(s.Applications, 10))
	t.line("Diverged", strconv.FormatInt(s.Diverged, 10))
	t.line("Oldest unacked", p.ago(s.OldestUnacked))
	t.line("Last confirmed", p.ago(s.LastConfirmed))
	if s.ClockSkewSeconds != nil {
		t.line("Clock", skewText(*s.ClockSkewSeconds))
	}
	if s.Certificate != nil {
		expires := ""
		if s.Certificate.Expires != nil {
			expires = fmt.Sprintf(", expires %s (in %s)", s.Certificate.Expires.UTC().Format(time.RFC3339), p.expiry(s.Certificate.Expires).text)
		}
		t.line("Certificate", s.Certificate.Fingerprint+expires)
		if last := certifiedUntil(agent); last != nil && !last.Equal(s.Certificate.Expires) {
			t.line("Renewed", fmt.Sprintf("since it connected; the new one expires %s (in %s)", last.UTC().Format(time.RFC3339), p.expiry(last).text))
		}
	}
	if len(s.Conditions) > 0 {
		t.gap()
		t.WriteString(p.table([]string{"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"}, p.conditionRows(s.Conditions)))
	}
	return t.String()
}

func (p *Program) conditionRows(all []metav1.Condition) [][]cell {
	var rows [][]cell
	for _, one := range all {
		rows = append(rows, []cell{c(one.Type), c(string(one.Status)), c(p.age(one.LastTransitionTime.Time)), c(orDash(one.Reason)), c(orDash(one.Message))})
	}
	return rows
}

// skewText says how a clock was when an agent connected.
func skewText(seconds int64) string {
	switch {
	case seconds > 1:
		return span(time.Duration(seconds)*time.Second) + " ahead of the hub's"
	case seconds < -1:
		return span(time.Duration(-seconds)*time.Second) + " behind the hub's"
	}
	return "as the hub's"
}

func protocolText(protocol string) string {
	if protocol == "" {
		return ""
	}
	return " (protocol " + protocol + ")"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
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

// text is a description, a line for each thing that there is to say.
type text struct{ strings.Builder }

func (t *text) line(name, value string) {
	if value == "" {
		return
	}
	fmt.Fprintf(t, textLine, name+":", printable(value)) // some of it comes from agents
}

const textLine = "%-20s %s\n"

func (t *text) gap() { t.WriteString("\n") }
