package fleet

import (
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// An agent of an older release can be in sync. The status says which kinds it does not replicate.
func TestStatus_KindsThatTheAgentDoesNotReplicate(t *testing.T) {
	session := openSession(1)
	session.engine.Scopes = append(session.engine.Scopes, engine.ScopeStatus{Name: kind.SettingsScope, Unshared: true})
	s := look(t, v1alpha1.Status{}, session).status()
	is(t, s, v1alpha1.ConditionSynced, "True", "does not replicate settings")
	if !slices.Equal(s.UnsupportedKinds, []string{"settings"}) || s.LastConfirmed.Unix() != 1400 {
		t.Errorf("%+v", s)
	}

	// The registration excludes the kind.
	excludes := look(t, v1alpha1.Status{}, session)
	excludes.rec.Spec.Kinds = []string{"applications"}
	if got := excludes.status(); got.UnsupportedKinds != nil {
		t.Errorf("%v", got.UnsupportedKinds)
	}

	// The agent is upgraded.
	session.engine.Scopes[3] = engine.ScopeStatus{Name: kind.SettingsScope, InSyncAt: 1_600_000}
	if got := look(t, s, session).status(); got.UnsupportedKinds != nil {
		t.Errorf("after an upgrade %v", got.UnsupportedKinds)
	}
}
