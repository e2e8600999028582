package reconcile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// hostileHarness is a hub with two autonomous agents, of which the first sends whatever
// the test makes up.
type hostileHarness struct {
	*Reconciler
	t      *testing.T
	seq    uint64
	writes []Write
	acks   map[string]engine.AckItem // by key
	byes   []engine.Bye
}

func newHostileHarness(t *testing.T) *hostileHarness {
	t.Helper()
	h := &hostileHarness{Reconciler: New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"}), t: t, acks: map[string]engine.AckItem{}}
	for _, r := range Resources() {
		h.do(List{Resource: r, Revision: 1})
	}
	for i, name := range []string{"a", "a-b"} {
		h.do(Register{Agent: kind.Agent{Name: name, Mode: kind.Autonomous, Mapping: kind.ByNamespace, HubNamespace: name}})
		h.do(FromPeer{Agent: name, Input: engine.Connected{Session: uint64(i) + 1}})
		h.from(name, uint64(i)+1, hello("autonomous"))
	}
	return h
}

func hello(mode string) engine.Hello {
	return engine.Hello{Epoch: engine.Epoch{Incarnation: 1}, ClusterUID: "c", Mode: mode, Mapping: "namespace", Namespace: "argocd",
		Protocol: engine.Range{Min: 1, Max: 1}, Projection: engine.Range{Min: 1, Max: 1}}
}

func (h *hostileHarness) do(in Input) {
	for _, e := range h.Step(1_000_000, in) {
		switch e := e.(type) {
		case Write:
			h.writes = append(h.writes, e)
		case ToPeer:
			if s, ok := e.Effect.(engine.Send); ok {
				switch m := s.Message.(type) {
				case engine.Ack:
					for _, it := range m.Items {
						h.acks[it.Key.String()] = it
					}
				case engine.Bye:
					h.byes = append(h.byes, m)
				}
			}
		}
	}
}

func (h *hostileHarness) from(agent string, session uint64, m engine.Message) {
	h.do(FromPeer{Agent: agent, Input: engine.Received{Session: session, Message: m}})
}

// sends one item of agent a.
func (h *hostileHarness) sends(scope string, key engine.Key, content string) {
	h.seq++
	h.from("a", 1, engine.Delta{Scope: scope, Items: []engine.DeltaItem{{Seq: h.seq, Key: key, Version: engine.VersionOf([]byte(content)), Content: []byte(content)}}})
}

func (h *hostileHarness) connected(agent string) bool {
	st, _ := h.Status(agent)
	return st.Connected
}

const goodApp = `{"uid":"u1","spec":{"destination":{"name":"a","namespace":"default"},"project":"a-default","source":{"repoURL":"https://git/x"}}}`

func TestHostilePeer_BadItemsAreRejectedAlone(t *testing.T) {
	h := newHostileHarness(t)
	for name, c := range map[string]struct {
		scope   string
		key     engine.Key
		content string
		code    engine.Code
	}{
		"a name that is none":            {kind.ApplicationScope, engine.Key{Name: "../b"}, goodApp, engine.Invalid},
		"a name that is too long":        {kind.ApplicationScope, engine.Key{Name: strings.Repeat("x", 300)}, goodApp, engine.Invalid},
		"a namespace that is none":       {kind.ApplicationScope, engine.Key{Namespace: "A/B", Name: "x"}, goodApp, engine.Invalid},
		"no object":                      {kind.ApplicationScope, engine.Key{Name: "x1"}, `[]`, engine.Invalid},
		"no JSON":                        {kind.ApplicationScope, engine.Key{Name: "x2"}, `{"spec":`, engine.Invalid},
		"no spec":                        {kind.ApplicationScope, engine.Key{Name: "x3"}, `{}`, engine.Invalid},
		"another agent's project":        {kind.ApplicationScope, engine.Key{Name: "x4"}, strings.Replace(goodApp, "a-default", "a-b-default", 1), engine.NotAllowed},
		"another agent's cluster":        {kind.ApplicationScope, engine.Key{Name: "x5"}, strings.Replace(goodApp, `"name":"a"`, `"name":"a-b"`, 1), engine.NotAllowed},
		"a project's name that is none":  {kind.AppProjectScope, engine.Key{Name: "UP"}, `{"uid":"u","spec":{}}`, engine.Invalid},
		"a kind that is none of its own": {kind.RepositoryScope, engine.Key{Name: "r"}, `{"uid":"u","data":{}}`, engine.NotAllowed},
		"an unknown kind":                {"cluster", engine.Key{Name: "r"}, `{}`, engine.NotAllowed},
		"a command":                      {kind.CommandScope, engine.Key{Name: "x"}, `{}`, engine.NotAllowed},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			clear(h.acks)
			h.sends(c.scope, c.key, c.content)
			ack, ok := h.acks[c.key.String()]
			if !ok || ack.Code != c.code || ack.Message == "" {
				t.Errorf("answered %+v, %v, want %s with a reason", ack, ok, c.code)
			}
		})
	}
	for _, w := range h.writes {
		t.Errorf("it leads to a write: %s %v", w.Verb, w.Ref)
	}
	if st, _ := h.Status("a"); st.UnexpectedMessages != 3 {
		t.Errorf("%d unexpected messages are counted, of 3", st.UnexpectedMessages)
	}
	if !h.connected("a") || !h.connected("a-b") || len(h.byes) > 0 {
		t.Error("a session ends")
	}
	h.sends(kind.ApplicationScope, engine.Key{Name: "good"}, goodApp)
	if len(h.writes) != 1 || h.writes[0].Ref != (kind.Ref{Resource: kind.Applications, Namespace: "a", Name: "good"}) {
		t.Errorf("what is right is not taken: %+v, %+v", h.writes, h.acks["good"])
	}
}

// Whatever an agent calls its objects, they end up in its own place.
func TestHostilePeer_CannotNameKeysOfAnotherAgent(t *testing.T) {
	h := newHostileHarness(t)
	for i, key := range []engine.Key{{Name: "x"}, {Name: "a-b.x"}, {Namespace: "a-b", Name: "x"}, {Namespace: "argocd", Name: "x"}, {Namespace: "a", Name: "x"}} {
		h.sends(kind.ApplicationScope, key, strings.Replace(goodApp, "u1", fmt.Sprint("u", i), 1))
	}
	for _, name := range []string{"b-default", "default", "a-b-default"} {
		h.sends(kind.AppProjectScope, engine.Key{Name: name}, `{"uid":"p-`+name+`","spec":{"destinations":[{"name":"a","namespace":"*"}],"sourceNamespaces":["a"]}}`)
	}
	if len(h.writes) == 0 {
		t.Fatal("nothing is written at all")
	}
	names := map[kind.Ref]bool{}
	for _, w := range h.writes {
		if w.Ref.Resource == kind.Applications && w.Ref.Namespace != "a" {
			t.Errorf("writes %v", w.Ref)
		}
		if w.Ref.Resource == kind.AppProjects {
			if agent, _, ok := kind.SplitProjectName(w.Ref.Name); !ok || agent != "a" {
				t.Errorf("writes %v, which is %s's", w.Ref, agent)
			}
		}
		if names[w.Ref] {
			t.Errorf("two keys are %v", w.Ref)
		}
		names[w.Ref] = true
	}
}

func TestHostilePeer_RepeatedAndReorderedMessagesAreHarmless(t *testing.T) {
	h := newHostileHarness(t)
	item := func(seq uint64, revision string) engine.Delta {
		content := strings.Replace(goodApp, "https://git/x", "https://git/"+revision, 1)
		return engine.Delta{Scope: kind.ApplicationScope, Items: []engine.DeltaItem{{Seq: seq, Key: engine.Key{Name: "x"}, Version: engine.VersionOf([]byte(content)), Content: []byte(content)}}}
	}
	for _, m := range []engine.Delta{item(2, "new"), item(1, "old"), item(2, "new"), item(1, "old")} {
		h.from("a", 1, m)
	}
	if len(h.writes) != 1 || !strings.Contains(string(h.writes[0].Object.Raw()), "https://git/new") {
		t.Errorf("%d writes", len(h.writes))
	}
	h.from("a", 7, item(9, "of another session"))
	h.from("unknown", 1, item(9, "of unknown"))
	if len(h.writes) != 1 {
		t.Errorf("%d writes", len(h.writes))
	}
}

func TestHostilePeer_AnotherModeIsRefused(t *testing.T) {
	h := newHostileHarness(t)
	h.do(FromPeer{Agent: "a", Input: engine.Connected{Session: 8}})
	claim := hello("managed")
	claim.Epoch.Incarnation = 2
	h.from("a", 8, claim)
	if len(h.byes) != 1 || h.byes[0].Code != engine.WrongMode || !strings.Contains(h.byes[0].Message, "registered as autonomous") {
		t.Errorf("%+v", h.byes)
	}
	if !h.connected("a") {
		t.Error("the session that was there ends")
	}
}
