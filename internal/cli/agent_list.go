package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func (p *Program) agentListCommand() *cobra.Command {
	var format, selector string
	var away bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List agents: who is connected, and what differs",
		Long: `Lists the agents of a hub.

STATE is connected, away, suspended, or never for one that has not been there yet; held if somebody has to confirm
something, no-writes if the cluster's API server takes none: agent show says why. DIVERGED counts items that
differ between hub and cluster: it is 0 when all is in order. UNACKED is how long the oldest change has waited
for the other side's word.`,
		Example: `  argocd-agentctl agent list
  argocd-agentctl agent list --away -o name          # those that are not there
  argocd-agentctl agent list -l env=prod -o wide`,
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			list, err := a.list(cmd.Context(), selector)
			if err != nil {
				return err
			}
			p.warnWriteOutage(cmd.Context(), a.cluster)
			if away {
				list.Items = slices.DeleteFunc(list.Items, func(a v1alpha1.Agent) bool { return a.Status.Connected })
			}
			return p.show(format, p.agentTable(list, a.namespace))
		},
	}
	outputFlag(cmd, &format)
	cmd.Flags().StringVarP(&selector, "selector", "l", "", "Only agents whose labels match this `SELECTOR`.")
	cmd.Flags().BoolVar(&away, "away", false, "Only agents that are not connected.")
	return cmd
}

// agentTable shows agents, one a line.
func (p *Program) agentTable(list *v1alpha1.List, namespace string) view {
	v := view{
		object: list, nothing: "No agents in namespace " + namespace + ".",
		headings: []string{"NAME", "MODE", "STATE", "SINCE", "APPS", "DIVERGED", "UNACKED", "CERT", "VERSION",
			"NAMESPACE", "CONFIRMED", "PRINCIPAL", "PROTOCOL", "CLUSTER"}, wide: 5,
	}
	for i := range list.Items {
		agent := &list.Items[i]
		s := agent.Status
		since := ""
		if s.Since != nil {
			since = p.age(s.Since.Time)
		}
		v.names = append(v.names, nameOf(agent))
		v.rows = append(v.rows, []cell{
			c(agent.Name), c(orDash(agent.Spec.Mode)), stateOf(agent), c(orDash(since)), c(strconv.FormatInt(s.Applications, 10)),
			count(s.Diverged), p.ageCell(s.OldestUnacked), p.expiry(certifiedUntil(agent)), c(orDash(s.Version)),
			c(hubNamespace(agent)), p.ageCell(s.LastConfirmed), c(orDash(s.Principal)), c(orDash(s.Protocol)), c(orDash(s.ClusterUID)),
		})
	}
	return v
}

func nameOf(agent *v1alpha1.Agent) string { return "agent." + v1alpha1.Group + "/" + agent.Name }

// hubNamespace is where an agent's Applications are on the hub.
func hubNamespace(agent *v1alpha1.Agent) string {
	if agent.Spec.Namespace != "" {
		return agent.Spec.Namespace
	}
	return agent.Name
}

// stateNoWrites is an agent that is connected and whose API server takes no writes.
const stateNoWrites = "no-writes"

// stateOf says in a word how an agent is.
func stateOf(agent *v1alpha1.Agent) cell {
	switch {
	case agent.DeletionTimestamp != nil:
		return cell{"leaving", unsure}
	case agent.Spec.Suspended && !agent.Status.Connected:
		return cell{"suspended", unsure}
	case condition(agent, v1alpha1.ConditionHeld) == metav1.ConditionTrue:
		return cell{"held", unsure}
	case agent.Status.Connected && condition(agent, v1alpha1.ConditionWritable) == metav1.ConditionFalse:
		return cell{stateNoWrites, bad}
	case agent.Status.Connected:
		return cell{"connected", good}
	case agent.Status.Since == nil && agent.Status.ClusterUID == "":
		return cell{"never", faint}
	default:
		return cell{"away", bad}
	}
}

func condition(agent *v1alpha1.Agent, kind string) metav1.ConditionStatus {
	for _, c := range agent.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return metav1.ConditionUnknown
}

func conditionMessage(agent *v1alpha1.Agent, kind string) string {
	for _, c := range agent.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

func count(n int64) cell {
	if n == 0 {
		return c("0")
	}
	return cell{strconv.FormatInt(n, 10), unsure}
}

func (p *Program) ageCell(t *metav1.Time) cell {
	if t == nil {
		return c("-")
	}
	return c(p.age(t.Time))
}

// expiry shows how long a certificate is still good for.
func (p *Program) expiry(until *metav1.Time) cell {
	if until == nil {
		return c("-")
	}
	left := until.Sub(p.Now())
	switch {
	case left <= 0:
		return cell{"expired", bad}
	case left < time.Hour:
		return cell{span(left), unsure}
	}
	return c(span(left))
}

func joined(pairs map[string]string) string {
	var words []string
	for key, value := range pairs {
		words = append(words, key+"="+value)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}
