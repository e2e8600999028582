package reconcile

import (
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// What the hub shows of an outage makes no scope different, so a return costs no item and no write. The next status
// from the spoke ends it.
func TestDisconnected_ReturnCostsNothing(t *testing.T) {
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		p := newPair(t, mode)
		p.connect()
		own, r := kind.Hub, ref("w1", "a")
		if mode == kind.Autonomous {
			own, r = kind.Spoke, ref("argocd", "a")
		}
		p.user(own, r, app(r.Namespace, "a", "default", "v1"))
		spoke := func() *kind.Object { return p.stores[kind.Spoke].objects[ref("argocd", "a")] }
		status := func(health string) {
			p.user(kind.Spoke, ref("argocd", "a"), string(set(t, spoke().Raw(), `{"health":{"status":"`+health+`"}}`, "status")))
		}
		health := func() string { return rawjson.Text(p.hubApp().Get("status", "health", "status")) }
		status("Healthy")
		if health() != "Healthy" {
			t.Fatalf("%s: the hub shows %s", mode, p.hubApp().Raw())
		}
		p.disconnect()
		shown := kind.ShowDisconnected(p.hubApp(), kind.Disconnection{Agent: "w1", Since: time.UnixMilli(int64(p.now)), HideHealth: true, Notice: true})
		p.user(kind.Hub, ref("w1", "a"), string(shown.Raw()))
		writes, before := p.writes, spoke().ResourceVersion()
		items := 0
		p.sent = func(m engine.Message) {
			if d, ok := m.(engine.Delta); ok {
				items += len(d.Items)
			}
		}
		p.connect()
		p.waitSeconds(90)
		if p.writes != writes || items != 0 || spoke().ResourceVersion() != before || health() != "Unknown" {
			t.Errorf("%s: %d writes and %d items after the return, health %s", mode, p.writes-writes, items, health())
		}
		status("Degraded")
		if kind.ShowsDisconnected(p.hubApp()) || health() != "Degraded" {
			t.Errorf("%s: after the next status it is %s", mode, p.hubApp().Raw())
		}
	}
}

func TestClock_HubShowsOperationsByItsOwn(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.skew = -600 * engine.Second
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	o := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, o.Raw(), `{"operationState":{"operation":{"sync":{}},"phase":"Succeeded","startedAt":"2026-01-01T00:00:00Z","finishedAt":"2026-01-01T00:00:01Z"}}`, "status")))
	started := func() string {
		return rawjson.Text(p.hubApp().Get("status", "operationState", "startedAt"))
	}
	if got := started(); got != "2026-01-01T00:10:00Z" {
		t.Errorf("started at %s by the hub's clock", got)
	}
	writes := p.writes
	p.disconnect()
	p.skew = 0 // the clock was set
	p.connect()
	p.waitSeconds(90)
	if p.writes != writes || started() != "2026-01-01T00:10:00Z" {
		t.Errorf("%d writes after a reconnect, started at %s", p.writes-writes, started())
	}
}
