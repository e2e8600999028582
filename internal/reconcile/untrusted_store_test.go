package reconcile

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// A hub is restored from a backup. Until a user confirms that, what it has for
// objects that exist on the spoke is not written: it may be older, and automated
// sync with prune would delete resources. New objects are written.
func TestUntrustedStore_HubUpdatesWaitForConfirmation(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.revision = 100
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	backup := p.stores[kind.Hub].objects[ref("w1", "a")]
	p.user(kind.Hub, ref("w1", "a"), string(set(t, backup.Raw(), `"v2"`, "spec", "source", "targetRevision")))
	p.disconnect()

	// The backup had v1. A report has moved its revision since.
	p.user(kind.Hub, ref("w1", "a"), string(set(t, backup.Raw(), `{"health":{"status":"Healthy"}}`, "status")))
	p.user(kind.Hub, ref("w1", "new"), app("w1", "new", "default", "v1"))
	p.revision = 50
	p.events = nil
	p.connect()
	p.waitSeconds(600)
	revision := func(name string) string {
		o := p.stores[kind.Spoke].objects[ref("argocd", name)]
		if o == nil {
			return "missing"
		}
		return string(o.Get("spec", "source", "targetRevision"))
	}
	if got := revision("a"); got != `"v2"` {
		t.Errorf("before the confirmation the spoke has %s, want v2", got)
	}
	if got := revision("new"); got != `"v1"` {
		t.Errorf("the new Application is %s on the spoke", got)
	}
	p.confirmAll()
	p.waitSeconds(10)
	if got := revision("a"); got != `"v1"` {
		t.Errorf("after the confirmation the spoke has %s, want v1", got)
	}
}

// The same for an autonomous agent whose cluster is restored: the hub's replica
// keeps what it has, and the status still arrives.
func TestUntrustedStore_AutonomousUpdatesWaitForConfirmation(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.revision = 100
	p.connect()
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	backup := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, backup.Raw(), `"v2"`, "spec", "source", "targetRevision")))
	p.disconnect()
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, backup.Raw(), `{"sync":{"status":"Synced"}}`, "status")))
	p.revision = 50
	p.events = nil
	p.connect()
	p.waitSeconds(600)
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if got := string(hub.Get("spec", "source", "targetRevision")); got != `"v2"` {
		t.Errorf("before the confirmation the hub has %s, want v2", got)
	}
	if got := string(hub.Get("status", "sync", "status")); got != `"Synced"` {
		t.Errorf("status on the hub: %s", got)
	}
	p.confirmAll()
	p.waitSeconds(10)
	hub = p.stores[kind.Hub].objects[ref("w1", "a")]
	if got := string(hub.Get("spec", "source", "targetRevision")); got != `"v1"` {
		t.Errorf("after the confirmation the hub has %s, want v1", got)
	}
	for _, f := range p.events {
		if f.Type == engine.Refused {
			t.Errorf("the session was refused: %s", f.Message)
		}
	}
}
