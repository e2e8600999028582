package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// approves annotates the hub's Application, as `argocd app confirm-deletion` does.
func (p *pair) approves() {
	p.t.Helper()
	hub := p.hubApp()
	annotations, err := rawjson.Set(hub.Get("metadata", "annotations"), rawjson.Quote(time.UnixMilli(int64(p.now)).UTC().Format(time.RFC3339)), kind.ApprovalAnnotation)
	if err != nil {
		p.t.Fatal(err)
	}
	p.rewrite(kind.Hub, ref("w1", "a"), map[string]any{"metadata.annotations": string(annotations)})
}

// runningSince is the status of an operation that the spoke began.
func runningSince(at string) map[string]any {
	return map[string]any{"operation": `{"initiatedBy":{"automated":true},"sync":{"prune":true}}`,
		"status": fmt.Sprintf(`{"operationState":{"phase":"Running","startedAt":%q,"operation":{"initiatedBy":{"automated":true},"sync":{"prune":true}}}}`, at)}
}

// The clock of the spoke is decades ahead of the hub's.
func TestApproval_ArrivesOnceAlsoLater(t *testing.T) {
	const first, second = "2031-01-01T00:00:00Z", "2031-01-01T00:05:00Z"
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		for _, c := range []struct {
			name     string
			offline  bool   // the user approves while the agent is disconnected
			restart  bool   // the principal restarts before the agent connects
			running  string // what the spoke runs when the agent connects
			approved string
		}{
			{"connected", false, false, first, first},
			{"disconnected", true, false, first, first},
			{"disconnected, then a restart of the principal", true, true, first, first},
			{"disconnected, and the spoke has begun another operation", true, false, second, ""},
		} {
			t.Run(fmt.Sprintf("%s, %s", mode, c.name), func(t *testing.T) {
				p := newPair(t, mode)
				p.connect()
				if mode == kind.Managed {
					p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
				} else {
					p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
				}
				p.rewrite(kind.Spoke, ref("argocd", "a"), runningSince(first))
				if c.offline {
					p.disconnect()
				}
				p.approves()
				if c.restart {
					p.stopHub()
					p.lists(kind.Hub, Resources()...)
				}
				if c.offline {
					p.rewrite(kind.Spoke, ref("argocd", "a"), runningSince(c.running))
					p.connect()
				}
				p.advanceTime(60 * engine.Second)
				spoke := p.stores[kind.Spoke].objects[ref("argocd", "a")]
				if got := spoke.Annotation(kind.ApprovalAnnotation); got != c.approved {
					t.Errorf("the spoke has %q, want %q", got, c.approved)
				}
				if commands, _ := kind.Pending(p.hubApp(), &p.sides[kind.Hub].syncs["w1"].env); !commands.Empty() {
					t.Errorf("it is still pending: %+v", commands)
				}

				// The next operation needs its own approval.
				p.rewrite(kind.Spoke, ref("argocd", "a"), runningSince("2031-01-01T01:00:00Z"))
				p.advanceTime(60 * engine.Second)
				p.reconnect()
				spoke = p.stores[kind.Spoke].objects[ref("argocd", "a")]
				if got := spoke.Annotation(kind.ApprovalAnnotation); got != c.approved {
					t.Errorf("the spoke has %q during the next operation", got)
				}
			})
		}
	}
}

// A status of a later operation arrives before the approval of an earlier one is recorded.
func TestApproval_IsForTheStatusThatTheUserSaw(t *testing.T) {
	const first, second = "2031-01-01T00:00:00Z", "2031-01-01T00:05:00Z"
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	p.rewrite(kind.Spoke, ref("argocd", "a"), runningSince(first))
	l := p.sides[kind.Hub].syncs["w1"]
	seen := p.hubApp()
	p.rewrite(kind.Spoke, ref("argocd", "a"), runningSince(second))
	later, ok := l.scope(kind.StatusScope).kind.Publish(p.stores[kind.Spoke].objects[ref("argocd", "a")], &p.sides[kind.Spoke].syncs[""].env)
	if !ok {
		t.Fatal("no status")
	}
	approved := object(t, string(set(t, seen.Raw(), `{"argocd.argoproj.io/deletion-approved":"1970-01-01T00:16:40Z"}`, "metadata", "annotations")))
	d := l.merge(l.scope(kind.StatusScope), ref("w1", "a"), engine.Apply{Scope: kind.StatusScope, Key: later.Key, Content: later.Content, Extra: later.Extra}, approved)
	if d.object == nil || rawjson.Text(d.object.Get("status"), "operationState", "startedAt") != second {
		t.Fatalf("%+v", d)
	}
	if commands, _ := kind.Pending(d.object, &l.env); commands.Approval.Operation.StartedAt != first {
		t.Errorf("the approval is for %+v", commands.Approval)
	}
}
