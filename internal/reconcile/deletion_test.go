package reconcile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

const (
	resourcesFinalizer = `resources-finalizer.argocd.argoproj.io`
	foreignFinalizer   = `example.com/keep`
)

var hookFinalizers = []string{
	"pre-delete-finalizer.argocd.argoproj.io", "pre-delete-finalizer.argocd.argoproj.io/cleanup",
	"post-delete-finalizer.argocd.argoproj.io", "post-delete-finalizer.argocd.argoproj.io/cleanup",
}

func quoted(list ...string) string { return fmt.Sprintf(`["%s"]`, strings.Join(list, `","`)) }

// deleting returns an Application that is being deleted with its resources.
func deleting(t *testing.T, body string) string {
	t.Helper()
	b := set(t, []byte(body), quoted(resourcesFinalizer), "metadata", "finalizers")
	return string(set(t, b, `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp"))
}

// recordSpoke keeps what is written on the spoke.
func (p *pair) recordSpoke() *[]Write {
	var writes []Write
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Spoke {
			writes = append(writes, w)
		}
		return false
	}
	return &writes
}

// pairWithApplications returns a connected hub and agent with Applications.
func pairWithApplications(t *testing.T, names ...string) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.connect()
	for _, name := range names {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	return p
}

func (p *pair) disconnect() {
	p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Disconnected{Session: p.session}})
	p.step(kind.Spoke, FromPeer{Input: engine.Disconnected{Session: p.session}})
	p.wires = [2][]engine.Message{}
	p.revision = max(p.revision, uint64(p.stores[kind.Hub].rev), uint64(p.stores[kind.Spoke].rev)) + 100 // both stores go on
}

// confirmAll confirms what is held, as a user who looks at it would.
func (p *pair) confirmAll() {
	for _, f := range slices.Clone(p.events) {
		if f.Type == engine.HoldStarted && f.Held.ID != "" {
			p.step(kind.Hub, Confirm{Agent: "w1", ID: f.Held.ID})
			p.settle()
		}
	}
}

// removeOnHub deletes an object of the hub, with a watch event or without one.
func (p *pair) removeOnHub(ref kind.Ref, watched bool) {
	hub := p.stores[kind.Hub]
	old := hub.objects[ref]
	delete(hub.objects, ref)
	hub.rev++
	if watched {
		p.step(kind.Hub, Deleted{Ref: ref, UID: old.UID(), Revision: uint64(hub.rev)})
	} else {
		list := List{Resource: ref.Resource, Revision: uint64(hub.rev)}
		for r, o := range hub.objects {
			if r.Resource == ref.Resource {
				list.Objects = append(list.Objects, o)
			}
		}
		p.step(kind.Hub, list)
	}
	p.settle()
}

func TestCascade_FirstSessionKeepsUnrelatedApplication(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "local"))
	p.user(kind.Hub, ref("w1", "a"), deleting(t, app("w1", "a", "default", "v1")))
	before := string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Raw())
	writes := p.recordSpoke()
	p.connect()
	p.waitSeconds(120)
	*writes = slices.DeleteFunc(*writes, func(w Write) bool { return w.Ref.Resource == kind.AppProjects })
	if len(*writes) > 0 {
		t.Errorf("the spoke writes %s %s (%s)", (*writes)[0].Verb, (*writes)[0].Ref.Name, (*writes)[0].Reason)
	}
	if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; o == nil || string(o.Raw()) != before {
		t.Error("the unrelated Application was changed or deleted")
	}
	if hub := p.stores[kind.Hub].objects[ref("w1", "a")]; hub != nil && len(hub.Finalizers()) > 0 {
		t.Errorf("the hub's Application still waits, finalizers %v", hub.Finalizers())
	}
}

func TestCascade_OfAnotherSourceKeepsReplica(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	for _, name := range []string{"a", "b", "c", "d"} {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	before := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.disconnect()
	delete(p.stores[kind.Hub].objects, ref("w1", "a"))
	p.user(kind.Hub, ref("w1", "a"), deleting(t, app("w1", "a", "default", "v0"))) // as a backup had it
	p.revision = 1                                                                 // and the hub's store is that backup
	writes := p.recordSpoke()
	p.connect()
	p.confirmAll()
	p.waitSeconds(120)
	for _, w := range *writes {
		if w.Verb != Update || w.Reason != "update conditions" {
			t.Errorf("the spoke writes %s %s (%s), finalizers %v", w.Verb, w.Ref.Name, w.Reason, w.Object.Finalizers())
		}
	}
	after := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	if after == nil || !bytes.Equal(after.Get("spec"), before.Get("spec")) || len(after.Finalizers()) > 0 {
		t.Fatal("the replica of the other Application was changed or deleted")
	}
	if !strings.Contains(string(after.Get("status", "conditions")), kind.ConditionHeld) {
		t.Error("no condition says that it waits for a confirmation")
	}
	if hub := p.stores[kind.Hub].objects[ref("w1", "a")]; hub != nil && len(hub.Finalizers()) > 0 {
		t.Errorf("the hub's Application still waits, finalizers %v", hub.Finalizers())
	}
}

func TestCascade_DeletesReplica(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	writes := p.recordSpoke()
	uid := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
	hub := set(t, []byte(deleting(t, app("w1", "a", "default", "v1"))), `"`+uid+`"`, "metadata", "uid")
	p.user(kind.Hub, ref("w1", "a"), string(hub))
	if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
		t.Fatal("the replica is still there")
	}
	last := (*writes)[len(*writes)-1]
	if last.Verb != Delete || !kind.HasCascade(last.Object) {
		t.Errorf("last write: %s with finalizers %v", last.Verb, last.Object.Finalizers())
	}
}

// A user changes the spec and deletes while the agent is disconnected. A webhook
// on the spoke rejects the new spec. The deletion does not need it.
func TestCascade_DoesNotWriteSpec(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.disconnect()
	uid := p.stores[kind.Hub].objects[ref("w1", "a")].UID()
	hub := set(t, []byte(deleting(t, app("w1", "a", "default", "rejected"))), `"`+uid+`"`, "metadata", "uid")
	p.user(kind.Hub, ref("w1", "a"), string(hub))
	p.hook = func(side kind.Side, w Write) bool {
		if side == kind.Spoke && w.Verb == Update && strings.Contains(string(w.Object.Raw()), `"rejected"`) {
			p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Invalid, Message: "the webhook rejects it"}})
			return true
		}
		return false
	}
	p.connect()
	p.waitSeconds(10)
	if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
		t.Error("the replica is still there")
	}
	if hub := p.stores[kind.Hub].objects[ref("w1", "a")]; hub != nil && len(hub.Finalizers()) > 0 {
		t.Errorf("the hub's Application still waits, finalizers %v", hub.Finalizers())
	}
}

func TestDeleteHooks_RunOnlyIfUserDeleted(t *testing.T) {
	edit := func(p *pair, value string, path ...string) {
		hub := p.stores[kind.Hub].objects[ref("w1", "a")]
		p.user(kind.Hub, ref("w1", "a"), string(set(p.t, hub.Raw(), value, path...)))
	}
	tests := []struct {
		name   string
		hooks  bool
		remove func(*pair)
	}{
		{"deleted by a user", true, func(p *pair) { p.removeOnHub(ref("w1", "a"), true) }},
		{"absent from a list", false, func(p *pair) { p.removeOnHub(ref("w1", "a"), false) }},
		{"labelled to be ignored", false, func(p *pair) { edit(p, `{"`+kind.IgnoreSync+`":"true"}`, "metadata", "labels") }},
		{"recreated under its name", false, func(p *pair) {
			p.sides[kind.Spoke].cfg.Policy.Recreate = true
			p.disconnect()
			delete(p.stores[kind.Hub].objects, ref("w1", "a"))
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
			p.connect()
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			for _, name := range []string{"a", "b", "c", "d"} {
				p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
			}
			all := append([]string{foreignFinalizer, resourcesFinalizer, resourcesFinalizer + "/background"}, hookFinalizers...)
			var deleted *kind.Object
			p.hook = func(side kind.Side, w Write) bool {
				if side == kind.Spoke && w.Verb == Delete {
					deleted = w.Object
				}
				return false
			}
			p.user(kind.Hub, ref("w1", "a"), string(set(t, p.stores[kind.Hub].objects[ref("w1", "a")].Raw(), quoted(resourcesFinalizer, resourcesFinalizer+"/background"), "metadata", "finalizers")))
			replica := p.stores[kind.Spoke].objects[ref("argocd", "a")]
			p.user(kind.Spoke, ref("argocd", "a"), string(set(t, replica.Raw(), quoted(all...), "metadata", "finalizers")))
			test.remove(p)
			p.waitSeconds(120)
			if deleted == nil {
				t.Fatal("nothing was deleted on the spoke")
			}
			want := []string{foreignFinalizer}
			if test.hooks {
				want = append(want, hookFinalizers...)
			}
			if got := deleted.Finalizers(); !slices.Equal(got, want) {
				t.Errorf("deleted with finalizers %v, want %v", got, want)
			}
		})
	}
}

// Whose ConfigMap it is: the agent's if it carries our ownership and was not adopted. Then it goes with the hub's. If it
// existed before, it stays, but the hub's keys must no longer be trusted.
func TestRemoval_GPGKeys(t *testing.T) {
	keys := kind.Ref{Resource: kind.ConfigMaps, Namespace: "argocd", Name: "argocd-gpg-keys-cm"}
	body := func(data string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"argocd-gpg-keys-cm","namespace":"argocd","labels":{"made":"here"}}` + data + `}`
	}
	for name, before := range map[string]string{"created by the agent": "", "empty before": body(""), "with keys before": body(`,"data":{"BBBB":"two"},"binaryData":{"C":"AA=="}`)} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, kind.Managed)
			if before != "" {
				p.user(kind.Spoke, keys, before)
			}
			p.connect()
			p.user(kind.Hub, keys, body(`,"data":{"AAAA":"one"}`))
			if got := string(p.stores[kind.Spoke].objects[keys].Get("data")); got != `{"AAAA":"one"}` {
				t.Fatalf("keys on the spoke: %s", got)
			}
			p.removeOnHub(keys, true)
			o := p.stores[kind.Spoke].objects[keys]
			switch {
			case before == "" && o != nil:
				t.Errorf("the agent created it, and it is still there: %s", o.Raw())
			case before != "" && o == nil:
				t.Error("it existed before, and was deleted")
			case before != "" && (o.Get("data") != nil || o.Get("binaryData") != nil || o.Annotation(kind.SourceUID) != "" || len(o.Get("metadata", "labels")) == 0):
				t.Errorf("it existed before; now it is %s", o.Raw())
			}
			writes := p.writes
			if p.waitSeconds(120); p.writes != writes {
				t.Errorf("%d writes at rest", p.writes-writes)
			}
		})
	}
}

// A user deleted an Application without its resources. Its hooks take long, and the application controller writes the terminating
// object in the meantime. The hub no longer has it: that is neither held nor a reason to remove the remaining hooks.
func TestDeleteHooks_RunToTheirEnd(t *testing.T) {
	for _, others := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d other Applications", others), func(t *testing.T) {
			p := newPair(t, kind.Managed)
			p.connect()
			for i := range others {
				name := fmt.Sprintf("other-%d", i)
				p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
			}
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
			withFinalizers := func(list []string) {
				o := p.stores[kind.Spoke].objects[ref("argocd", "a")]
				p.user(kind.Spoke, ref("argocd", "a"), string(set(t, o.Raw(), quoted(list...), "metadata", "finalizers")))
			}
			withFinalizers(hookFinalizers)
			p.hook = p.terminates
			p.removeOnHub(ref("w1", "a"), true)
			p.waitSeconds(5)
			withFinalizers(hookFinalizers[2:]) // the hooks before the deletion have run
			p.disconnect()
			p.connect()
			p.waitSeconds(150)
			if got := p.stores[kind.Spoke].objects[ref("argocd", "a")].Finalizers(); !slices.Equal(got, hookFinalizers[2:]) {
				t.Errorf("finalizers %v, want %v", got, hookFinalizers[2:])
			}
			for _, e := range p.events {
				if e.Type == engine.HoldStarted {
					t.Errorf("held: %s", e.Held.Reason)
				}
			}

			replica := p.stores[kind.Spoke].objects[ref("argocd", "a")]
			delete(p.stores[kind.Spoke].objects, ref("argocd", "a"))
			p.stores[kind.Spoke].rev++
			p.step(kind.Spoke, Deleted{Ref: ref("argocd", "a"), UID: replica.UID(), Revision: uint64(p.stores[kind.Spoke].rev)})
			p.settle()
			if n := len(p.sides[kind.Spoke].syncs[""].ending); n > 0 {
				t.Errorf("%d notes about the deleted object are left", n)
			}
		})
	}
}

// The agent restarts while delete hooks run.
func TestDeleteHooks_RunToTheirEndAfterARestart(t *testing.T) {
	for _, others := range [][]string{nil, {"b", "c", "d"}} {
		t.Run(fmt.Sprintf("%d other Applications", len(others)), func(t *testing.T) {
			p := pairWithApplications(t, append(others, "a")...)
			p.user(kind.Spoke, ref("argocd", "a"), string(set(t, p.replica().Raw(), quoted(hookFinalizers...), "metadata", "finalizers")))
			p.hook = p.terminates
			received, stale := uint64(p.stores[kind.Hub].rev), maps.Clone(p.stores[kind.Hub].objects)
			p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
			p.removeOnHub(ref("w1", "a"), true)
			p.disconnect()
			q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
			q.connect()
			q.waitSeconds(150)
			if got := q.replica().Finalizers(); !slices.Equal(got, hookFinalizers) {
				t.Errorf("finalizers %v, want %v", got, hookFinalizers)
			}
			for _, e := range q.events {
				if e.Type == engine.HoldStarted {
					t.Errorf("held: %s", e.Held.Reason)
				}
			}
			before := string(q.replica().Raw())
			r := q.failOver(received, stale) // which has not received the last changes
			if got := string(r.replica().Raw()); got != before {
				t.Errorf("a promoted hub has written the terminating replica:\n%s\nbefore:\n%s", got, before)
			}
		})
	}
}

// A hub that has received the deletion is promoted while delete hooks run. The agent restarts before or after that.
func TestDeleteHooks_RunToTheirEndAfterAPromotion(t *testing.T) {
	restart := func(p *pair) *pair {
		p.disconnect()
		q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
		q.hubStore = p.hubStore
		q.connect()
		return q
	}
	promote := func(p *pair) *pair {
		q := p.promote(2, uint64(p.stores[kind.Hub].rev))
		q.connect()
		return q
	}
	for name, steps := range map[string][]func(*pair) *pair{"promotion, restart": {promote, restart}, "restart, promotion": {restart, promote}} {
		t.Run(name, func(t *testing.T) {
			p := pairWithApplications(t, "b", "c", "d", "a")
			setHooks := func(hooks []string) {
				p.user(kind.Spoke, ref("argocd", "a"), string(set(t, p.replica().Raw(), quoted(hooks...), "metadata", "finalizers")))
			}
			setHooks(hookFinalizers)
			p.hook = p.terminates
			p.removeOnHub(ref("w1", "a"), true)
			for _, step := range steps {
				p = step(p)
				p.waitSeconds(70)
			}
			setHooks(hookFinalizers[2:]) // the first ones have run
			p.waitSeconds(150)
			if got := p.replica().Finalizers(); !slices.Equal(got, hookFinalizers[2:]) {
				t.Errorf("finalizers %v, want %v", got, hookFinalizers[2:])
			}
			for _, e := range p.events {
				if e.Type == engine.HoldStarted {
					t.Errorf("held: %s", e.Held.Reason)
				}
			}
		})
	}
}

// The agent restarts while an Application is deleted with its resources. The hub keeps it until they are deleted.
func TestCascade_HubWaitsAfterARestartOfTheAgent(t *testing.T) {
	p := pairWithApplications(t, "a", "b", "c")
	all := append([]string{resourcesFinalizer}, hookFinalizers...)
	p.user(kind.Hub, ref("w1", "a"), string(set(t, p.stores[kind.Hub].objects[ref("w1", "a")].Raw(), quoted(resourcesFinalizer), "metadata", "finalizers")))
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, p.replica().Raw(), quoted(all...), "metadata", "finalizers")))
	p.hook = p.terminates
	p.user(kind.Hub, ref("w1", "a"), string(set(t, p.stores[kind.Hub].objects[ref("w1", "a")].Raw(), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp")))
	p.waitSeconds(10)
	if !p.replica().IsDeleting() {
		t.Fatal("the replica is not deleted")
	}
	p.disconnect()
	q := p.restartWith(p.sides[kind.Spoke].Memory(), uint64(p.stores[kind.Hub].rev), p.hubObjects()...)
	q.connect()
	q.waitSeconds(150)
	if hub := q.stores[kind.Hub].objects[ref("w1", "a")]; hub == nil || !slices.Equal(hub.Finalizers(), []string{resourcesFinalizer}) {
		t.Errorf("the hub does not wait: %v", hub)
	}
	if got := q.replica().Finalizers(); !slices.Equal(got, all) {
		t.Errorf("finalizers %v, want %v", got, all)
	}
}

// terminates stores the deletion of an object of the spoke whose finalizers keep it.
func (p *pair) terminates(side kind.Side, w Write) bool {
	if side != kind.Spoke || w.Verb != Delete {
		return false
	}
	o := p.stores[side].put(w.Ref, set(p.t, p.stores[side].objects[w.Ref].Raw(), `"2026-01-01T00:00:00Z"`, "metadata", "deletionTimestamp"), false)
	p.step(side, WriteResult{ID: w.ID, Object: o})
	p.step(side, Observed{Resource: w.Ref.Resource, Object: o})
	return true
}
