package cli

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
)

func (p *Program) agentListCommand() *cobra.Command {
	var selector agentSelector
	var disconnected bool
	cmd := p.withOutput(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List agents and their sync state",
		Long: `Lists the agents of a hub.

STATE is one of:

  connected        the agent has a session
  disconnected     the agent has no session
  never-connected  the agent has not connected yet
  suspended        the hub refuses the agent until it is resumed, or joins again if its key was cloned
  terminating      the agent is being deleted
  held             a hold waits for a confirmation, see ` + "`argocd-agentctl pending`" + `
  write-outage     the agent is connected, but its API server does not accept writes

DIVERGED is the number of items that differ between hub and workload cluster. IN SYNC is when both sides last had the
same items. UNACKED is how long the oldest change has waited for an acknowledgement.`,
		Example: `  argocd-agentctl agent list
  argocd-agentctl agent list --disconnected -o name
  argocd-agentctl agent list -l env=prod -o wide`,
		RunE: p.onHub(func(ctx context.Context, a agents, _ []string) error {
			list, err := a.list(ctx)
			if err != nil {
				return err
			}
			p.warnWriteOutage(ctx, a.cluster)
			list.Items = slices.DeleteFunc(list.Items, func(agent v1alpha1.Agent) bool {
				return !selector.matches(&agent) || disconnected && agent.Status.Connected
			})
			return p.show(p.agentTable(list, a.namespace))
		}),
	})
	selector.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&disconnected, "disconnected", false, "Only agents that are not connected.")
	return cmd
}

// agentTable shows one agent per row.
func (p *Program) agentTable(list *v1alpha1.List, namespace string) view {
	v := view{
		object: list, empty: "No agents in namespace " + namespace + ".",
		headings: []string{"NAME", "MODE", "STATE", "SINCE", "APPS", "DIVERGED", "IN SYNC", "UNACKED", "CERT", "VERSION",
			"NAMESPACE", "PRINCIPAL", "PROTOCOL", "CLUSTER"}, wide: 4,
	}
	for i := range list.Items {
		agent := &list.Items[i]
		s := agent.Status
		v.names = append(v.names, nameOf(agent))
		v.rows = append(v.rows, []cell{
			c(agent.Name), c(agent.Spec.Mode), stateCell(agent), p.ageCell(s.Since), c(strconv.FormatInt(s.Applications, 10)),
			countCell(s.Diverged), c(p.ago(s.LastConfirmed)), p.ageCell(s.OldestUnacked), p.expiry(agentrows.CertifiedUntil(agent)), c(s.Version),
			c(agentrows.HubNamespace(agent)), c(s.Principal), c(s.Protocol), c(s.ClusterUID),
		})
	}
	return v
}

func nameOf(agent *v1alpha1.Agent) string { return "agent." + v1alpha1.Group + "/" + agent.Name }

var stateColors = map[string]color{agentrows.Connected: green, agentrows.Disconnected: red, agentrows.WriteOutage: red, agentrows.NeverConnected: faint,
	agentrows.Suspended: yellow, agentrows.Terminating: yellow, agentrows.Held: yellow}

func stateCell(agent *v1alpha1.Agent) cell {
	state := agentrows.StateOf(agent)
	return cell{state, stateColors[state]}
}

func conditionMessage(agent *v1alpha1.Agent, conditionType string) string {
	if found := meta.FindStatusCondition(agent.Status.Conditions, conditionType); found != nil {
		return found.Message
	}
	return ""
}

func countCell(n int64) cell {
	if n == 0 {
		return c("0")
	}
	return cell{strconv.FormatInt(n, 10), yellow}
}

func (p *Program) ageCell(t *metav1.Time) cell {
	if t == nil {
		return cell{}
	}
	return c(p.age(t.Time))
}

// expiry shows the remaining lifetime of a certificate.
func (p *Program) expiry(until *metav1.Time) cell {
	if until == nil {
		return cell{}
	}
	left := until.Sub(p.Now())
	switch {
	case left <= 0:
		return cell{"expired", red}
	case left < time.Hour:
		return cell{span(left), yellow}
	}
	return c(span(left))
}
