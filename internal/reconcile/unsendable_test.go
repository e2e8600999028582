package reconcile

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// nested is JSON that is nested so deep.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
}

// restart replaces a node by a new process, which lists everything.
func (p *pair) restart(side kind.Side, mode kind.Mode) {
	p.disconnect()
	p.sides[side] = New(p.sides[side].cfg)
	if side == kind.Hub {
		p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: mode, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	}
	for _, r := range Resources() {
		in := List{Resource: r, Revision: uint64(p.stores[side].rev)}
		for rf, o := range p.stores[side].objects {
			if rf.Resource == r {
				in.Objects = append(in.Objects, o)
			}
		}
		p.step(side, in)
	}
	p.connect()
}

// What cannot be sent is not gone: the other side keeps what it has, in this
// session and in others, and the hub's Application says why.
func TestUnsendable_ApplicationStaysUnchanged(t *testing.T) {
	for _, c := range []struct {
		mode           kind.Mode
		owner, replica kind.Side
		original, copy kind.Ref
	}{
		{kind.Managed, kind.Hub, kind.Spoke, ref("w1", "a"), ref("argocd", "a")},
		{kind.Autonomous, kind.Spoke, kind.Hub, ref("argocd", "a"), ref("w1", "a")},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			p := newPair(t, c.mode)
			p.connect()
			p.user(c.owner, c.original, app(c.original.Namespace, "a", "default", "v1"))
			before := p.stores[c.replica].objects[c.copy]
			stays := func(when string) {
				t.Helper()
				after := p.stores[c.replica].objects[c.copy]
				if after == nil || after.UID() != before.UID() || !bytes.Equal(after.Get("spec"), before.Get("spec")) {
					t.Fatalf("%s: the other side has %v", when, after)
				}
				if !strings.Contains(p.hubConditions(), "nested deeper than") {
					t.Errorf("%s: the hub shows %q", when, p.hubConditions())
				}
			}
			p.change(c.owner, c.original, `{"valuesObject":`+nested(rawjson.MaxDepth)+`}`, "spec", "source", "helm")
			stays("at once")
			p.waitSeconds(600)
			stays("after a while")
			p.disconnect()
			p.connect()
			p.waitSeconds(600)
			stays("in another session")
			p.restart(kind.Hub, c.mode)
			p.waitSeconds(600)
			stays("with another process of the hub")
			p.restart(kind.Spoke, c.mode)
			p.waitSeconds(600)
			stays("with another process of the agent")
			for _, side := range []kind.Side{kind.Hub, kind.Spoke} {
				status, _ := p.sides[side].Status([]string{"w1", ""}[side])
				for _, s := range status.Scopes {
					if s.Name == kind.ApplicationScope && (s.InSyncAt == 0 || s.Held > 0) {
						t.Errorf("side %d: the scope is not in sync: %+v", side, s)
					}
				}
			}

			p.change(c.owner, c.original, `{"values":"x"}`, "spec", "source", "helm")
			p.waitSeconds(120)
			if got := string(p.stores[c.replica].objects[c.copy].Get("spec", "source", "helm", "values")); got != `"x"` {
				t.Errorf("when it can be sent again, the other side has %s", got)
			}
			if p.hubConditions() != "" {
				t.Errorf("the hub still shows %s", p.hubConditions())
			}
			if l := p.sides[c.owner].syncs[[]string{"w1", ""}[c.owner]]; len(l.unsendable) > 0 {
				t.Errorf("%v is kept", l.unsendable)
			}
		})
	}
}

// Taken away on purpose, it goes.
func TestUnsendable_ApplicationIsDeletedWithSource(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	r := ref("w1", "a")
	p.user(kind.Hub, r, app("w1", "a", "default", "v1"))
	p.change(kind.Hub, r, nested(rawjson.MaxDepth), "spec", "source", "helm")
	uid := p.stores[kind.Hub].objects[r].UID()
	delete(p.stores[kind.Hub].objects, r)
	p.step(kind.Hub, Deleted{Ref: r, UID: uid})
	p.settle()
	if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
		t.Error("it is still on the spoke")
	}
	if n := len(p.sides[kind.Hub].syncs["w1"].unsendable); n > 0 {
		t.Errorf("%d notes are kept", n)
	}
}

// Its deletion with its resources does not need what cannot be sent.
func TestUnsendable_ApplicationIsDeletedWithResources(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	r := ref("w1", "a")
	p.user(kind.Hub, r, app("w1", "a", "default", "v1"))
	p.change(kind.Hub, r, nested(rawjson.MaxDepth), "spec", "source", "helm")
	writes := p.recordSpoke()
	p.user(kind.Hub, r, deleting(t, string(p.stores[kind.Hub].objects[r].Raw())))
	p.waitSeconds(60)
	last := (*writes)[len(*writes)-1]
	if last.Verb != Delete || !kind.HasCascade(last.Object) {
		t.Errorf("the last write on the spoke is %s with finalizers %v", last.Verb, last.Object.Finalizers())
	}
	if hub := p.stores[kind.Hub].objects[r]; kind.HasCascade(hub) {
		t.Errorf("the hub's still waits: %v", hub.Finalizers())
	}
}

func TestUnsendable_NothingIsCreatedOrAdopted(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Spoke, ref("argocd", "b"), app("argocd", "b", "default", "theirs"))
	theirs := string(p.stores[kind.Spoke].objects[ref("argocd", "b")].Raw())
	for _, name := range []string{"a", "b"} {
		p.user(kind.Hub, ref("w1", name), string(set(t, []byte(app("w1", name, "default", "v1")), nested(rawjson.MaxDepth), "spec", "source", "helm")))
	}
	p.waitSeconds(120)
	if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; o != nil {
		t.Errorf("created: %s", o.Raw())
	}
	if got := string(p.stores[kind.Spoke].objects[ref("argocd", "b")].Raw()); got != theirs {
		t.Errorf("changed: %s", got)
	}
}

func TestUnsendable_ProjectStaysUnchanged(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	r := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "p1"}
	p.user(kind.Hub, r, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"p1","namespace":"argocd"},"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","server":"*","namespace":"*"}]}}`)
	before := p.stores[kind.Spoke].objects[r]
	if before == nil {
		t.Fatal("no project on the spoke")
	}
	p.events = nil
	p.change(kind.Hub, r, nested(rawjson.MaxDepth), "spec", "future")
	p.waitSeconds(120)
	p.restart(kind.Hub, kind.Managed)
	p.waitSeconds(120)
	if after := p.stores[kind.Spoke].objects[r]; after == nil || !bytes.Equal(after.Get("spec"), before.Get("spec")) {
		t.Errorf("the spoke has %v", after)
	}
	reported := false
	for _, f := range p.events {
		reported = reported || f.Type == engine.Rejected && f.Scope == kind.AppProjectScope && strings.Contains(f.Message, "nested deeper than")
	}
	if !reported {
		t.Error("it was not reported")
	}
}

// A status that is nested too deep arrives without what is: the rest is news.
func TestUnsendable_DeeplyNestedStatusArrives(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.change(kind.Spoke, ref("argocd", "a"), `{"health":{"status":"Healthy"},"sync":{"status":"Synced","comparedTo":{"source":{"helm":{"valuesObject":`+nested(rawjson.MaxDepth)+`}}}}}`, "status")
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if got := string(hub.Get("status", "sync", "status")); got != `"Synced"` {
		t.Errorf("the hub has %s", hub.Get("status"))
	}
	writes := p.writes
	p.waitSeconds(600)
	if p.writes != writes {
		t.Errorf("%d writes at rest", p.writes-writes)
	}
}

func TestUnsendable_OperationIsRejected(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.failRejectionWrites(1, nil)
	p.requestOperation(`{"sync":{"source":{"helm":{"valuesObject":` + nested(rawjson.MaxDepth) + `}}}}`)
	p.waitSeconds(60)
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if hub.Get("operation") != nil || !strings.Contains(string(hub.Get("status", "operationState", "message")), "nested deeper than") {
		t.Errorf("operation %.60s, state %.200s", hub.Get("operation"), hub.Get("status", "operationState"))
	}
	// The next one is carried out.
	p.requestOperation(`{"sync":{"revision":"abc"}}`)
	if op := string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("operation")); !strings.Contains(op, "abc") {
		t.Errorf("operation on the spoke: %s", op)
	}
}
