package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// pendingItem waits for a confirmation, for an agent or for a correction.
type pendingItem struct {
	Agent       string       `json:"agent"`
	Kind        string       `json:"kind"` // held, delivery, command, deletion, rejected or frozen
	Description string       `json:"description"`
	Reason      string       `json:"reason"`
	ID          string       `json:"id,omitempty"`    // confirms a hold
	Since       *metav1.Time `json:"since,omitempty"` // if nil, unknown

	fleetHold string // ID of the hold on many agents that includes it
}

func (p *Program) pendingCommand() *cobra.Command {
	cmd := p.withOutput(&cobra.Command{
		Use:   "pending [AGENT…]",
		Short: "List pending deliveries, commands and deletions, and rejected items",
		Long: `Lists pending items of all agents or of some:

  held      deletions or a restored API server that require a confirmation, see pending confirm
  delivery  an Application or a change of its source that the workload cluster has not processed yet
  command   a sync, refresh or terminate that the agent has not acknowledged yet
  deletion  an Application that is being deleted until the workload cluster has deleted its resources
  rejected  an Application that the other side does not accept
  frozen    an Application that must not run on its agent

Agent * stands for many agents. It means that items are missing on the hub for many agents at once, and that one
confirmation covers all of them. To list the holds of single agents, name them.

AGE is how long the item has waited, if known. Changes of projects and repositories for disconnected agents are not
listed, because the comparison after the next connection finds them.

If you are not permitted to read the Applications and settings of the hub, only held deletions and the number of other
items are listed, as the Agents report them.

The exit code is 3 if there is a pending item.`,
		Example: `  argocd-agentctl pending
  argocd-agentctl pending w1 -o json
  argocd-agentctl pending confirm 5f2c9b0e7d1a4c33`,
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			list, err := a.some(ctx, args)
			if err != nil {
				return err
			}
			p.warnWriteOutage(ctx, a.cluster)
			found, unread, err := p.findPending(ctx, a, list)
			if err != nil {
				return err
			}
			if len(unread) > 0 {
				p.warn("You are not permitted to read the Applications and settings of the hub for %s. Only what the Agents report is listed: held deletions and the number of pending items.", shortList(unread, 8))
			}
			if len(args) == 0 {
				hold, err := a.fleetHold(ctx)
				if err != nil {
					return err
				}
				found = withFleetHold(hold, found)
			}
			v := view{object: found, headings: []string{"AGENT", "KIND", "AGE", "DESCRIPTION", "REASON", "ID"}, empty: p.emptyPendingMessage(list, len(unread) > 0)}
			colors := map[string]color{"held": red, "rejected": red, "frozen": red, "deletion": yellow}
			for _, one := range found {
				v.names = append(v.names, cmp.Or(one.ID, one.Description))
				v.rows = append(v.rows, []cell{c(one.Agent), {one.Kind, colors[one.Kind]}, p.ageCell(one.Since), c(one.Description), c(one.Reason), c(one.ID)})
			}
			if err := p.show(v); err != nil || len(found) == 0 {
				return err
			}
			return findingsError{}
		}),
	})
	cmd.AddCommand(p.confirmCommand())
	return cmd
}

// some returns the agents with these names. If there are no names, it returns all agents.
func (a agents) some(ctx context.Context, names []string) ([]v1alpha1.Agent, error) {
	list, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(list.Items, func(a v1alpha1.Agent) bool { return a.Name == name }) {
			_, err := a.get(ctx, name)
			return nil, cmp.Or(err, fmt.Errorf("agent %s was created during the request. Run the command again", name))
		}
	}
	return slices.DeleteFunc(list.Items, func(a v1alpha1.Agent) bool { return len(names) > 0 && !slices.Contains(names, a.Name) }), nil
}

// findPending reads agents and their Applications on the hub. It returns the agents whose Applications the caller is not
// permitted to read, for example because it has only the rights that `agent access` gives.
func (p *Program) findPending(ctx context.Context, a agents, list []v1alpha1.Agent) (found []pendingItem, unread []string, err error) {
	found = []pendingItem{}
	for i := range list {
		agent := &list[i]
		before := len(found)
		found = append(found, holdsOf(agent)...)
		if agent.Spec.Mode == "" {
			continue // it has no Applications yet
		}
		env, apps, err := a.applicationsOf(ctx, agent)
		switch {
		case apierrors.IsForbidden(err):
			unread = append(unread, agent.Name)
		case err != nil:
			return nil, nil, err
		}
		for _, app := range apps {
			switch _, placement, reason := kind.Place(app, env); placement {
			case kind.Placed:
				found = append(found, p.undelivered(agent, app)...)
				found = append(found, pendingOf(agent, env, app)...)
			case kind.Frozen:
				rule, _, _ := strings.Cut(reason, ". ") // the condition of the Application has the remedy
				found = append(found, pendingItem{Agent: agent.Name, Kind: "frozen", Description: applicationText(app), Reason: rule})
			}
		}
		found = append(found, otherItems(agent, found[before:])...)
	}
	return found, unread, nil
}

// applicationsOf returns the Applications on the hub among which are those of an agent, and what decides about them.
func (a agents) applicationsOf(ctx context.Context, agent *v1alpha1.Agent) (*kind.Env, []*kind.Object, error) {
	env, err := a.hubEnv(ctx, agent)
	if err != nil {
		return nil, nil, err
	}
	apps, err := a.objects(ctx, kind.Applications, applicationNamespace(env), "")
	return env, apps, err
}

func holdsOf(agent *v1alpha1.Agent) []pendingItem {
	var found []pendingItem
	for i := range agent.Status.Holds {
		h := &agent.Status.Holds[i]
		hold := agentrows.HoldOf(h)
		found = append(found, pendingItem{Agent: agent.Name, Kind: "held", Description: hold.Description, Reason: hold.Reason, ID: h.ID, Since: h.Since, fleetHold: h.FleetHold})
	}
	return found
}

// pendingOf returns pending commands, a pending deletion and rejections of an Application.
func pendingOf(agent *v1alpha1.Agent, env *kind.Env, app *kind.Object) []pendingItem {
	var found []pendingItem
	name := applicationText(app)
	reason := notAcknowledgedReason(agent)
	if commands, ok := kind.Pending(app, env); ok {
		for _, one := range []struct {
			pending bool
			name    string
		}{
			{commands.Operation != nil || commands.MissingID, operationName(app)}, {commands.Terminate != kind.TerminateTarget{}, "terminate"},
			{commands.Refresh != "", commands.Refresh + " refresh"}, {commands.Hydrate != "" && commands.Refresh == "", "hydrate"},
			{commands.Approval.ID != "", "approval of deletions"},
		} {
			if one.pending {
				found = append(found, pendingItem{Agent: agent.Name, Kind: "command", Description: one.name + " of " + name, Reason: reason})
			}
		}
	}
	if app.IsDeleting() {
		waits := "the workload cluster has not confirmed the deletion yet"
		if !agent.Status.Connected {
			waits = reason + "; if its cluster is permanently gone, run: argocd-agentctl agent retire " + agent.Name
		}
		found = append(found, pendingItem{Agent: agent.Name, Kind: "deletion", Description: name, Reason: waits, Since: parseTime(rawjson.Text(app.Get("metadata"), "deletionTimestamp"))})
	}
	for _, one := range errorConditions(app) {
		found = append(found, pendingItem{Agent: agent.Name, Kind: "rejected", Description: name, Reason: rawjson.Text(one, "message"), Since: parseTime(rawjson.Text(one, "lastTransitionTime"))})
	}
	return found
}

// notAcknowledgedReason returns why an agent has not acknowledged something.
func notAcknowledgedReason(agent *v1alpha1.Agent) string {
	switch state := agentrows.StateOf(agent); {
	case state == agentrows.WriteOutage:
		return "the API server of the agent does not accept writes: " + conditionMessage(agent, v1alpha1.ConditionWritable)
	case agent.Status.Connected:
		return "the agent has not acknowledged it yet"
	case agent.Spec.Suspended:
		return "the agent is suspended"
	case state == agentrows.NeverConnected:
		return "the agent has never connected"
	}
	return "the agent is disconnected"
}

func operationName(app *kind.Object) string {
	if app.Get("operation", "sync") == nil && app.Get("operation") != nil {
		return "operation"
	}
	return "sync"
}

func (p *Program) confirmCommand() *cobra.Command {
	return p.withYes(&cobra.Command{
		Use:   "confirm ID",
		Short: "Confirm a held deletion or a restored store",
		Long: `Confirms a hold by the ID that ` + "`argocd-agentctl pending`" + ` shows. An ID covers exactly the items that were shown. If more
deletions are held later, the hold gets another ID.`,
		Example: `  argocd-agentctl pending
  argocd-agentctl pending confirm 5f2c9b0e7d1a4c33`,
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			hold, err := a.fleetHold(ctx)
			if err != nil {
				return err
			}
			if hold != nil && hold.ID == args[0] {
				return p.confirmFleetHold(ctx, a.cluster, hold)
			}
			list, err := a.list(ctx)
			if err != nil {
				return err
			}
			for i := range list.Items {
				for _, held := range holdsOf(&list.Items[i]) {
					if held.ID != "" && held.ID == args[0] {
						return p.confirm(ctx, a, held)
					}
				}
			}
			return errors.New("no hold has the ID " + args[0] + ": run `argocd-agentctl pending`")
		}),
	})
}

func (p *Program) confirm(ctx context.Context, a agents, held pendingItem) error {
	if err := p.askConfirmation(fmt.Sprintf("confirm for %s: %s", held.Agent, held.Description)); err != nil {
		return err
	}
	if _, err := a.patch(ctx, "confirm "+held.ID, held.Agent, annotate(v1alpha1.ConfirmAnnotation, held.ID)); err != nil {
		return err
	}
	p.say("Confirmed for %s: %s", held.Agent, held.Description)
	return nil
}
