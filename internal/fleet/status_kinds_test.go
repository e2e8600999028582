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

func TestStatus_ChildApplicationsThatTheAgentDoesNotSend(t *testing.T) {
	session := openSession(1)
	session.engine.Other = engine.Store{UID: "s", Revision: 7}
	session.engine.Scopes = append(session.engine.Scopes, engine.ScopeStatus{Name: kind.ChildScope, Unshared: true})
	for value, shown := range map[string]bool{"": false, "None": false, "ReadOnly": true} {
		v := look(t, v1alpha1.Status{}, session)
		v.rec.Spec.ChildApplications = value
		s := v.status()
		if got := slices.Equal(s.UnsupportedKinds, []string{"childApplications"}); got != shown {
			t.Errorf("%q: %v", value, s.UnsupportedKinds)
		}
		if (s.Store != nil) != shown { // so that an older store of the workload cluster removes nothing from the hub
			t.Errorf("%q: the store is %v", value, s.Store)
		}
	}
}

func TestRegistration_ChildApplications(t *testing.T) {
	for _, c := range []struct {
		mode, value string
		want, valid bool
	}{
		{"managed", "", false, true}, {"managed", "None", false, true}, {"managed", "ReadOnly", true, true},
		{"autonomous", "ReadOnly", false, true}, {"managed", "Writable", false, false},
	} {
		rec := agentRecord{Agent: agent("a", 1, c.mode)}
		rec.Spec.ChildApplications = c.value
		reg, err := rec.registration(kind.ByNamespace, kind.Limits{})
		if (err == nil) != c.valid || reg.Agent.Children != c.want {
			t.Errorf("%s, %q: %v, %v", c.mode, c.value, reg.Agent.Children, err)
		}
	}
}
