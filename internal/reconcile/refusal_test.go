package reconcile

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// rejectingPair has one Application, whose commands the spoke refuses.
func rejectingPair(t *testing.T) *pair {
	t.Helper()
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	c := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, c.Raw(), `{"`+kind.IgnoreSync+`":"true"}`, "metadata", "labels")))
	return p
}

// failRejectionWrites has the next writes of a refusal fail, and then calls after. It returns the number of failed writes.
func (p *pair) failRejectionWrites(fails int, after func()) *int {
	failed := new(int)
	p.hook = func(side kind.Side, w Write) bool {
		if side != kind.Hub || !strings.Contains(w.Reason, "fail rejected command") || fails == 0 {
			return false
		}
		fails--
		*failed++
		p.step(side, WriteResult{ID: w.ID, Failure: &Failure{Code: engine.Unavailable, Message: "etcd leader changed"}})
		if after != nil {
			after()
		}
		return true
	}
	return failed
}

func (p *pair) requestOperation(operation string) {
	p.t.Helper()
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	p.user(kind.Hub, ref("w1", "a"), string(set(p.t, hub.Raw(), operation, "operation")))
}

func TestRejectedCommand_IsShownAfterFailedWrite(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails int
		after func(p *pair)
	}{
		{"the write succeeds", 0, nil},
		{"one write fails", 1, nil},
		{"many writes fail", 20, nil},
		{"one write fails, and the session ends", 1, func(p *pair) { p.disconnect() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := rejectingPair(t)
			failed := p.failRejectionWrites(c.fails, func() {
				if c.after != nil {
					c.after(p)
				}
			})
			p.requestOperation(`{"sync":{"revision":"abc"}}`)
			if st, _ := p.sides[kind.Hub].Status("w1"); !st.Connected {
				p.connect()
			}
			p.waitSeconds(600)
			if *failed != c.fails {
				t.Fatalf("%d writes failed, want %d", *failed, c.fails)
			}
			hub := p.stores[kind.Hub].objects[ref("w1", "a")]
			if hub.Get("operation") != nil {
				t.Errorf("the operation is still pending: %s", hub.Get("operation"))
			}
			if state := string(hub.Get("status", "operationState")); !strings.Contains(state, `"Error"`) || !strings.Contains(state, kind.IgnoreSync) {
				t.Errorf("operation state: %s", state)
			}
			if load := p.sides[kind.Hub].Stats(); load.Jobs > 0 || len(p.sides[kind.Hub].retries) > 0 {
				t.Errorf("there is still something to do: %+v", load)
			}
		})
	}
}

// The refusal is of one command. What the user asks for next, before the refusal
// could be written, is for the spoke to answer.
func TestRejectedCommand_DoesNotEndNextOne(t *testing.T) {
	p := rejectingPair(t)
	failed := p.failRejectionWrites(1000, nil)
	p.requestOperation(`{"sync":{"revision":"abc"}}`)
	if *failed == 0 {
		t.Fatal("no write of the refusal failed")
	}
	c := p.stores[kind.Spoke].objects[ref("argocd", "a")]
	p.user(kind.Spoke, ref("argocd", "a"), string(set(t, c.Raw(), `{}`, "metadata", "labels")))
	p.hook = nil
	p.requestOperation(`{"sync":{"revision":"def"}}`)
	p.waitSeconds(60)
	if op := string(p.stores[kind.Spoke].objects[ref("argocd", "a")].Get("operation")); !strings.Contains(op, "def") {
		t.Errorf("operation on the spoke: %s", op)
	}
	hub := p.stores[kind.Hub].objects[ref("w1", "a")]
	if strings.Contains(string(hub.Get("status", "operationState")), kind.RefusedInfo) {
		t.Errorf("the hub shows a refusal: %s", hub.Get("status", "operationState"))
	}
}
