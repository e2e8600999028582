package fleet

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// look is how this replica sees an agent, with its status as it is stored.
func look(t *testing.T, stored v1alpha1.Status, session *sessionState) statusInputs {
	t.Helper()
	b, err := json.Marshal(stored) // as the API server gives it back
	if err != nil {
		t.Fatal(err)
	}
	rec := agentRecord{Agent: agent("a", 1, "managed")}
	rec.Generation = 3
	if err := json.Unmarshal(b, &rec.Status); err != nil {
		t.Fatal(err)
	}
	return statusInputs{rec: rec, active: true, session: session, replica: "here", now: time.Unix(2000, 5)}
}

func openSession(attempt uint64) *sessionState {
	return &sessionState{open: true, since: time.Unix(1000, 7), epoch: engine.Epoch{Incarnation: 5, Attempt: attempt}, cluster: "uid", version: "v1", fingerprint: "F", expires: time.Unix(9000, 0),
		engine: &engine.Status{Connected: true, Protocol: 1, Scopes: []engine.ScopeStatus{
			{Name: kind.ApplicationScope, Items: 4, InSyncAt: 1_500_000}, {Name: kind.StatusScope, InSyncAt: 1_400_000}, {Name: kind.CommandScope}}}}
}

func is(t *testing.T, s v1alpha1.Status, condition, status string, texts ...string) {
	t.Helper()
	c := meta.FindStatusCondition(s.Conditions, condition)
	if c == nil || string(c.Status) != status {
		t.Fatalf("condition %s is %+v, want %s", condition, c, status)
	}
	for _, text := range texts {
		if !strings.Contains(c.Reason+": "+c.Message, text) {
			t.Errorf("condition %s says %s: %s, want %q", condition, c.Reason, c.Message, text)
		}
	}
}

func TestStatus_OpenSession(t *testing.T) {
	s := look(t, v1alpha1.Status{}, openSession(1)).status()
	if !s.Connected || s.Since.Unix() != 1000 || s.Principal != "here" || *s.Session != (v1alpha1.Session{Incarnation: 5, Attempt: 1}) || s.ClusterUID != "uid" || s.Version != "v1" ||
		s.Protocol != "1" || s.Applications != 4 || s.Diverged != 0 || s.LastConfirmed.Unix() != 1400 || s.Certificate.Fingerprint != "F" || s.Certificate.Expires.Unix() != 9000 ||
		s.ObservedGeneration != 3 || s.Store != nil || s.OldestUnacked != nil {
		t.Errorf("%+v", s)
	}
	is(t, s, v1alpha1.ConditionRegistered, "True")
	is(t, s, v1alpha1.ConditionConnected, "True")
	is(t, s, v1alpha1.ConditionSynced, "True")
	is(t, s, v1alpha1.ConditionHeld, "False")
	// Looked at again, it is the same: nothing has to be written.
	again := look(t, s, openSession(1))
	again.now = time.Unix(5000, 0)
	if got := again.status(); !sameStatus(got, s) {
		t.Errorf("it differs from itself:\n%+v\n%+v", got, s)
	}
	// Time goes on: that can wait.
	later := openSession(1)
	later.engine.Scopes[1].InSyncAt = 1_450_000
	if got := look(t, s, later).status(); sameStatus(got, s) || !sameButForTime(got, s) {
		t.Error("what only grows older is no news, and is not lost")
	}
	// Something differs: that cannot.
	later.engine.Scopes[0].Dirty = 2
	later.engine.Scopes[0].OldestAt = 1_700_000
	got := look(t, s, later).status()
	if sameButForTime(got, s) || got.Diverged != 2 || got.OldestUnacked.Unix() != 1700 {
		t.Errorf("%+v", got)
	}
	is(t, got, v1alpha1.ConditionSynced, "False", "Diverged")
}

// Agents choose IDs that become part of commands which users paste into a shell.
func TestConfirmCommand_RejectsShellCharacters(t *testing.T) {
	confirm := func(id string) string { return ConfirmCommand("argocd", "a", id) }
	for _, id := range []string{"5f2c9b0e7d1a4c33", "cluster-6ba7b810-9dad-11d1-80b4-00c04fd430c8"} {
		if got := confirm(id); !strings.HasSuffix(got, "="+id) {
			t.Errorf("%s: %s", id, got)
		}
	}
	for _, id := range []string{"x;reboot", "$(reboot)", "`reboot`", "x|sh", "x'", `x"`, "x\ny", "x&", "x>f", "x y"} {
		if got := confirm(id); strings.Contains(got, "kubectl") || strings.Contains(got, id) {
			t.Errorf("%s: %s", id, got)
		}
	}
}

func TestStatus_ClockSkew(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	for clock, want := range map[int64]int64{1_800_000_000_000: 0, 1_799_999_999_001: 0, 1_800_000_090_500: 90, 1_799_999_400_000: -600, 1: -1_799_999_999, math.MaxInt64: 9_223_372_036} {
		if got := SkewOf(engine.Hello{ClockMillis: clock}, now); got == nil || *got != want {
			t.Errorf("%d: %v, want %d", clock, got, want)
		}
	}
	for _, clock := range []int64{0, -5, math.MinInt64} {
		if got := SkewOf(engine.Hello{ClockMillis: clock}, now); got != nil {
			t.Errorf("%d: %d", clock, *got)
		}
	}
	session := openSession(1)
	session.skew = SkewOf(engine.Hello{ClockMillis: 1_800_000_090_500}, now)
	s := look(t, v1alpha1.Status{}, session).status()
	if s.ClockSkewSeconds == nil || *s.ClockSkewSeconds != 90 {
		t.Errorf("%v", s.ClockSkewSeconds)
	}
	if got := look(t, s, session).status(); !sameStatus(got, s) {
		t.Error("looked at again, it has to be written")
	}
	session.open = false
	if s = look(t, s, session).status(); s.ClockSkewSeconds == nil {
		t.Error("what was known is lost with the session")
	}
}

func TestStatus_ComparisonWaitsForTheHub(t *testing.T) {
	waiting := openSession(1)
	waiting.engine.Scopes[0].InSyncAt, waiting.engine.Scopes[0].Unread = 0, "cannot read applications: the API server does not respond"
	s := look(t, v1alpha1.Status{}, waiting).status()
	is(t, s, v1alpha1.ConditionSynced, "Unknown", "The hub cannot read applications: the API server does not respond.")
}

func TestStatus_ClosedSession(t *testing.T) {
	s := look(t, v1alpha1.Status{}, openSession(1)).status()
	closed := openSession(1)
	closed.open, closed.since, closed.code, closed.reason = false, time.Unix(1800, 0), engine.Unavailable, "connection lost"
	closed.engine.Scopes[1].InSyncAt = 1_490_000 // after the last write
	s = look(t, s, closed).status()
	if s.Connected || s.Since.Unix() != 1800 || s.Applications != 4 || s.LastConfirmed.Unix() != 1490 || s.Principal != "here" {
		t.Errorf("%+v", s)
	}
	is(t, s, v1alpha1.ConditionConnected, "False", "Unavailable: connection lost")
	is(t, s, v1alpha1.ConditionSynced, "Unknown")
	v := look(t, s, closed)
	v.rec.Spec.Suspended, v.denyReason = true, "this agent is suspended"
	is(t, v.status(), v1alpha1.ConditionConnected, "False", "Suspended: this agent is suspended")
	v.rec.Spec.Suspended, v.rec.Annotations, v.denyReason = false, map[string]string{v1alpha1.ReusedAnnotation: "x"}, reusedDenial("w1")
	is(t, v.status(), v1alpha1.ConditionConnected, "False", "CertificateReused: agent w1 is suspended on the hub, because two clients have its key")
}

func TestStatus_OnlySessionHolderWrites(t *testing.T) {
	there := look(t, v1alpha1.Status{}, openSession(2))
	there.replica = "there"
	theirs := there.status()
	closed := openSession(1)
	closed.open = false
	for what, session := range map[string]*sessionState{
		"it was never here":             nil,
		"it was here before":            closed,
		"it seems to be here still":     openSession(1),
		"it was refused here":           {code: engine.Superseded, reason: "older"},
		"its session here is not known": {},
	} {
		if got := look(t, theirs, session).status(); !sameStatus(got, theirs) {
			t.Errorf("%s, and a newer session is there: it writes\n%+v\nover\n%+v", what, got, theirs)
		}
	}
	// The newer one wins.
	if got := look(t, theirs, openSession(3)).status(); got.Principal != "here" || got.Session.Attempt != 3 {
		t.Errorf("%+v", got)
	}
	// Of its own sessions a replica knows which is the last, even after a clock change of the agent.
	mineBefore := look(t, v1alpha1.Status{}, openSession(9)).status()
	if got := look(t, mineBefore, openSession(4)).status(); got.Session.Attempt != 4 {
		t.Errorf("%+v", got)
	}
	// One that is no more cannot object.
	v := look(t, theirs, nil)
	v.principalLost = true
	if got := v.status(); got.Connected || got.Since.Unix() != 2000 {
		t.Errorf("%+v", got)
	}
	is(t, v.status(), v1alpha1.ConditionConnected, "False", "PrincipalLost")
	// After a restart under the same name, agents are given time to come back.
	mine := look(t, v1alpha1.Status{}, openSession(2)).status()
	if got := look(t, mine, nil).status(); !sameStatus(got, mine) {
		t.Errorf("%+v", got)
	}
}

func TestStatus_ReportsRefusalReason(t *testing.T) {
	v := look(t, v1alpha1.Status{}, &sessionState{code: engine.WrongCluster, reason: "another cluster; confirm it"})
	is(t, v.status(), v1alpha1.ConditionConnected, "False", "WrongCluster: another cluster; confirm it")
	v = look(t, v1alpha1.Status{}, nil)
	v.active = false
	is(t, v.status(), v1alpha1.ConditionRegistered, "False", "ModeNotSet")
	is(t, v.status(), v1alpha1.ConditionConnected, "False", "NotConnected")
	v.invalid = "its namespace is taken"
	is(t, v.status(), v1alpha1.ConditionRegistered, "False", "its namespace is taken")
}

func TestStatus_LimitsAgentText(t *testing.T) {
	session := openSession(1)
	session.epoch.Incarnation, session.version, session.cluster = 1<<63+5, strings.Repeat("ü", 200), strings.Repeat("x", 500)
	s := look(t, v1alpha1.Status{}, session).status()
	b, err := json.Marshal(statusPatch(s))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"incarnation":9223372036854775807`) || len(s.Version) > 128 || len(s.ClusterUID) > 128 {
		t.Errorf("%s", b)
	}
	if got := look(t, s, session).status(); !sameStatus(got, s) {
		t.Error("it differs from itself")
	}
}

func TestStatusPatch_RemovesEmptyFields(t *testing.T) {
	p := statusPatch(v1alpha1.Status{ClusterUID: "x"}, "clusterUID", "store")
	if store, named := p["store"]; len(p) != 2 || p["clusterUID"] != "x" || !named || store != nil {
		t.Errorf("%v", p)
	}
	if p := statusPatch(v1alpha1.Status{}); len(p) < 10 || p["oldestUnacked"] != nil || p["connected"] != false {
		t.Errorf("%v", p)
	}
}

func TestSameStatus_ComparesStoredForm(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678, time.FixedZone("somewhere", 3600))
	stamp := func(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }
	full := func(t time.Time) v1alpha1.Status {
		skew := int64(7)
		return v1alpha1.Status{ObservedGeneration: 1, ClockSkewSeconds: &skew, Connected: true, Since: stamp(t), Principal: "p", Session: &v1alpha1.Session{Incarnation: 1}, ClusterUID: "c",
			Store: &v1alpha1.Store{UID: "s", Revision: 1}, HistoryMark: 1, HistoryRecord: "r", Version: "v", UnsupportedKinds: []string{"k"}, Upgrade: &v1alpha1.UpgradeStatus{ID: "u"}, Facts: []v1alpha1.Fact{{Key: "k", Value: "v"}}, Protocol: "1", Applications: 1, Diverged: 1, OldestUnacked: stamp(t), LastConfirmed: stamp(t),
			Holds: []v1alpha1.Hold{{ID: "h", Since: stamp(t)}}, Pending: &v1alpha1.Pending{Commands: 1},
			Certificate: &v1alpha1.Certificate{Fingerprint: "f", Expires: stamp(t)}, Conditions: []metav1.Condition{{Type: "Synced", Status: "True", LastTransitionTime: *stamp(t)}}}
	}
	b, err := json.Marshal(full(at))
	if err != nil {
		t.Fatal(err)
	}
	var stored v1alpha1.Status
	if err := json.Unmarshal(b, &stored); err != nil {
		t.Fatal(err)
	}
	if !sameStatus(full(at), stored) {
		t.Error("the stored status differs")
	}
	if !sameStatus(v1alpha1.Status{Conditions: []metav1.Condition{}}, v1alpha1.Status{}) {
		t.Error("nothing is not the same as nothing")
	}
	later := reflect.ValueOf(full(at.Add(time.Second)))
	zero := reflect.ValueOf(v1alpha1.Status{})
	for i := range later.NumField() {
		for n, other := range []reflect.Value{later, zero} {
			changed := full(at)
			field := reflect.ValueOf(&changed).Elem().Field(i)
			field.Set(other.Field(i))
			same := reflect.DeepEqual(statusPatch(changed), statusPatch(full(at)))
			if got := sameStatus(changed, full(at)); got != same {
				t.Errorf("%s: same is %v", later.Type().Field(i).Name, got)
			}
			if same && n == 1 {
				t.Errorf("%s is not set in this test", later.Type().Field(i).Name)
			}
		}
	}
}

func BenchmarkSameStatus(b *testing.B) {
	at := timeOf(time.Now())
	s := v1alpha1.Status{Connected: true, Since: at, LastConfirmed: at, Certificate: &v1alpha1.Certificate{Expires: at}, Conditions: make([]metav1.Condition, 4)}
	b.ReportAllocs()
	for b.Loop() {
		if !sameStatus(s, s) {
			b.Fatal("it is not the same as itself")
		}
	}
}

// Deletions wait while the store of an autonomous agent is not trusted. That
// knowledge has to outlive the replica that has found out.
func TestStatus_RecordsUntrustedStore(t *testing.T) {
	autonomous := func(stored v1alpha1.Status, session *sessionState) statusInputs {
		v := look(t, stored, session)
		v.rec.Spec.Mode = string(kind.Autonomous)
		return v
	}
	session := openSession(1)
	session.engine.Other = engine.Store{UID: "s", Revision: 500}
	trusted := autonomous(v1alpha1.Status{Store: &v1alpha1.Store{UID: "s", Revision: 100}}, session).status()
	session.engine.StoreHoldID = "store-1"
	found := autonomous(trusted, session).status()
	if found.Store == nil || *found.Store != (v1alpha1.Store{UID: "s", Revision: 500, Untrusted: true}) {
		t.Fatalf("recorded is %+v", found.Store)
	}
	if sameButForTime(found, trusted) {
		t.Error("that can wait, it seems")
	}
	next := agentRecord{Agent: agent("a", 1, "autonomous")}
	next.Status = found
	reg, err := next.registration(kind.ByNamespace, kind.Limits{})
	if err != nil || !reg.StoreUntrusted || reg.KnownStore != (engine.Store{UID: "s", Revision: 500}) {
		t.Errorf("the next replica knows %+v, %v", reg.Register, err)
	}

	// It may be gone before that was written.
	closed := *session
	closed.open = false
	if got := autonomous(trusted, &closed).status(); got.Store == nil || !got.Store.Untrusted {
		t.Errorf("after the end of the session, recorded is %+v", got.Store)
	}
	// What an older session has found is no news once there was a newer one.
	newer := trusted
	newer.Connected, newer.Principal, newer.Session = false, "there", &v1alpha1.Session{Incarnation: 5, Attempt: 9}
	if got := autonomous(newer, &closed).status(); got.Store == nil || got.Store.Untrusted {
		t.Errorf("an older session has said %+v", got.Store)
	}

	session.engine.StoreHoldID, session.engine.Other = "", engine.Store{UID: "s", Revision: 300}
	accepted := autonomous(found, session).status()
	if accepted.Store == nil || *accepted.Store != (v1alpha1.Store{UID: "s", Revision: 300}) || sameButForTime(accepted, found) {
		t.Errorf("accepted, recorded is %+v", accepted.Store)
	}
	patch, _ := statusPatch(accepted, "store")["store"].(map[string]any)
	if said, ok := patch["untrusted"].(bool); !ok || said {
		t.Errorf("the patch %v leaves it untrusted", patch)
	}
}

func TestRegistration_ConfirmedClusterIsTrusted(t *testing.T) {
	rec := agentRecord{Agent: agent("a", 1, "autonomous", ofCluster("old"))}
	rec.Status.Store = &v1alpha1.Store{UID: "s", Revision: 500, Untrusted: true}
	rec.Annotations = map[string]string{v1alpha1.ConfirmAnnotation: v1alpha1.ConfirmCluster + "new"}
	if reg, err := rec.registration(kind.ByNamespace, kind.Limits{}); err != nil || reg.StoreUntrusted || reg.KnownStore != (engine.Store{}) {
		t.Errorf("%+v, %v", reg.Register, err)
	}
}

func TestStatus_Limits(t *testing.T) {
	session := openSession(1)
	s := look(t, v1alpha1.Status{}, session).status()
	if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWithinLimits) != nil {
		t.Error("there is a condition without a reached limit")
	}
	session.engine.Scopes[0].Limit = "50000 items"
	s = look(t, s, session).status()
	is(t, s, v1alpha1.ConditionWithinLimits, "False", "LimitReached", "application (50000 items)", "spec.limits")
	session.engine.Scopes[0].Limit = ""
	s = look(t, s, session).status()
	is(t, s, v1alpha1.ConditionWithinLimits, "True")
}

func TestRegistration_Limits(t *testing.T) {
	defaults := kind.Limits{Items: 100, Bytes: 200}
	for _, tc := range []struct {
		own  v1alpha1.Limits
		want kind.Limits
	}{
		{v1alpha1.Limits{}, defaults},
		{v1alpha1.Limits{Items: 5}, kind.Limits{Items: 5, Bytes: 200}},
		{v1alpha1.Limits{Items: 5, Mebibytes: 3}, kind.Limits{Items: 5, Bytes: 3 << 20}},
	} {
		rec := agentRecord{Agent: agent("a", 1, "autonomous")}
		rec.Spec.Limits = tc.own
		if reg, err := rec.registration(kind.ByNamespace, defaults); err != nil || reg.Agent.Limits != tc.want {
			t.Errorf("%+v: %+v, %v", tc.own, reg.Agent.Limits, err)
		}
	}
	for _, wrong := range []v1alpha1.Limits{{Items: -1}, {Mebibytes: -1}, {Items: maxItems + 1}, {Mebibytes: 1 << 62}} {
		rec := agentRecord{Agent: agent("a", 1, "autonomous")}
		rec.Spec.Limits = wrong
		if _, err := rec.registration(kind.ByNamespace, defaults); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}
