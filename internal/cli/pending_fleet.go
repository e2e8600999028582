package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// manyAgents stands for the agents of a fleet hold. No agent can have this name.
const manyAgents = "*"

// fleetHold returns the hold on many agents. If there is none, or it is confirmed, it returns nil.
func (c *cluster) fleetHold(ctx context.Context) (*pendingItem, error) {
	found, err := c.kube.CoreV1().ConfigMaps(c.namespace).Get(ctx, v1alpha1.FleetHold, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
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

func (p *Program) confirmFleetHold(ctx context.Context, c *cluster, hold *pendingItem, yes bool) error {
	if err := p.askConfirmation(yes, "confirm: "+hold.Description); err != nil {
		return err
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.ConfirmAnnotation: hold.ID}}})
	if err != nil {
		return fmt.Errorf("confirm %s: %w", hold.ID, err)
	}
	if _, err := c.kube.CoreV1().ConfigMaps(c.namespace).Patch(ctx, v1alpha1.FleetHold, types.MergePatchType, change, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("confirm %s in ConfigMap %s: %w", hold.ID, v1alpha1.FleetHold, c.explain(err))
	}
	p.say("Confirmed: %s", hold.Description)
	return nil
}
