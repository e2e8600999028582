package fleet

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// An Agent is given a younger one's namespace by mistake, and refused. That it is
// the older must not give it the other's Applications when a principal starts.
func TestRegistry_NamespaceOwnerSurvivesRestart(t *testing.T) {
	older := func(a *v1alpha1.Agent) { a.CreationTimestamp = metav1.Unix(999, 0) }
	b := agentRecord{Agent: agent("b", 2, "managed", inNamespace("a"), older)}
	refused := statusInputs{rec: b, invalid: "its namespace a is that of agent a", now: time.Unix(2000, 0)}
	refused.registeredCondition(&b.Status)
	for _, restarted := range []bool{false, true} {
		d := newTestRegistry(t)
		if !restarted {
			d.see(agent("a", 1, "managed"))
		}
		err := d.Apply(t.Context(), reconcile.List{Resource: AgentResource, Revision: 3, Objects: []*kind.Object{parsed(t, b.Agent), parsed(t, agent("a", 1, "managed"))}})
		if err != nil {
			t.Fatal(err)
		}
		d.says("register a managed a")
		if d.InvalidReason("b") == "" {
			t.Errorf("restarted: %v, both have it", restarted)
		}
	}
}
