package reconcile

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// cluster is the least that can stand in for an API server: every write takes
// effect at once and is seen at once. The simulator has a better one.
type cluster struct {
	t       *testing.T
	objects map[kind.Ref]*kind.Object
	rev     int
	uids    int
}

// put stores an object with the metadata that an API server gives it.
func (c *cluster) put(ref kind.Ref, body []byte, fresh bool) *kind.Object {
	c.t.Helper()
	c.rev++
	set := func(value string, path ...string) {
		var err error
		if body, err = rawjson.Set(body, rawjson.Quote(value), path...); err != nil {
			c.t.Fatal(err)
		}
	}
	set(fmt.Sprint(c.rev), "metadata", "resourceVersion")
	if fresh {
		c.uids++
		set(fmt.Sprintf("uid-%s-%d", ref.Name, c.uids), "metadata", "uid")
	}
	o, err := kind.Parse(body)
	if err != nil {
		c.t.Fatal(err)
	}
	c.objects[ref] = o
	return o
}

// pair is a hub and a spoke with a wire between them.
type pair struct {
	t        *testing.T
	now      engine.Time
	sides    [2]*Reconciler // by kind.Side
	stores   [2]*cluster
	wires    [2][]engine.Message // to the side
	events   []engine.Event
	session  uint64
	hubStore string      // UID of the hub's store; if empty, h
	mark     uint64      // history mark of both stores
	revision uint64      // of both stores, when they connect; 0: 1
	skew     engine.Time // of the spoke's clock
	writes   int
	hook     func(kind.Side, Write) (done bool)
	reads    []ReadApplications   // of the hub, not answered
	sent     func(engine.Message) // hears of what the hub sends; nil: nothing does
}

func newPair(t *testing.T, mode kind.Mode) *pair {
	t.Helper()
	p := &pair{t: t, now: 1_000_000}
	for i := range p.stores {
		p.stores[i] = &cluster{t: t, objects: map[kind.Ref]*kind.Object{}, rev: 1} // what the first List says
	}
	p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1"})
	p.sides[kind.Spoke] = New(Config{Side: kind.Spoke, ArgoNamespace: "argocd", ClusterUID: "spoke-uid", Mode: mode, Mapping: kind.ByNamespace})
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: mode, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	for side := range p.sides {
		for _, r := range Resources() {
			list := List{Resource: r, Revision: 1}
			if r == kind.AppProjects && mode == kind.Managed && kind.Side(side) == kind.Hub {
				list.Objects = p.openProjects("default")
			}
			p.step(kind.Side(side), list)
		}
	}
	return p
}

// openProjects stores AppProjects on the hub that permit everything.
func (p *pair) openProjects(names ...string) []*kind.Object {
	var out []*kind.Object
	for _, name := range names {
		r := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: name}
		c := p.stores[kind.Hub]
		c.rev--
		out = append(out, c.put(r, []byte(openProject(name)), true))
	}
	return out
}

func openProject(name string) string {
	return fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":%q,"namespace":"argocd"},"spec":{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}]}}`, name)
}

func (p *pair) connect() {
	p.session++
	revision := max(1, p.revision)
	p.step(kind.Hub, FromPeer{Agent: "w1", ClockSkew: p.skew, Input: engine.Connected{Session: p.session, Store: engine.Store{UID: cmp.Or(p.hubStore, "h"), Revision: revision, Mark: p.markOf(kind.Hub)}}})
	p.step(kind.Spoke, FromPeer{Input: engine.Connected{Session: p.session, Epoch: engine.Epoch{Incarnation: p.session}, Store: engine.Store{UID: "s", Revision: revision, Mark: p.markOf(kind.Spoke)}}})
	p.settle()
}

func (p *pair) markOf(side kind.Side) engine.HistoryMark {
	return engine.HistoryMark{Record: []string{"agent-uid", "lease-uid"}[side], Number: p.mark}
}

// settle carries messages until there are none.
func (p *pair) settle() {
	for range 10_000 {
		moved := false
		for side := range p.wires {
			if len(p.wires[side]) == 0 {
				continue
			}
			m := p.wires[side][0]
			p.wires[side] = p.wires[side][1:]
			agent := "w1"
			if kind.Side(side) == kind.Spoke {
				agent = ""
			}
			p.step(kind.Side(side), FromPeer{Agent: agent, Input: engine.Received{Session: p.session, Message: m}})
			moved = true
		}
		if !moved {
			return
		}
	}
	p.t.Fatal("the two sides do not come to rest")
}

func (p *pair) step(side kind.Side, in Input) {
	effects := append([]Effect(nil), p.sides[side].Step(p.now, in)...)
	for _, e := range effects {
		switch e := e.(type) {
		case ToPeer:
			if s, ok := e.Effect.(engine.Send); ok {
				p.wires[1-side] = append(p.wires[1-side], s.Message)
				if p.sent != nil && side == kind.Hub {
					p.sent(s.Message)
				}
			}
		case Report:
			p.events = append(p.events, e.Event)
		case Write:
			p.write(side, e)
		case ReadApplications:
			p.reads = append(p.reads, e)
		case Relist:
			in := List{Resource: e.Resource, Revision: uint64(p.stores[side].rev)}
			for ref, o := range p.stores[side].objects {
				if ref.Resource == e.Resource {
					in.Objects = append(in.Objects, o)
				}
			}
			p.step(side, in)
		case Read:
			if o := p.stores[side].objects[e.Ref]; o != nil {
				p.step(side, Observed{Resource: e.Ref.Resource, Object: o, Read: true, ID: e.ID})
			} else {
				p.step(side, Deleted{Ref: e.Ref, UID: e.UID, Read: true, ID: e.ID})
			}
		}
	}
}

func (p *pair) write(side kind.Side, w Write) {
	p.writes++
	if p.hook != nil && p.hook(side, w) {
		return
	}
	c := p.stores[side]
	local := c.objects[w.Ref]
	switch w.Verb {
	case Create:
		o := c.put(w.Ref, w.Object.Raw(), true)
		p.step(side, WriteResult{ID: w.ID, Object: o})
	case Update:
		if local == nil || local.ResourceVersion() != w.Object.ResourceVersion() {
			p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Stale: true}})
			return
		}
		o := c.put(w.Ref, w.Object.Raw(), false)
		p.step(side, WriteResult{ID: w.ID, Object: o})
	case Delete:
		delete(c.objects, w.Ref)
		p.step(side, WriteResult{ID: w.ID})
		p.step(side, Deleted{Ref: w.Ref, UID: local.UID()})
	}
}

// user changes an object by hand.
func (p *pair) user(side kind.Side, ref kind.Ref, body string) {
	old := p.stores[side].objects[ref]
	o := p.stores[side].put(ref, []byte(body), old == nil)
	if old != nil {
		b, err := rawjson.Set(o.Raw(), rawjson.Quote(old.UID()), "metadata", "uid")
		if err != nil {
			p.t.Fatal(err)
		}
		p.stores[side].rev--
		o = p.stores[side].put(ref, b, false)
	}
	p.step(side, Observed{Resource: ref.Resource, Object: o})
	p.settle()
}

func app(ns, name, project, revision string) string {
	return fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":%q,"namespace":%q},"spec":{"project":%q,"destination":{"name":"w1","namespace":"default"},"source":{"repoURL":"https://git/x","targetRevision":%q}}}`,
		name, ns, project, revision)
}

func ref(ns, name string) kind.Ref {
	return kind.Ref{Resource: kind.Applications, Namespace: ns, Name: name}
}

func TestReconciler_ManagedApplicationAndStatus(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	copied := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	if copied == nil {
		t.Fatal("the spoke has no copy")
	}
	if got := string(copied.Get("spec", "destination")); !strings.Contains(got, "in-cluster") {
		t.Fatalf("destination on the spoke: %s", got)
	}

	body, err := rawjson.Set(copied.Raw(), []byte(`{"sync":{"status":"Synced"},"reconciledAt":"2026-01-01T00:00:00Z"}`), "status")
	if err != nil {
		t.Fatal(err)
	}
	p.user(kind.Spoke, ref("argocd", "a"), string(body))
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if got := string(hub.Get("status", "sync", "status")); got != `"Synced"` {
		t.Fatalf("status on the hub: %s", hub.Raw())
	}

	before := p.writes
	p.now += 61_000
	for side := range p.sides {
		p.step(kind.Side(side), Tick{})
	}
	p.settle()
	if p.writes != before {
		t.Fatalf("%d writes at rest", p.writes-before)
	}
}

func TestReconciler_CorrectsLocalEdit(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	copied := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	body, err := rawjson.Set(copied.Raw(), rawjson.Quote("hacked"), "spec", "source", "targetRevision")
	if err != nil {
		t.Fatal(err)
	}
	p.user(kind.Spoke, ref("argocd", "a"), string(body))
	if got := string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("spec", "source", "targetRevision")); got != `"v1"` {
		t.Fatalf("the edit stays: %s", got)
	}
}

func TestReconciler_DeletesApplicationDeletedOnHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	old := p.stores[kind.Hub].objects[ref("w1", "a")]
	delete(p.stores[kind.Hub].objects, ref("w1", "a"))
	p.step(kind.Hub, Deleted{Ref: ref("w1", "a"), UID: old.UID()})
	p.settle()
	if p.stores[kind.Spoke].objects[ref("argocd", "a")] != nil {
		t.Fatal("it is still on the spoke")
	}
}

func TestReconciler_MirrorsAutonomousApplication(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.connect()
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	copied := p.stores[kind.Hub].objects[ref("w1", "a")]
	if copied == nil {
		t.Fatal("the hub has no copy")
	}
	if got := string(copied.Get("spec", "project")); got != `"w1-default"` {
		t.Fatalf("project on the hub: %s", got)
	}
}

func TestReconciler_RunsSyncOnSpoke(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	body, err := rawjson.Set(hub.Raw(), []byte(`{"sync":{"revision":"abc"},"initiatedBy":{"username":"admin"}}`), "operation")
	if err != nil {
		t.Fatal(err)
	}
	p.user(kind.Hub, ref("w1", "a"), string(body))
	op := p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("operation")
	if !strings.Contains(string(op), "abc") {
		t.Fatalf("operation on the spoke: %s", op)
	}
}

func TestReconciler_RestoresDeletedReplicaAndSyncs(t *testing.T) {
	for _, resync := range []bool{false, true} {
		p := newPair(t, kind.Managed)
		p.sides[kind.Spoke].cfg.Policy.ResyncRecreated = resync
		p.connect()
		p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
		old := p.stores[kind.Spoke].objects[ref("argocd", "a")]
		delete(p.stores[kind.Spoke].objects, ref("argocd", "a"))
		p.step(kind.Spoke, Deleted{Ref: ref("argocd", "a"), UID: old.UID()})
		p.settle()
		back := p.stores[kind.Spoke].objects[ref("argocd", "a")]
		if back == nil {
			t.Fatal("it was not put back")
		}
		if got := back.Get("operation") != nil; got != resync {
			t.Errorf("policy %v: operation %s", resync, back.Get("operation"))
		}
	}
}
