package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func hasCondition(o *kind.Object, condition string) bool {
	return strings.Contains(string(o.Get("status", "conditions")), condition)
}

// withCondition returns an Application of the hub with one of our conditions.
func withCondition(t *testing.T, condition string) *kind.Object {
	t.Helper()
	return object(t, string(set(t, []byte(app("w1", "a", "default", "v1")), `{"conditions":[{"type":"`+condition+`","message":"of another replica"}]}`, "status")))
}

// What another replica of the principal has shown is taken back when it is known to be over, not before.
func TestConditions_OfAnotherPrincipalStayUntilResolved(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.hook = func(side kind.Side, _ Write) bool { return side == kind.Spoke } // the spoke does not answer yet
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	l := p.sides[kind.Hub].syncs["w1"]
	key := engine.Key{Name: "a"}
	for _, condition := range []string{kind.ConditionError, kind.ConditionHeld} {
		o := withCondition(t, condition)
		l.inSync = false
		if l.withConditions(key, o) != o {
			t.Errorf("%s is taken back while the spoke has not answered", condition)
		}
		l.inSync = true
		if hasCondition(l.withConditions(key, o), condition) {
			t.Errorf("%s stays although the scope is proven equal", condition)
		}
	}
}

// notAdopting returns a pair whose spoke refuses to take over its own Application a.
func notAdopting(t *testing.T) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.sides[kind.Spoke].cfg.Policy.AdoptNever = true
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "local"))
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	if !hasCondition(p.hubApp(), "NotAdopted") {
		t.Fatalf("the hub shows %s", p.hubApp().Get("status"))
	}
	return p
}

func TestConditions_NotAdoptedApplicationIsDegraded(t *testing.T) {
	p := notAdopting(t)
	if got := string(p.hubApp().Get("status", "health", "status")); got != `"Degraded"` {
		t.Errorf("health %s", got)
	}
}

// Two replicas of the principal that think differently do not outdo each other.
func TestConditions_AreNotRewrittenImmediately(t *testing.T) {
	p := notAdopting(t)
	p.edit(kind.Hub, ref("w1", "a"), `{}`, "status")
	if hasCondition(p.hubApp(), kind.ConditionError) {
		t.Error("written again at once")
	}
	p.advanceTime(10 * engine.Second)
	if !hasCondition(p.hubApp(), kind.ConditionError) {
		t.Error("not written again")
	}
}

func TestConditions_AgentHoldIsNotShownOnHubApplications(t *testing.T) {
	l := newPair(t, kind.Managed).sides[kind.Hub].syncs["w1"]
	l.heldChanged(engine.Event{Type: engine.HoldStarted, Scope: kind.ApplicationScope, Held: &engine.Held{ID: "x"}})
	if l.heldApplications != nil {
		t.Error("noted as the hub's own")
	}
}

// heldOnHub returns a pair with copies on the hub whose removal is held.
func heldOnHub(t *testing.T) *pair {
	t.Helper()
	p := newPair(t, kind.Autonomous)
	p.revision = 100
	p.connect()
	for _, name := range []string{"a", "b"} {
		p.user(kind.Spoke, ref("argocd", name), app("argocd", name, "default", "v1"))
	}
	p.disconnect()
	delete(p.stores[kind.Spoke].objects, ref("argocd", "a"))
	p.step(kind.Spoke, List{Resource: kind.Applications, Objects: []*kind.Object{p.stores[kind.Spoke].objects[ref("argocd", "b")]}, Revision: 1000})
	p.revision = 50 // the cluster was restored from a backup
	p.connect()
	p.advanceTime(10 * engine.Second)
	if !hasCondition(p.hubApp(), kind.ConditionHeld) {
		t.Fatalf("the hub shows %s", p.hubApp().Get("status"))
	}
	return p
}

func TestConditions_UnchangedAfterSession(t *testing.T) {
	p := heldOnHub(t)
	p.disconnect()
	writes := p.recordHub()
	p.edit(kind.Hub, ref("w1", "a"), `{}`, "status")
	p.advanceTime(20 * engine.Second)
	for _, w := range *writes {
		t.Errorf("the hub writes: %s", w.Reason)
	}
}

func TestConditions_HoldConditionEndsWithHold(t *testing.T) {
	p := heldOnHub(t)
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	p.advanceTime(120 * engine.Second)
	if l := p.sides[kind.Hub].syncs["w1"]; l.heldApplications != nil {
		t.Errorf("%+v is noted as held", l.heldApplications)
	}
	if hasCondition(p.hubApp(), kind.ConditionHeld) {
		t.Error("the condition stays")
	}
}

// A user can remove our annotations while a deletion is held. The condition then stays until the object is ours again.
func TestConditions_HeldIsClearedWhenObjectIsOursAgain(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.waitSeconds(60)
	body := set(t, []byte(app("argocd", "a", "default", "v1")), `{"conditions":[{"type":"AgentHeldWarning","message":"held"}]}`, "status")
	p.user(kind.Spoke, ref("argocd", "a"), string(body))
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.waitSeconds(60)
	if got := string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("status", "conditions")); strings.Contains(got, "AgentHeldWarning") {
		t.Errorf("conditions: %s", got)
	}
}
