package fleet

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestHistoryMark_GrowsWithAWriteOfTheSession(t *testing.T) {
	unmarked := func() *sessionState {
		s := openSession(1)
		s.engine.Unmarked, s.engine.Mark = 500, engine.HistoryMark{Record: "agent-uid", Number: 4}
		return s
	}
	for name, tc := range map[string]struct {
		session func(*sessionState)
		stored  uint64
		want    uint64
	}{
		"a session here":                        {nil, 4, 5},
		"another replica has recorded one":      {nil, 6, 7},
		"nothing needs a mark":                  {func(s *sessionState) { s.engine.Unmarked = 0 }, 4, 4},
		"the session has ended":                 {func(s *sessionState) { s.open = false }, 4, 4},
		"the hub was restored in the session":   {nil, 3, 3},
		"the session is of an Agent before":     {func(s *sessionState) { s.engine.Mark.Record = "other-uid" }, 4, 4},
		"the session is not known to be newest": {func(s *sessionState) { s.epoch.Attempt = 0 }, 4, 4},
		"the largest number":                    {nil, math.MaxInt64, math.MaxInt64},
	} {
		session := unmarked()
		if tc.session != nil {
			tc.session(session)
		}
		v := look(t, v1alpha1.Status{HistoryMark: tc.stored, Connected: true, Principal: "there", Session: &v1alpha1.Session{Incarnation: 5}}, session)
		v.rec.UID, v.principalLost = "agent-uid", true
		s := v.status()
		if name == "the session is not known to be newest" {
			s.Principal = "there"
		}
		if got := v.historyMark(s); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	if got := look(t, v1alpha1.Status{HistoryMark: 4}, nil).historyMark(v1alpha1.Status{HistoryMark: 4}); got != 4 {
		t.Errorf("without a session: %d", got)
	}
}

// agentServer is an API server with one Agent.
func agentServer(t *testing.T, d *testRegistry, stored *v1alpha1.Agent) (requests *[]string) {
	t.Helper()
	requests = &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.Method)
		if r.Method == http.MethodPatch {
			if err := json.NewDecoder(r.Body).Decode(stored); err != nil {
				t.Error(err)
			}
			stored.ResourceVersion = "20"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(stored)
	}))
	t.Cleanup(server.Close)
	var err error
	if d.Registry.cfg.Client, err = kube.NewClient(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	return requests
}

// Another principal replica has recorded a mark, and the agent knows it. The watch of this replica lags behind.
func TestHistoryMark_IsReadAgainIfTheAgentKnowsALaterOne(t *testing.T) {
	d := newTestRegistry(t)
	uid := func(number uint64) func(*v1alpha1.Agent) {
		return func(a *v1alpha1.Agent) { a.UID, a.Status.HistoryMark = "agent-uid", number }
	}
	d.see(agent("w1", 1, "managed", uid(4)))
	stored := agent("w1", 9, "managed", uid(6))
	requests := agentServer(t, d, &stored)
	for known, want := range map[engine.HistoryMark]struct {
		number uint64
		reads  int
	}{
		{}:                                {4, 0},
		{Record: "agent-uid", Number: 3}:  {4, 0},
		{Record: "agent-uid", Number: 4}:  {4, 0},
		{Record: "agent-uid", Number: 5}:  {6, 1},
		{Record: "agent-uid", Number: 99}: {6, 1}, // the hub was restored
		{Record: "other-uid", Number: 1}:  {6, 1}, // the Agent was created again
	} {
		*requests = nil
		got, err := d.HistoryMark(t.Context(), "w1", known)
		if err != nil || got != (engine.HistoryMark{Record: "agent-uid", Number: want.number}) || len(*requests) != want.reads {
			t.Errorf("the agent knows %+v: %+v after %d reads, %v", known, got, len(*requests), err)
		}
	}
}

// The agent hears of a mark after it is stored. A mark alone causes no write.
func TestHistoryMark_IsSentAfterItIsStored(t *testing.T) {
	d := newTestRegistry(t)
	stored := agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.UID = "agent-uid" })
	d.see(stored)
	requests := agentServer(t, d, &stored)
	var posted []reconcile.Input
	d.Registry.cfg.Post = func(_ context.Context, in reconcile.Input) error {
		if _, ok := in.(reconcile.FromPeer); ok {
			if len(*requests) == 0 {
				t.Error("a mark is sent before it is stored")
			}
			posted = append(posted, in)
		}
		return nil
	}
	r := newTestStatusWriter(d.Registry)
	session := openSession(1)
	session.engine.Unmarked, session.engine.Mark = 500, engine.HistoryMark{Record: "agent-uid"}
	r.sessions["w1"] = *session
	for range 2 { // the second time, the status has not changed
		if err := r.write(t.Context(), "w1"); err != nil {
			t.Fatal(err)
		}
	}
	want := reconcile.FromPeer{Agent: "w1", Input: engine.Marked{Mark: engine.HistoryMark{Record: "agent-uid", Number: 1}, Revision: 500}}
	if len(posted) != 1 || posted[0] != want || len(*requests) != 1 {
		t.Errorf("posted %+v after %v", posted, *requests)
	}
}

// The mark of an autonomous agent's store is recorded with the store, for the next principal replica.
func TestHistoryMark_OfTheAgentIsRecorded(t *testing.T) {
	for number, want := range map[uint64]engine.HistoryMark{7: {Record: "lease-uid", Number: 7}, math.MaxUint64: {}} {
		session := openSession(1)
		session.engine.Other = engine.Store{UID: "s", Revision: 500, Mark: engine.HistoryMark{Record: "lease-uid", Number: number}}
		v := look(t, v1alpha1.Status{}, session)
		v.rec.Spec.Mode = "autonomous"
		v.rec.Status = v.status()
		reg, err := v.rec.registration(kind.ByNamespace, kind.Limits{})
		if err != nil || reg.KnownStore != (engine.Store{UID: "s", Revision: 500, Mark: want}) {
			t.Errorf("the next replica knows %+v, %v", reg.KnownStore, err)
		}
	}
}
