package fleet

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

var eventResource = kind.Resource{Version: "v1", Plural: "events", Kind: "Event"}

// reportEvent creates a warning Event of an Agent. A failure is only logged.
func (r *Registry) reportEvent(ctx context.Context, agent string, uid types.UID, reason, message string) {
	now := time.Now().UTC()
	ref := kind.Ref{Resource: eventResource, Namespace: r.cfg.Namespace, Name: fmt.Sprintf("%s.%x", agent, now.UnixNano())}
	_, err := r.cfg.Client.Create(ctx, ref, map[string]any{"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace},
		"involvedObject": map[string]any{"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind,
			"namespace": r.cfg.Namespace, "name": agent, "uid": uid},
		"type": "Warning", "reason": reason, "message": message, "count": 1, "source": map[string]any{"component": fieldManager},
		"firstTimestamp": now.Format(time.RFC3339), "lastTimestamp": now.Format(time.RFC3339)})
	if err != nil {
		r.cfg.Log.WarnContext(ctx, "Failed to create Event", "agent", agent, "reason", reason, "error", err)
	}
}
