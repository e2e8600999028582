package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestHistoryMark_GrowsWithAWriteOfTheSession(t *testing.T) {
	const record = "agent-uid-7"
	for name, tc := range map[string]struct {
		change       func(*sessionState, *v1alpha1.Status)
		record       string // stored
		stored, want uint64
	}{
		"a session here":                      {nil, record, 4, 5},
		"another replica has recorded one":    {nil, record, 6, 7},
		"nothing needs a mark":                {func(s *sessionState, _ *v1alpha1.Status) { s.engine.Unmarked = 0 }, record, 4, 4},
		"the session has ended":               {func(s *sessionState, _ *v1alpha1.Status) { s.open = false }, record, 4, 4},
		"the hub was restored in the session": {nil, record, 3, 3},
		"the marks have begun again":          {nil, "agent-uid-9", 4, 4},
		"another replica has the session":     {func(_ *sessionState, s *v1alpha1.Status) { s.Principal = "there" }, record, 4, 4},
		"there is a newer session":            {func(_ *sessionState, s *v1alpha1.Status) { s.Session = &v1alpha1.Session{Incarnation: 6} }, record, 4, 4},
		"the largest number":                  {nil, record, math.MaxInt64, math.MaxInt64},
		"the first mark":                      {func(s *sessionState, _ *v1alpha1.Status) { s.engine.Mark.Number = 0 }, "", 0, 1},
		"the marks of the session are lost":   {nil, "", 0, 0},
		"the first mark of another Agent": {func(s *sessionState, _ *v1alpha1.Status) {
			s.engine.Mark = engine.HistoryMark{Record: "other-uid-7"}
		}, "", 0, 0},
	} {
		session := openSession(1)
		session.engine.Unmarked, session.engine.Mark = 500, engine.HistoryMark{Record: record, Number: 4}
		v := look(t, v1alpha1.Status{HistoryMark: tc.stored, HistoryRecord: tc.record}, session)
		v.rec.UID = "agent-uid"
		s := v.status()
		if tc.change != nil {
			tc.change(session, &s)
		}
		if v.setHistoryMark(&s); s.HistoryMark != tc.want || s.HistoryMark > 0 && s.HistoryRecord != cmp.Or(tc.record, record) {
			t.Errorf("%s: %s %d, want %d", name, s.HistoryRecord, s.HistoryMark, tc.want)
		}
	}
	s := v1alpha1.Status{HistoryMark: 4}
	if look(t, s, nil).setHistoryMark(&s); s.HistoryMark != 4 {
		t.Errorf("without a session: %d", s.HistoryMark)
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
	if d.cfg.Client, err = kube.NewClient(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	return requests
}

// The hub was restored from a backup. Each agent that knows a mark must notice it, also if the backup has the same mark.
func TestHistoryMark_IsResetAfterARestore(t *testing.T) {
	d := newTestRegistry(t)
	marked := func(number uint64) func(*v1alpha1.Agent) {
		return func(a *v1alpha1.Agent) {
			a.UID, a.Status.HistoryMark, a.Status.HistoryRecord = "agent-uid", number, "agent-uid-1"
		}
	}
	stored := agent("w1", 9, "managed", marked(4))
	requests := agentServer(t, d, &stored)
	d.see(agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.UID = "agent-uid" }))
	if err := d.ResetHistoryMarks(t.Context()); err != nil || len(*requests) > 0 {
		t.Errorf("without a mark: requests %v, %v", *requests, err)
	}
	d.see(agent("w1", 2, "managed", marked(4)))
	if err := d.ResetHistoryMarks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(*requests, []string{http.MethodPatch}) || stored.UID != "agent-uid" || stored.Status.HistoryRecord != "agent-uid-1" || stored.Status.HistoryMark != 0 {
		t.Errorf("requests %v, the status has %s %d", *requests, stored.Status.HistoryRecord, stored.Status.HistoryMark)
	}
}

// An Agent that is newer than the backup does not exist, and one of the same name can be another one. Other errors count.
func TestHistoryMark_ResetLeavesOtherAgents(t *testing.T) {
	for status, failed := range map[int]bool{http.StatusNotFound: false, http.StatusConflict: false, http.StatusInternalServerError: true} {
		d := newTestRegistry(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			reason := map[int]string{http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict"}[status]
			fmt.Fprintf(w, `{"kind":"Status","status":"Failure","code":%d,"reason":%q,"details":{"name":"w1","kind":"agents"}}`, status, reason)
		}))
		t.Cleanup(server.Close)
		var err error
		if d.cfg.Client, err = kube.NewClient(&rest.Config{Host: server.URL}); err != nil {
			t.Fatal(err)
		}
		d.see(agent("w1", 2, "managed", func(a *v1alpha1.Agent) {
			a.UID, a.Status.HistoryMark, a.Status.HistoryRecord = "agent-uid", 4, "agent-uid-1"
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/10)
		if err := d.ResetHistoryMarks(ctx); (err != nil) != failed {
			t.Errorf("status %d: %v", status, err)
		}
		cancel()
	}
}

// Another principal replica has recorded a mark, and the agent knows it. The watch of this replica lags behind.
func TestHistoryMark_IsReadAgainIfTheAgentKnowsALaterOne(t *testing.T) {
	d := newTestRegistry(t)
	uid := func(number uint64) func(*v1alpha1.Agent) {
		return func(a *v1alpha1.Agent) {
			a.UID, a.Status.HistoryMark, a.Status.HistoryRecord = "agent-uid", number, "agent-uid-1"
		}
	}
	d.see(agent("w1", 1, "managed", uid(4)))
	stored := agent("w1", 9, "managed", uid(6))
	requests := agentServer(t, d, &stored)
	for known, want := range map[engine.HistoryMark]struct {
		number uint64
		reads  int
	}{
		{}:                                  {4, 0},
		{Record: "agent-uid-1", Number: 3}:  {4, 0},
		{Record: "agent-uid-1", Number: 4}:  {4, 0},
		{Record: "agent-uid-1", Number: 5}:  {6, 1},
		{Record: "agent-uid-1", Number: 99}: {6, 1}, // the hub was restored
		{Record: "other-uid-1", Number: 1}:  {6, 1}, // the Agent was created again
	} {
		*requests = nil
		got, err := d.HistoryMark(t.Context(), "w1", known)
		if err != nil || got != (engine.HistoryMark{Record: "agent-uid-1", Number: want.number}) || len(*requests) != want.reads {
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
	d.cfg.Post = func(_ context.Context, in reconcile.Input) error {
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
	session.engine.Unmarked, session.engine.Mark = 500, engine.HistoryMark{Record: "agent-uid-1"}
	r.sessions["w1"] = *session
	for range 2 { // the second time, the status has not changed
		if err := r.write(t.Context(), "w1"); err != nil {
			t.Fatal(err)
		}
	}
	want := reconcile.FromPeer{Agent: "w1", Input: engine.Marked{Mark: engine.HistoryMark{Record: "agent-uid-1", Number: 1}, Revision: 500}}
	if len(posted) != 1 || posted[0] != want || len(*requests) != 1 {
		t.Errorf("posted %+v after %v", posted, *requests)
	}
}

// An older CRD does not have the field. A mark that is not stored must not be known.
func TestHistoryMark_IsNotSentIfTheAPIServerDropsIt(t *testing.T) {
	d := newTestRegistry(t)
	seen := agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.UID = "agent-uid" })
	d.see(seen)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(agent("w1", 2, "managed", func(a *v1alpha1.Agent) { a.UID = "agent-uid" }))
	}))
	defer server.Close()
	var err error
	if d.cfg.Client, err = kube.NewClient(&rest.Config{Host: server.URL}); err != nil {
		t.Fatal(err)
	}
	d.cfg.Post = func(_ context.Context, in reconcile.Input) error {
		if in, ok := in.(reconcile.FromPeer); ok {
			t.Errorf("sent: %+v", in.Input)
		}
		return nil
	}
	r := newTestStatusWriter(d.Registry)
	session := openSession(1)
	session.engine.Unmarked, session.engine.Mark = 500, engine.HistoryMark{Record: "agent-uid-1"}
	r.sessions["w1"] = *session
	if err := r.write(t.Context(), "w1"); err != nil {
		t.Fatal(err)
	}
	first, _ := d.HistoryMark(t.Context(), "w1", engine.HistoryMark{})
	rec, _, _, _ := d.object("w1")
	if first.Record != "agent-uid-"+rec.ResourceVersion || first.Number != 0 {
		t.Errorf("the next session begins with %+v", first)
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
