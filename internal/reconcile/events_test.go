package reconcile

import (
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestEvents_BothSidesKnowTheApplication(t *testing.T) {
	for _, c := range []struct {
		mode        kind.Mode
		owner       kind.Side
		from, spoke kind.Ref
	}{
		{kind.Managed, kind.Hub, ref("w1", "a"), ref("argocd", "a")},
		{kind.Autonomous, kind.Spoke, ref("argocd", "a"), ref("argocd", "a")},
	} {
		p := newPair(t, c.mode)
		if c.mode == kind.Autonomous {
			p.user(kind.Spoke, projectRef("default"), openProject("default"))
		}
		p.user(c.owner, c.from, app(c.from.Namespace, "a", "default", "v1"))
		p.connect()
		local := p.stores[kind.Spoke].objects[c.spoke]
		key, owner, ok := p.sides[kind.Spoke].EventSubject(local.Namespace(), local.Name(), local.UID())
		if !ok || owner != p.stores[c.owner].objects[c.from].UID() {
			t.Fatalf("%s: %v %q %v", c.mode, key, owner, ok)
		}
		hub := p.sides[kind.Hub]
		if got := hub.EventApplication("w1", p.session, key, owner); got == nil || got.Namespace() != "w1" || got.Name() != "a" {
			t.Errorf("%s: the hub finds %v", c.mode, got)
		}
		for what, got := range map[string]*kind.Object{
			"another agent":          hub.EventApplication("w2", p.session, key, owner),
			"another session":        hub.EventApplication("w1", p.session+1, key, owner),
			"an unknown Application": hub.EventApplication("w1", p.session, engine.Key{Name: "b"}, owner),
			"an invalid name":        hub.EventApplication("w1", p.session, engine.Key{Name: "../a"}, owner),
			"an earlier Application": hub.EventApplication("w1", p.session, key, "earlier"),
			"no UID":                 hub.EventApplication("w1", p.session, key, ""),
		} {
			if got != nil {
				t.Errorf("%s: %s: the hub finds %s", c.mode, what, got.Name())
			}
		}
		if _, _, ok := p.sides[kind.Spoke].EventSubject("argocd", "a", "earlier"); ok {
			t.Errorf("%s: an Event of an earlier Application is sent", c.mode)
		}
		p.disconnect()
		if hub.EventApplication("w1", p.session, key, owner) != nil {
			t.Errorf("%s: an Event is written after the session", c.mode)
		}
	}
}

func TestEvents_NotOfLocalApplications(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "default", "v1"))
	p.connect()
	uid := p.stores[kind.Spoke].objects[ref("argocd", "local")].UID()
	if _, _, ok := p.sides[kind.Spoke].EventSubject("argocd", "local", uid); ok {
		t.Error("an Event of an Application that is not the hub's is sent")
	}
}

func TestEvents_NotOfApplicationsElsewhere(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "missing", "v1")) // not placed: its AppProject does not exist
	p.connect()
	hub := p.sides[kind.Hub]
	if hub.EventApplication("w1", p.session, engine.Key{Name: "a"}, p.hubApp().UID()) != nil {
		t.Error("an Event is written for an Application that is not placed")
	}
}

func TestEvents_NotIfStatusesAreExcluded(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1",
		Server: "https://proxy:9090?agentName=w1", ExcludedScopes: "," + kind.StatusScope + ","}})
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.connect()
	if p.sides[kind.Hub].EventApplication("w1", p.session, engine.Key{Name: "a"}, p.hubApp().UID()) != nil {
		t.Error("an Event is written although statuses are not exchanged")
	}
}

func TestEvents_HubAnnouncesThatItAcceptsThem(t *testing.T) {
	for _, accept := range []bool{false, true} {
		p := newPair(t, kind.Managed)
		p.sides[kind.Hub] = New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub-uid", PrincipalUID: "principal-1", AcceptEvents: accept})
		p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1"}})
		for _, r := range Resources() {
			p.step(kind.Hub, List{Resource: r, Revision: 1})
		}
		announced := false
		p.sent = func(m engine.Message) {
			if w, ok := m.(engine.Welcome); ok {
				announced = slices.Contains(w.Capabilities, engine.AcceptsEvents)
			}
		}
		p.connect()
		if announced != accept {
			t.Errorf("accepts %v, announces %v", accept, announced)
		}
	}
}
