package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// pendingItem is something that waits: for a person's word, for an agent, or for a correction.
type pendingItem struct {
	Agent string `json:"agent"`
	Kind  string `json:"kind"` // held, delivery, command, deletion, rejected or frozen
	What  string `json:"what"`
	Why   string `json:"why"`
	ID    string `json:"id,omitempty"` // to confirm it with

	Since *metav1.Time `json:"since,omitempty"` // nil: not known

	partOf string // ID of the hold on many agents that covers it
}

func (p *Program) pendingCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "pending [AGENT…]",
		Short: "Show what waits: deliveries, commands, deletions, and items that are refused",
		Long: `Shows what waits, for all agents or for some:

  held      deletions or a changed store that somebody has to confirm first; see pending confirm
  delivery  an Application, or a change of its source, that its cluster has not taken up yet
  command   a sync, refresh or terminate that the agent has not taken up yet
  deletion  an Application that is being deleted, until its cluster has removed what it deployed
  rejected  an Application that the other side refuses, and why
  frozen    an Application that must not run on its agent, and why

Agent * stands for many agents: the hub lacks items on so many of them at once that one confirmation is asked for all.
With the names of agents, what each of them holds is listed instead.

AGE is how long it has waited, where that is known. Changes of projects and repositories for agents that are not
connected are not listed: they are found when the two sides compare.

The exit code is 3 if there is anything.`,
		Example: `  argocd-agentctl pending
  argocd-agentctl pending w1 -o json
  argocd-agentctl pending confirm 5f2c9b0e7d1a4c33`,
		Args:              argCount(0, -1),
		ValidArgsFunction: p.agentNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			list, err := a.some(cmd.Context(), args)
			if err != nil {
				return err
			}
			p.warnWriteOutage(cmd.Context(), a.cluster)
			found, err := p.findPending(cmd.Context(), a, list)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				hold, err := a.fleetHold(cmd.Context())
				if err != nil {
					return err
				}
				found = withFleetHold(hold, found)
			}
			v := view{object: found, headings: []string{"AGENT", "KIND", "AGE", "WHAT", "WHY", "ID"}, nothing: p.emptyPendingMessage(list)}
			paints := map[string]paint{"held": bad, "rejected": bad, "frozen": bad, "deletion": unsure}
			for _, w := range found {
				v.names = append(v.names, cmp.Or(w.ID, w.What))
				v.rows = append(v.rows, []cell{c(w.Agent), {w.Kind, paints[w.Kind]}, p.ageCell(w.Since), c(w.What), c(orDash(w.Why)), c(orDash(w.ID))})
			}
			if err := p.show(format, v); err != nil || len(found) == 0 {
				return err
			}
			return findingsError{}
		},
	}
	outputFlag(cmd, &format)
	cmd.AddCommand(p.confirmCommand())
	return cmd
}

// some reads the agents of these names; of none: all.
func (a agents) some(ctx context.Context, names []string) ([]v1alpha1.Agent, error) {
	list, err := a.list(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(list.Items, func(a v1alpha1.Agent) bool { return a.Name == name }) {
			_, err := a.get(ctx, name) // says that there is none
			return nil, cmp.Or(err, fmt.Errorf("agent %s has just been made: try again", name))
		}
	}
	return slices.DeleteFunc(list.Items, func(a v1alpha1.Agent) bool { return len(names) > 0 && !slices.Contains(names, a.Name) }), nil
}

// findPending looks at agents and their Applications on the hub.
func (p *Program) findPending(ctx context.Context, a agents, list []v1alpha1.Agent) ([]pendingItem, error) {
	found := []pendingItem{}
	for i := range list {
		agent := &list[i]
		before := len(found)
		found = append(found, heldBy(agent)...)
		if agent.Spec.Mode == "" {
			continue // it has no Applications yet
		}
		w, err := a.hubWorld(ctx, agent)
		if err != nil {
			return nil, err
		}
		apps, err := a.objects(ctx, kind.Applications, applicationNamespace(w), "")
		if err != nil {
			return nil, err
		}
		for _, app := range apps {
			switch _, placement, why := kind.Place(app, w); placement {
			case kind.Placed:
				found = append(found, p.undelivered(agent, app)...)
				found = append(found, waitsFor(agent, w, app)...)
			case kind.Frozen:
				rule, _, _ := strings.Cut(why, ". ") // what to do says its condition
				found = append(found, pendingItem{Agent: agent.Name, Kind: "frozen", What: applicationText(app), Why: rule})
			}
		}
		found = append(found, unnamed(agent, found[before:])...)
	}
	return found, nil
}

// heldBy returns the holds of an agent.
func heldBy(agent *v1alpha1.Agent) []pendingItem {
	var found []pendingItem
	for _, h := range agent.Status.Holds {
		one := pendingItem{Agent: agent.Name, Kind: "held", What: h.Reason, Why: "confirmation required", ID: h.ID, Since: h.Since, partOf: h.FleetHold}
		if h.Scope != "" {
			one.What, one.Why = fmt.Sprintf("%d deletions of %s", h.Count, h.Scope), h.Reason
		}
		found = append(found, one)
	}
	return found
}

// waitsFor tells what an Application of an agent waits for.
func waitsFor(agent *v1alpha1.Agent, w *kind.Env, app *kind.Object) []pendingItem {
	var found []pendingItem
	name := applicationText(app)
	why := disconnectedReason(agent)
	if commands, ok := kind.Pending(app, w); ok {
		for _, one := range []struct {
			is   bool
			what string
		}{
			{commands.Operation != nil || commands.MissingID, operationName(app)}, {commands.Terminate != kind.TerminateTarget{}, "terminate"},
			{commands.Refresh != "", commands.Refresh + " refresh"}, {commands.Hydrate != "" && commands.Refresh == "", "hydrate"},
		} {
			if one.is {
				found = append(found, pendingItem{Agent: agent.Name, Kind: "command", What: one.what + " of " + name, Why: why})
			}
		}
	}
	if app.IsDeleting() {
		reason := "its cluster has not confirmed yet"
		if !agent.Status.Connected {
			reason = why + "; if its cluster is gone for good: argocd-agentctl agent retire " + agent.Name
		}
		found = append(found, pendingItem{Agent: agent.Name, Kind: "deletion", What: name, Why: reason, Since: since(rawjson.Text(app.Get("metadata"), "deletionTimestamp"))})
	}
	conditions, _ := rawjson.Elements(app.Get("status", "conditions"))
	for _, one := range conditions {
		if rawjson.Text(one, "type") == kind.ConditionError {
			found = append(found, pendingItem{Agent: agent.Name, Kind: "rejected", What: name, Why: rawjson.Text(one, "message"), Since: since(rawjson.Text(one, "lastTransitionTime"))})
		}
	}
	return found
}

// disconnectedReason says why an agent does not take something up.
func disconnectedReason(agent *v1alpha1.Agent) string {
	switch {
	case stateOf(agent).text == stateNoWrites:
		return "the agent's cluster takes no writes just now: " + conditionMessage(agent, v1alpha1.ConditionWritable)
	case agent.Status.Connected:
		return "the agent has not taken it up yet"
	case agent.Spec.Suspended:
		return "the agent is suspended"
	case stateOf(agent).text == "never":
		return "the agent has never connected"
	}
	return "the agent is away"
}

func operationName(app *kind.Object) string {
	if app.Get("operation", "sync") == nil && app.Get("operation") != nil {
		return "operation"
	}
	return "sync"
}

func (p *Program) confirmCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "confirm ID",
		Short: "Let go ahead what is held back",
		Long: `Confirms what is held back under an ID that ` + "`argocd-agentctl pending`" + ` shows. An ID stands for exactly what was
shown: if more is held by then, it has another ID and needs another word.`,
		Example: `  argocd-agentctl pending
  argocd-agentctl pending confirm 5f2c9b0e7d1a4c33`,
		Args: argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.agents()
			if err != nil {
				return err
			}
			hold, err := a.fleetHold(cmd.Context())
			if err != nil {
				return err
			}
			if hold != nil && hold.ID == args[0] {
				return p.confirmFleetHold(cmd.Context(), a.cluster, hold, yes)
			}
			list, err := a.list(cmd.Context(), "")
			if err != nil {
				return err
			}
			for i := range list.Items {
				for _, held := range heldBy(&list.Items[i]) {
					if held.ID != "" && held.ID == args[0] {
						return p.confirm(cmd.Context(), a, held, yes)
					}
				}
			}
			return errors.New("nothing is held back under the ID " + args[0] + ": `argocd-agentctl pending` shows what is")
		},
	}
	yesFlag(cmd, &yes)
	return cmd
}

func (p *Program) confirm(ctx context.Context, a agents, held pendingItem, yes bool) error {
	if err := p.askConfirmation(yes, fmt.Sprintf("let go ahead on %s: %s", held.Agent, held.What)); err != nil {
		return err
	}
	change := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.ConfirmAnnotation: held.ID}}}
	if _, err := a.patch(ctx, "confirm "+held.ID, held.Agent, change); err != nil {
		return err
	}
	p.say("Confirmed for %s: %s", held.Agent, held.What)
	return nil
}
