package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// A hostile agent within one session: whatever it says again and again, with ever
// new names, the hub remembers no more of it in the end.
func TestLimits_AgentCannotFillHubMemory(t *testing.T) {
	seq := uint64(1000)
	for _, c := range []struct {
		name string
		send func(i int) []engine.Message
	}{
		{"rejected items that vanish", func(i int) []engine.Message {
			k := engine.Key{Name: fmt.Sprintf("k%d", i)}
			content := []byte(`{"spec":{},"uid":"u"}`)
			seq += 2
			return []engine.Message{
				engine.Delta{Scope: kind.ApplicationScope, Items: []engine.DeltaItem{{Seq: seq, Key: k, Version: engine.VersionOf(content), Content: content}}},
				engine.Delta{Scope: kind.ApplicationScope, Items: []engine.DeltaItem{{Seq: seq + 1, Key: k, Gone: true}}},
			}
		}},
		{"what it holds", func(i int) []engine.Message {
			return []engine.Message{engine.Held{ID: fmt.Sprint("id", i)}, engine.Held{Scope: kind.CommandScope, ID: fmt.Sprint("id", i)}}
		}},
		{"unexpected answers", func(i int) []engine.Message {
			k := engine.Key{Name: fmt.Sprintf("k%d", i)}
			return []engine.Message{
				engine.Ack{Scope: kind.CommandScope, Items: []engine.AckItem{{Seq: seq, Key: k, Code: engine.Invalid, Message: "x"}}},
				engine.Finished{Scope: kind.ApplicationScope, Key: k},
				engine.Finished{Scope: kind.CommandScope, Key: k},
				engine.Want{Scope: kind.CommandScope, Hashes: []engine.KeyHash{k.Hash()}},
			}
		}},
		{"statuses of nothing", func(i int) []engine.Message {
			content := []byte(`{"status":{}}`)
			seq += 2
			k := engine.Key{Name: fmt.Sprintf("k%d", i)}
			return []engine.Message{
				engine.Delta{Scope: kind.StatusScope, Items: []engine.DeltaItem{{Seq: seq, Key: k, Version: engine.VersionOf(content), Content: content}}},
				engine.Delta{Scope: kind.StatusScope, Items: []engine.DeltaItem{{Seq: seq + 1, Key: k, Gone: true}}},
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, kind.Autonomous)
			p.connect()
			before := p.sides[kind.Hub].Stats()
			for i := range 2000 {
				for _, m := range c.send(i) {
					p.step(kind.Hub, FromPeer{Agent: "w1", Input: engine.Received{Session: p.session, Message: m}})
				}
			}
			if after := p.sides[kind.Hub].Stats(); after != before {
				t.Errorf("before %+v, after %+v", before, after)
			}
			status, _ := p.sides[kind.Hub].Status("w1")
			if !status.Connected || len(status.RemoteHolds) > 2 {
				t.Errorf("connected %v, %d held elsewhere", status.Connected, len(status.RemoteHolds))
			}
			for _, s := range status.Scopes {
				if s.Items+s.Rejected+s.Diverged+s.Held > 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// The limits of one agent come from its registration. What is stored stays if they become smaller.
func TestLimits_OfRegistration(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	limit := func(items int) {
		t.Helper()
		p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Autonomous, Mapping: kind.ByNamespace, HubNamespace: "w1", Limits: kind.Limits{Items: items}}})
		p.connect()
		p.settle()
	}
	stored := func() (n int, limit string) {
		for r := range p.stores[kind.Hub].objects {
			if r.Resource == kind.Applications {
				n++
			}
		}
		status, _ := p.sides[kind.Hub].Status("w1")
		for _, s := range status.Scopes {
			limit += s.Limit
		}
		return n, limit
	}
	limit(3)
	for i := range 5 {
		name := fmt.Sprintf("a%d", i)
		p.user(kind.Spoke, ref("argocd", name), app("argocd", name, "default", "v1"))
	}
	for _, tc := range []struct {
		items, want int
		reached     string
	}{{3, 3, "3 items"}, {1, 3, "1 items"}, {4, 4, "4 items"}, {0, 5, ""}} {
		limit(tc.items)
		if n, reached := stored(); n != tc.want || reached != tc.reached {
			t.Errorf("limit %d: %d are stored, reached %q", tc.items, n, reached)
		}
	}
	status, _ := p.sides[kind.Hub].Status("w1")
	if !status.Connected {
		t.Error("not connected")
	}
}

// A status that exceeds the limit is not stored. The hub's Application shows why and keeps the last one.
func TestLimits_StatusTooLargeShowsCondition(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy:9090?agentName=w1",
		Limits: kind.Limits{Bytes: 300}}})
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	for _, message := range []string{"small", strings.Repeat("x", 300)} {
		p.change(kind.Spoke, ref("argocd", "a"), `{"health":{"status":"Healthy","message":"`+message+`"}}`, "status")
		p.settle()
	}
	if got := string(p.hubApp().Get("status", "health", "message")); got != `"small"` {
		t.Errorf("the hub has %s", got)
	}
	if got := p.hubConditions(); !strings.Contains(got, kind.ConditionError) || !strings.Contains(got, "300 bytes of scope status") {
		t.Errorf("conditions %s", got)
	}
	p.change(kind.Spoke, ref("argocd", "a"), `{"health":{"status":"Healthy","message":"fits"}}`, "status")
	p.waitSeconds(60)
	if got := string(p.hubApp().Get("status", "health", "message")); got != `"fits"` || strings.Contains(p.hubConditions(), kind.ConditionError) {
		t.Errorf("the hub has %s, conditions %s", got, p.hubConditions())
	}
}

// An autonomous agent stores on the hub no more than its limit, and learns which limit.
func TestLimits_AutonomousAgentStoresWithinLimit(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	hub := p.sides[kind.Hub].cfg
	hub.Tuning.MaxBytes = 1000
	p.sides[kind.Hub] = New(hub)
	p.step(kind.Hub, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Autonomous, Mapping: kind.ByNamespace, HubNamespace: "w1"}})
	for _, r := range Resources() {
		p.step(kind.Hub, List{Resource: r, Revision: 1})
	}
	p.connect()
	const many = 20
	for i := range many {
		name := fmt.Sprintf("a%d", i)
		p.user(kind.Spoke, ref("argocd", name), app("argocd", name, "default", "v1"))
	}
	size := 0
	l := p.sides[kind.Hub].syncs["w1"]
	for _, o := range p.stores[kind.Hub].objects {
		held, _ := kind.ApplicationKind{}.ReadReplica(o, &l.env)
		size += len(held.Content)
	}
	copies := len(p.stores[kind.Hub].objects)
	if size > 1000 || copies == 0 || copies == many {
		t.Fatalf("the hub has %d copies with %d bytes", copies, size)
	}
	rejected := 0
	for i := range many {
		r, ok := p.sides[kind.Spoke].syncs[""].peer.Rejection(kind.ApplicationScope, engine.Key{Name: fmt.Sprintf("a%d", i)})
		if ok && r.Code == engine.TooLarge {
			rejected++
		}
	}
	if rejected != many-copies {
		t.Errorf("%d of %d are rejected", rejected, many-copies)
	}
	// Room that is made is used.
	for i := range many {
		r := ref("argocd", fmt.Sprintf("a%d", i))
		if p.stores[kind.Hub].objects[ref("w1", r.Name)] == nil {
			continue
		}
		uid := p.stores[kind.Spoke].objects[r].UID()
		delete(p.stores[kind.Spoke].objects, r)
		p.step(kind.Spoke, Deleted{Ref: r, UID: uid})
		p.settle()
	}
	p.waitSeconds(600)
	if n := len(p.stores[kind.Hub].objects); n != copies {
		t.Errorf("%d copies, there is room for %d", n, copies)
	}
}
