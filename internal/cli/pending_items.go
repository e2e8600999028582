package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// statusInterval is how old the status of an Agent can be.
const statusInterval = 30 * time.Second

// undelivered returns an Application, or a change of it, that the workload cluster has not processed. It compares the
// spec with the status that Argo CD on the workload cluster reported.
func (p *Program) undelivered(agent *v1alpha1.Agent, app *kind.Object) []pendingItem {
	synced := len(agent.Spec.Kinds) == 0 || slices.Contains(agent.Spec.Kinds, v1alpha1.KindApplications)
	if agent.Spec.Mode != string(kind.Managed) || !synced || app.IsDeleting() || len(errorConditions(app)) > 0 {
		return nil
	}
	item := pendingItem{Agent: agent.Name, Kind: "delivery", Description: applicationText(app), Reason: notAcknowledgedReason(agent)}
	delivered := agent.Status.Connected && agent.Status.Diverged == 0
	switch {
	case rawjson.Text(app.Get("status"), "sync", "status") == "" && rawjson.Text(app.Get("status"), "reconciledAt") == "": // argocd-server creates an empty status
		item.Since = parseTime(rawjson.Text(app.Get("metadata"), "creationTimestamp"))
		switch {
		case delivered && item.Since != nil && !p.Now().Before(item.Since.Time) && p.Now().Sub(item.Since.Time) < statusInterval:
			item.Reason = "it was created recently"
		case delivered:
			item.Reason = "delivered, but Argo CD on the workload cluster has not reported a status. Check its application controller"
		}
	case !delivered && !compared(app):
		item.Description = "change of " + item.Description
	default:
		return nil
	}
	return []pendingItem{item}
}

// compared reports whether Argo CD on the workload cluster compared the current source. The status repeats the source.
func compared(app *kind.Object) bool {
	if app.Get("spec", "sourceHydrator") != nil {
		return true // the compared source is not the one in the spec
	}
	for _, field := range []string{"source", "sources"} {
		spec, seen := app.Get("spec", field), app.Get("status", "sync", "comparedTo", field)
		if spec == nil || field == "source" && app.Get("spec", "sources") != nil {
			continue
		}
		a, errA := rawjson.Canonical(spec)
		b, errB := rawjson.Canonical(seen)
		if errA == nil && (errB != nil || !bytes.Equal(a, b)) {
			return false
		}
	}
	return true
}

// otherItems returns one entry for items that differ if no Application explains them.
func otherItems(agent *v1alpha1.Agent, found []pendingItem) []pendingItem {
	if !agent.Status.Connected || agent.Status.Diverged == 0 || len(found) > 0 {
		return nil
	}
	reason := "in progress; if it persists, run: argocd-agentctl diff " + agent.Name + " --agent-context …"
	if agentrows.StateOf(agent) == agentrows.WriteOutage {
		reason = notAcknowledgedReason(agent)
	}
	return []pendingItem{{Agent: agent.Name, Kind: "delivery", Description: agentrows.PendingText(&agent.Status), Reason: reason, Since: agent.Status.OldestUnacked}}
}

// emptyPendingMessage names the agents whose state is unknown. If partial, Applications were not read.
func (p *Program) emptyPendingMessage(list []v1alpha1.Agent, partial bool) string {
	var unknown []string
	for i := range list {
		agent := &list[i]
		conditions := agent.Status.Conditions
		switch state := agentrows.StateOf(agent); {
		case !agent.Status.Connected && agent.Status.Since != nil:
			unknown = append(unknown, fmt.Sprintf("%s (%s for %s)", agent.Name, state, p.age(agent.Status.Since.Time)))
		case !agent.Status.Connected:
			unknown = append(unknown, fmt.Sprintf("%s (%s)", agent.Name, state))
		case !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionSynced) && !meta.IsStatusConditionFalse(conditions, v1alpha1.ConditionSynced) && len(conditions) > 0:
			unknown = append(unknown, agent.Name+" (comparing)")
		}
	}
	switch {
	case len(unknown) == 0 && partial:
		return "No pending items found in the Agents."
	case len(unknown) == 0:
		return "No pending items."
	}
	return "No pending items found. The state of these agents is unknown because they are not connected or not compared yet: " + shortList(unknown, 8) + "."
}

func applicationText(app *kind.Object) string {
	return "application " + app.Namespace() + "/" + app.Name()
}

// errorConditions returns the conditions with which the agent or the principal reports a rejected Application.
func errorConditions(app *kind.Object) [][]byte {
	conditions, _ := rawjson.Elements(app.Get("status", "conditions"))
	return slices.DeleteFunc(conditions, func(one []byte) bool { return rawjson.Text(one, "type") != kind.ConditionError })
}

// parseTime returns nil for a text that is not a time.
func parseTime(text string) *metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: at}
}

// manyAgents stands for the agents of a fleet hold. No agent can have this name.
const manyAgents = "*"

// fleetHold returns the hold on many agents. If there is none, it is confirmed, or the caller is not permitted to read it,
// it returns nil: then the holds of single agents are shown.
func (c *cluster) fleetHold(ctx context.Context) (*pendingItem, error) {
	found, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(ctx, v1alpha1.FleetHold, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get ConfigMap %s: %w", v1alpha1.FleetHold, c.explain(err))
	}
	data := found.Data
	id := data[v1alpha1.FleetHoldID]
	if id == "" || found.Annotations[v1alpha1.ConfirmAnnotation] == id {
		return nil, nil
	}
	description := fmt.Sprintf("%s items on %s of %s agents", data[v1alpha1.FleetHoldItems], data[v1alpha1.FleetHoldAgents], data[v1alpha1.FleetHoldCompared])
	if sample := data[v1alpha1.FleetHoldSample]; sample != "" {
		description += ", for example " + strings.ReplaceAll(sample, "\n", ", ")
	}
	return &pendingItem{Agent: manyAgents, Kind: "held", Description: description, ID: id, Since: parseTime(data[v1alpha1.FleetHoldSince]),
		Reason: "the items no longer exist on the hub; one confirmation covers all agents"}, nil
}

// withFleetHold replaces the holds of single agents that a fleet hold includes.
func withFleetHold(hold *pendingItem, found []pendingItem) []pendingItem {
	if hold == nil {
		return found
	}
	all := []pendingItem{*hold}
	for _, one := range found {
		if one.fleetHold != hold.ID {
			all = append(all, one)
		}
	}
	return all
}

func (p *Program) confirmFleetHold(ctx context.Context, c *cluster, hold *pendingItem) error {
	if err := p.askConfirmation("confirm: " + hold.Description); err != nil {
		return err
	}
	change, err := json.Marshal(annotate(v1alpha1.ConfirmAnnotation, hold.ID))
	if err != nil {
		return fmt.Errorf("confirm %s: %w", hold.ID, err)
	}
	if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Patch(ctx, v1alpha1.FleetHold, types.MergePatchType, change, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("confirm %s in ConfigMap %s: %w", hold.ID, v1alpha1.FleetHold, c.explain(err))
	}
	p.say("Confirmed: %s", hold.Description)
	return nil
}
