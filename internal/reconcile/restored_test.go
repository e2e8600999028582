package reconcile

import (
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// loseHub replaces the hub by one with an empty store. Both have the same identity.
func (p *pair) loseHub() {
	p.disconnect()
	p.events = nil
	p.hubStore, p.revision = "h2", 1
	p.stores[kind.Hub] = &cluster{t: p.t, objects: map[kind.Ref]*kind.Object{}, rev: 1, uids: 1000}
	p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-2", PrincipalUID: "principal-1"})
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	for _, r := range Resources() {
		p.step(kind.Hub, List{Resource: r, Revision: 1})
	}
}

// restored returns an object that replaces the one with a UID.
func restored(t *testing.T, body, uid string) string {
	t.Helper()
	b := set(t, []byte(body), string(rawjson.Quote(uid)), "metadata", "annotations", kind.SourceUID)
	return string(set(t, b, `"principal-1"`, "metadata", "annotations", kind.PrincipalUID))
}

// A hub is lost, and its objects are created again. They have other UIDs. The replicas on the workload cluster are not
// written, before and after the confirmation of the new store.
func TestRestored_ReplicasAreNotWritten(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	body := string(set(t, []byte(app("w1", "a", "default", "v1")), quoted(resourcesFinalizer), "metadata", "finalizers"))
	p.user(kind.Hub, ref("w1", "a"), body)
	uids := map[kind.Ref]string{}
	for _, r := range []kind.Ref{ref("w1", "a"), projectRef("default")} {
		uids[r] = p.stores[kind.Hub].objects[r].UID()
	}
	p.loseHub()
	writes := p.recordSpoke()
	p.user(kind.Hub, projectRef("default"), restored(t, openProject("default"), uids[projectRef("default")]))
	p.user(kind.Hub, ref("w1", "a"), restored(t, body, uids[ref("w1", "a")]))
	p.connect()
	p.waitSeconds(120)
	if !slices.ContainsFunc(p.events, func(e engine.Event) bool {
		return e.Type == engine.HoldStarted && e.Scope == "" && e.Held.Cause == engine.CauseStore
	}) {
		t.Fatal("the new store is not held")
	}
	p.confirmAll()
	p.waitSeconds(120)
	for _, w := range *writes {
		t.Errorf("%v of %s on the spoke: %s", w.Verb, w.Ref.Name, w.Object.Raw())
	}
	local := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	key, owner, ok := p.sides[kind.Spoke].EventSubject(local.Namespace(), local.Name(), local.UID())
	if !ok || p.sides[kind.Hub].EventApplication("w1", p.session, key, owner) == nil {
		t.Errorf("the hub does not find the Application of an Event: %v %q %v", key, owner, ok)
	}

	// A command reaches the replica, and a deletion on the hub is one of its source object: its delete hooks run.
	p.edit(kind.Hub, ref("w1", "a"), `{"sync":{"revision":"v1"},"initiatedBy":{"username":"x"}}`, "operation")
	p.waitSeconds(20)
	if p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("operation") == nil {
		t.Error("the sync did not reach the workload cluster")
	}
	var removed []string
	p.sent = func(m engine.Message) {
		if d, ok := m.(engine.Delta); ok && d.Scope == kind.ApplicationScope {
			for _, item := range d.Items {
				removed = append(removed, item.DeletedUID)
			}
		}
	}
	p.removeOnHub(ref("w1", "a"), true)
	if !slices.Equal(removed, []string{uids[ref("w1", "a")]}) {
		t.Errorf("deleted UIDs %q, want %q", removed, uids[ref("w1", "a")])
	}
	if o := p.stores[kind.Spoke].objects[ref("argocd", "a")]; o != nil {
		t.Errorf("the replica stays: %s", o.Raw())
	}
}

// A restored AppProject counts as the hub's own.
func TestRestored_ProjectPermitsRepositories(t *testing.T) {
	p := newPair(t, kind.Managed)
	for name, agent := range map[string]string{"open": "", "other": "w1"} {
		body := set(t, []byte(restored(t, openProject(name), "lost")), `["https://git/ours"]`, "spec", "sourceRepos")
		if agent != "" {
			body = set(t, body, string(rawjson.Quote(agent)), "metadata", "annotations", kind.AgentNameAnnotation)
		}
		p.user(kind.Hub, projectRef(name), string(body))
	}
	p.connect()
	found := repositoriesOf(p.sides[kind.Hub], "w1")
	if !slices.Equal(found["open"], []string{"https://git/ours"}) || found["other"] != nil {
		t.Errorf("found %v", found)
	}
}

// A new hub has another identity until it takes that of the lost one. Until a user confirms its store, it does not adopt the
// objects of the lost hub.
func TestUntrustedStore_ObjectsOfOtherHubAreNotAdopted(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.loseHub()
	cfg := p.sides[kind.Hub].cfg
	cfg.PrincipalUID = "principal-2"
	p.sides[kind.Hub] = New(cfg)
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1"}})
	for _, r := range Resources() {
		p.step(kind.Hub, List{Resource: r, Revision: 1})
	}
	writes := p.recordSpoke()
	p.user(kind.Hub, projectRef("default"), openProject("default"))
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v2"))
	p.connect()
	p.waitSeconds(120)
	for _, w := range *writes {
		t.Errorf("%v of %s on the spoke: %s", w.Verb, w.Ref.Name, w.Object.Raw())
	}
	p.confirmAll()
	p.waitSeconds(120)
	o := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	if got := string(o.Get("spec", "source", "targetRevision")); got != `"v2"` || o.Annotation(kind.PrincipalUID) != "principal-2" {
		t.Errorf("after the confirmation: %s", o.Raw())
	}
}
