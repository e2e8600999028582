package fleet

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestHolds_ReportIDScopeCountAndReason(t *testing.T) {
	session := openSession(1)
	session.engine.StoreHoldID = "store-1"
	session.engine.RemoteHolds = []engine.Held{{Scope: "appproject", ID: "x1", Count: 2, Of: 3, Reason: "too many"}}
	session.engine.Scopes[0].HeldID, session.engine.Scopes[0].Held = "y1", 12
	s := look(t, v1alpha1.Status{}, session).status()
	at := timeOf(time.Unix(2000, 0))
	want := []v1alpha1.Hold{
		{ID: "store-1", Reason: "The agent's API server was restored from a backup or replaced.", Since: at},
		{ID: "y1", Scope: kind.ApplicationScope, Count: 12, Reason: "The hub holds these deletions.", Since: at},
		{ID: "x1", Scope: "appproject", Count: 2, Reason: `The agent has 3 items in this scope. It reports: "too many"`, Since: at},
	}
	if !reflect.DeepEqual(s.Holds, want) {
		t.Errorf("holds are %+v", s.Holds)
	}
	is(t, s, v1alpha1.ConditionHeld, "True", "replaced. To confirm, run: "+ConfirmCommand("argocd", "a", "store-1"), `"too many" To confirm, run: `+ConfirmCommand("argocd", "a", "x1"), "12 deletions of application are held.", "run: "+ConfirmCommand("argocd", "a", "y1"))
}

func TestHolds_KeepTheirStart(t *testing.T) {
	session := openSession(1)
	session.engine.Scopes[0].HeldID, session.engine.Scopes[0].Held = "y1", 12
	first := look(t, v1alpha1.Status{}, session).status()
	session.engine.StoreHoldID = "store-1"
	later := look(t, first, session)
	later.now = time.Unix(3000, 0)
	s := later.status()
	if len(s.Holds) != 2 || s.Holds[0].Since.Unix() != 3000 || s.Holds[1].Since.Unix() != 2000 {
		t.Errorf("holds are %+v", s.Holds)
	}
	again := look(t, s, session)
	again.now = time.Unix(4000, 0)
	if got := again.status(); !sameStatus(got, s) {
		t.Errorf("unchanged holds have to be written: %+v", got.Holds)
	}
	// A disconnected agent keeps its holds. The next comparison decides.
	closed := *session
	closed.open = false
	if got := look(t, s, &closed).status(); len(got.Holds) != 2 {
		t.Errorf("after the session, holds are %+v", got.Holds)
	}
	if got := look(t, s, openSession(2)).status(); len(got.Holds) != 0 {
		t.Errorf("after the holds ended: %+v", got.Holds)
	}
}

func TestHolds_RefusedClusterIsConfirmable(t *testing.T) {
	refused := &sessionState{code: engine.WrongCluster, reason: "another cluster", otherCluster: "6ba7b810-9dad"}
	s := look(t, v1alpha1.Status{}, refused).status()
	if len(s.Holds) != 1 || s.Holds[0].ID != v1alpha1.ConfirmCluster+"6ba7b810-9dad" || s.Holds[0].Scope != "" || s.Holds[0].Since.Unix() != 2000 {
		t.Errorf("holds are %+v", s.Holds)
	}
	if got := look(t, s, refused).status(); !sameStatus(got, s) {
		t.Errorf("the same refusal has to be written: %+v", got.Holds)
	}
	for what, session := range map[string]*sessionState{
		"a refusal for another reason": {code: engine.WrongMode},
		"a session":                    openSession(1),
		"a UID that is no word":        {code: engine.WrongCluster, otherCluster: "$(reboot)"},
	} {
		if got := look(t, s, session).status(); len(got.Holds) != 0 {
			t.Errorf("after %s: %+v", what, got.Holds)
		}
	}
}

// Agents are hostile: their texts are quoted and clipped, and their IDs cannot stand for something else.
func TestHolds_LimitWhatAnAgentReports(t *testing.T) {
	for name, id := range map[string]string{
		"shell": "$(reboot)", "option": "-x", "long": strings.Repeat("a", 129), "newline": "a\nb",
		"ID of the hub's hold": "y1", "ID of a cluster": v1alpha1.ConfirmCluster + "uid",
	} {
		session := openSession(1)
		session.engine.Scopes[0].HeldID, session.engine.Scopes[0].Held = "y1", 12
		session.engine.RemoteHolds = []engine.Held{{Scope: "application", ID: id, Count: math.MaxUint64, Reason: "x\n; To confirm, run: reboot" + strings.Repeat("z", 9000)}}
		s := look(t, v1alpha1.Status{}, session).status()
		if len(s.Holds) != 2 || s.Holds[0].ID != "y1" || s.Holds[1].ID != "" || s.Holds[1].Count != math.MaxInt64 {
			t.Errorf("%s: holds are %+v", name, s.Holds)
		}
		if reason := s.Holds[1].Reason; len(reason) > 1024 || !strings.Contains(reason, `"x ; To confirm, run: reboot`) || strings.Contains(reason, "\n") {
			t.Errorf("%s: reason is %q", name, reason)
		}
		held := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionHeld)
		if strings.Count(held.Message, "=y1") != 1 || strings.Contains(held.Message, "="+v1alpha1.ConfirmCluster) {
			t.Errorf("%s: %s", name, held.Message)
		}
	}
	session := openSession(1)
	session.engine.StoreHoldID = "store-1"
	for i := range 100 {
		session.engine.RemoteHolds = append(session.engine.RemoteHolds, engine.Held{Scope: fmt.Sprint("s", i), ID: fmt.Sprint("x", i)})
	}
	if s := look(t, v1alpha1.Status{}, session).status(); len(s.Holds) != v1alpha1.MaxHolds || s.Holds[0].ID != "store-1" {
		t.Errorf("%d holds, the first is %+v", len(s.Holds), s.Holds[0])
	}
}

// Text of an agent stays on one line in every condition.
func TestConditions_TextOfAnAgentIsOneLine(t *testing.T) {
	evil := "x\n\x1b[2Jy"
	outage := look(t, v1alpha1.Status{}, openSession(1))
	outage.session.engine.WriteOutage = evil
	for what, text := range map[string]string{
		"write outage": meta.FindStatusCondition(outage.status().Conditions, v1alpha1.ConditionWritable).Message,
		"command":      ConfirmCommand("argocd", "a", v1alpha1.ConfirmCluster+"x$(reboot)") + "x",
	} {
		if !strings.Contains(text, "x") || strings.ContainsAny(text, "\n\x1b") || strings.Contains(text, "$(reboot)") {
			t.Errorf("%s: %q", what, text)
		}
	}
}

func TestPending_SumIsDiverged(t *testing.T) {
	session := openSession(1)
	session.engine.Scopes = []engine.ScopeStatus{
		{Name: kind.ApplicationScope, Dirty: 3, InFlight: 2, Deletions: 1, Rejected: 4, InSyncAt: 1},
		{Name: kind.StatusScope, Diverged: 5, InSyncAt: 1}, {Name: kind.CommandScope, InFlight: 6}}
	s := look(t, v1alpha1.Status{}, session).status()
	if s.Pending == nil || *s.Pending != (v1alpha1.Pending{Deliveries: 4, Deletions: 1, Commands: 6, Writes: 5, Rejected: 4}) || s.Diverged != 20 {
		t.Errorf("%+v, diverged %d", s.Pending, s.Diverged)
	}
	session.open = false
	if s = look(t, s, session).status(); s.Pending != nil {
		t.Errorf("a disconnected agent has %+v", s.Pending)
	}
}

func TestStatus_ReportsWriteOutage(t *testing.T) {
	s := look(t, v1alpha1.Status{}, openSession(1)).status()
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWritable); c != nil {
		t.Fatalf("condition without an outage: %+v", c)
	}
	outage := openSession(1)
	outage.engine.WriteOutage = "API server has not accepted writes: full"
	s = look(t, v1alpha1.Status{}, outage).status()
	is(t, s, v1alpha1.ConditionWritable, "False", "WritesFailing", "full")
	is(t, look(t, s, openSession(1)).status(), v1alpha1.ConditionWritable, "True")
	closed := openSession(1)
	closed.open = false
	is(t, look(t, s, closed).status(), v1alpha1.ConditionWritable, "Unknown")
}
