package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// leases is an API server that keeps the agent's Lease.
type leases struct {
	mu          sync.Mutex
	there       bool
	revision    int
	annotations map[string]string
	patches     int
	broken      bool
	wait        chan struct{} // nil: it answers at once
	begun       chan struct{} // closed when the first write waits
	once        sync.Once
}

func (l *leases) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if l.wait != nil && r.Method == http.MethodPatch {
		l.once.Do(func() { close(l.begun) })
		<-l.wait
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var body struct {
		Metadata struct {
			ResourceVersion string
			Annotations     map[string]string
		}
	}
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, err
		}
	}
	switch {
	case l.broken:
		w.WriteHeader(http.StatusForbidden)
		return w.Result(), nil
	case l.there && r.Method == http.MethodPatch && body.Metadata.ResourceVersion != fmt.Sprint(l.revision):
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"kind":"Status","status":"Failure","reason":"Conflict"}`)
		return w.Result(), nil
	case l.there && r.Method == http.MethodPatch:
		l.patches++
	case r.Method != http.MethodPost && !l.there:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":"NotFound","details":{"kind":"leases","name":%q}}`, leaseName)
		return w.Result(), nil
	}
	if l.there = true; r.Method != http.MethodGet {
		l.revision++
	}
	if l.annotations == nil {
		l.annotations = map[string]string{}
	}
	maps.Copy(l.annotations, body.Metadata.Annotations)
	err := json.NewEncoder(w).Encode(map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": leaseName, "namespace": "argocd", "uid": "lease-uid", "resourceVersion": fmt.Sprint(l.revision), "annotations": l.annotations}})
	return w.Result(), err
}

// recall starts another process of the agent.
func (l *leases) recall(t *testing.T) *leaseState {
	t.Helper()
	c, err := kube.NewClient(&rest.Config{Host: "http://spoke", Transport: l})
	if err != nil {
		t.Fatal(err)
	}
	m, err := loadLeaseState(t.Context(), c, "argocd", 4000)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func at(revision uint64, seen ...uint64) reconcile.Memory {
	m := reconcile.Memory{Store: engine.Store{UID: "hub", Revision: revision}}
	for i, scope := range []string{"appproject", "application"}[:len(seen)] {
		m.Seen = append(m.Seen, engine.Seen{Scope: scope, Revision: seen[i]})
	}
	return m
}

func TestLeaseState_StoresWhatARemovalNeeds(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	if err := m.atLeast(t.Context(), at(12, 3, 12)); err != nil {
		t.Fatal(err)
	}
	next := l.recall(t)
	if next.known.Store.Revision != 12 || !slices.Equal(next.known.Seen, at(0, 3, 12).Seen) {
		t.Errorf("it knows %+v", next.known)
	}
	patches := l.patches
	for _, need := range []reconcile.Memory{at(12, 3, 12), at(11, 3, 7), at(12, 2, 12)} { // known already
		if err := next.atLeast(t.Context(), need); err != nil {
			t.Fatal(err)
		}
	}
	if l.patches != patches {
		t.Errorf("%d writes say what is known", l.patches-patches)
	}
	if err := next.atLeast(t.Context(), at(11, 9, 1)); err != nil { // newer in one scope, older in the other
		t.Fatal(err)
	}
	if got := l.recall(t).known; got.Store.Revision != 12 || !slices.Equal(got.Seen, at(0, 9, 12).Seen) {
		t.Errorf("something older has replaced what was known: %+v", got)
	}
}

func TestLeaseState_StoresStartedCommandsAndDeletions(t *testing.T) {
	l := &leases{}
	deletion := reconcile.Deletion{UID: "uid-1", At: 1000, Until: 5000}
	removal := engine.Removal{Scope: "application", Key: engine.Key{Name: "a"}.Hash(), Source: "uid-2", Generation: 2, Revision: 12}
	m := l.recall(t)
	for _, ids := range [][]string{{"c1"}, {"c1", "c2"}} {
		need := at(12, 3, 12)
		need.Commands, need.Deletions, need.Removals = ids, []reconcile.Deletion{deletion}, []engine.Removal{removal}
		if err := m.atLeast(t.Context(), need); err != nil {
			t.Fatal(err)
		}
	}
	next := l.recall(t)
	if !slices.Equal(next.known.Commands, []string{"c1", "c2"}) {
		t.Errorf("it knows %q", next.known.Commands)
	}
	if a := (&agent{state: next}); !slices.Equal(a.nodeConfig().KnownCommands, []string{"c1", "c2"}) {
		t.Errorf("its node knows %q", a.nodeConfig().KnownCommands)
	} else if !slices.Equal(a.nodeConfig().KnownDeletions, []reconcile.Deletion{deletion}) {
		t.Errorf("its node knows deletions %v", a.nodeConfig().KnownDeletions)
	} else if !slices.Equal(a.nodeConfig().KnownRemovals, []engine.Removal{removal}) {
		t.Errorf("its node knows removals %v", a.nodeConfig().KnownRemovals)
	}
}

func TestLeaseState_FailedWriteStopsARemoval(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	l.broken = true
	for range 2 {
		if err := m.atLeast(t.Context(), at(12, 3, 12)); err == nil {
			t.Error("it counts as remembered")
		}
	}
}

func TestLeaseState_ConcurrentRemovalsShareAWrite(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	before := l.patches
	l.wait, l.begun = make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for i := range uint64(100) {
		all.Go(func() {
			if err := m.atLeast(t.Context(), at(100+i, 1, 100+i)); err != nil {
				t.Error(err)
			}
		})
		if i == 0 {
			<-l.begun // the others wait for the first
		}
	}
	for asked := uint64(0); asked != 199; runtime.Gosched() {
		m.neededMu.Lock()
		asked = m.needed.Store.Revision
		m.neededMu.Unlock()
	}
	close(l.wait)
	all.Wait()
	if n := l.patches - before; n != 2 {
		t.Errorf("%d writes", n)
	}
	if m.known.Store.Revision != 199 {
		t.Errorf("known is %+v", m.known)
	}
}

// Two processes of one agent may overlap. Neither loses what the other has stored, and a deleted Lease does not block
// removals.
func TestLeaseState_KeepsWhatAnotherProcessKnows(t *testing.T) {
	l := &leases{}
	older := l.recall(t)
	newer := l.recall(t)
	if err := newer.atLeast(t.Context(), at(20, 5, 20)); err != nil {
		t.Fatal(err)
	}
	if err := older.atLeast(t.Context(), at(12, 9, 12)); err != nil {
		t.Fatal(err)
	}
	if got := l.recall(t).known; got.Store.Revision != 20 || !slices.Equal(got.Seen, at(0, 9, 20).Seen) {
		t.Errorf("known is %+v", got)
	}
	l.there, l.annotations = false, nil
	if err := older.atLeast(t.Context(), at(30, 9, 30)); err != nil {
		t.Errorf("the Lease was deleted: %v", err)
	}
	if got := l.recall(t).known; got.Store.Revision != 30 {
		t.Errorf("known is %+v", got)
	}
}

func TestLeaseState_ReloadReturnsWhatAnotherProcessWrote(t *testing.T) {
	l := &leases{}
	older, newer := l.recall(t), l.recall(t)
	untrusted := at(20, 5, 20)
	untrusted.StoreUntrusted = true
	if err := newer.save(t.Context(), untrusted); err != nil {
		t.Fatal(err)
	}
	if got, err := older.reload(t.Context()); err != nil || !got.Equal(untrusted) {
		t.Errorf("%+v, %v", got, err)
	}
	if err := older.save(t.Context(), at(21, 5, 21)); err != nil || !l.recall(t).known.StoreUntrusted {
		t.Errorf("a process that trusts the store has overruled the other one: %v", err)
	}
	older.accepted.Store(true)
	if got, err := older.reload(t.Context()); err != nil || got.StoreUntrusted || got.Store.UID != "" {
		t.Errorf("%+v, %v: what is about to be replaced counts", got, err)
	}
}

// After a user accepts a restored hub, earlier knowledge of its store does not count.
func TestLeaseState_AcceptedStoreReplacesKnownState(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	if err := m.save(t.Context(), at(20, 5, 20)); err != nil {
		t.Fatal(err)
	}
	if err := m.save(t.Context(), at(7, 5, 7)); err != nil || m.known.Store.Revision != 20 {
		t.Errorf("an older one has replaced what was known: %+v, %v", m.known, err)
	}
	m.accepted.Store(true)
	if err := m.save(t.Context(), at(7, 5, 7)); err != nil {
		t.Fatal(err)
	}
	if got := l.recall(t).known; got.Store.Revision != 7 || !slices.Equal(got.Seen, at(0, 5, 7).Seen) {
		t.Errorf("known is %+v", got)
	}
}

// What a write needed before a user accepted the restored hub does not count after it.
func TestLeaseState_AcceptanceIsNotUndone(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	untrusted := at(20, 5, 20)
	untrusted.StoreUntrusted = true
	if err := m.save(t.Context(), untrusted); err != nil {
		t.Fatal(err)
	}
	if err := m.atLeast(t.Context(), untrusted); err != nil { // known already
		t.Fatal(err)
	}
	m.accepted.Store(true)
	if err := m.save(t.Context(), at(7, 5, 7)); err != nil {
		t.Fatal(err)
	}
	if err := m.atLeast(t.Context(), at(9, 5, 9)); err != nil {
		t.Fatal(err)
	}
	if got := l.recall(t).known; got.StoreUntrusted || got.Store.Revision != 9 {
		t.Errorf("known is %+v", got)
	}
}

// A process may write without a session only while no later one has started: the later one may have had a session.
func TestLeaseState_OnlyTheLatestProcessIsLatest(t *testing.T) {
	l := &leases{}
	older := l.recall(t)
	if err := older.isLatest(t.Context()); err != nil {
		t.Fatal(err)
	}
	newer := l.recall(t)
	if err := older.isLatest(t.Context()); err == nil {
		t.Error("an older process counts as the latest")
	}
	if err := newer.isLatest(t.Context()); err != nil {
		t.Error(err)
	}
}

// A write that waited while a session began is not done: the hub may have deleted the object in that session.
func TestAgent_RestoresNothingInSession(t *testing.T) {
	a := &agent{state: (&leases{}).recall(t)}
	if err := a.mayRestore(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.open.Store(true)
	if a.mayRestore(t.Context()) == nil {
		t.Error("an object may be restored in a session")
	}
}

// The generation of a promoted hub is stored before its session begins, and never goes back.
func TestLeaseState_StoresTheGenerationOfTheHub(t *testing.T) {
	l := &leases{}
	older := l.recall(t)
	first := at(12, 3, 12)
	first.Hub = reconcile.KnownHub{PrincipalUID: "hub"}
	if err := older.save(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if got := l.recall(t).known.Generation; got != (engine.HubGeneration{Hub: "hub", Number: 1}) {
		t.Errorf("a Lease without a generation is of %+v", got)
	}
	a := &agent{state: l.recall(t), ctx: t.Context(), log: slog.New(slog.DiscardHandler)}
	if !a.recordGeneration(nil, engine.Welcome{PrincipalUID: "hub", HubGeneration: 3}) || !a.recordGeneration(nil, engine.Welcome{PrincipalUID: "other", HubGeneration: 9}) {
		t.Error("the session does not begin")
	}
	if err := older.save(t.Context(), first); err != nil { // a process that has not noticed the promotion
		t.Fatal(err)
	}
	next := l.recall(t)
	want := engine.HubGeneration{Hub: "hub", Number: 3}
	if next.known.Generation != want || next.known.Store != first.Store {
		t.Errorf("known is %+v", next.known)
	}
	if cfg := (&agent{state: next}).nodeConfig(); cfg.KnownGeneration != want {
		t.Errorf("its core knows %+v", cfg.KnownGeneration)
	}
	a = &agent{state: next, ctx: t.Context(), log: slog.New(slog.DiscardHandler)}
	a.recordGeneration(nil, engine.Welcome{PrincipalUID: "hub", HubGeneration: 5, Store: first.Store}) // demoted and promoted again
	if got, want := l.recall(t).known.Generation, (engine.HubGeneration{Hub: "hub", Number: 5, Since: 3, Store: "hub"}); got != want {
		t.Errorf("a hub that was promoted again is %+v, want %+v", got, want)
	}
	a.recordGeneration(nil, engine.Welcome{PrincipalUID: "hub", HubGeneration: 6, Store: engine.Store{UID: "standby"}})
	if got, want := l.recall(t).known.Generation, (engine.HubGeneration{Hub: "hub", Number: 6, Store: "standby"}); got != want {
		t.Errorf("a standby that was promoted is %+v, want %+v", got, want)
	}
	second := engine.Welcome{PrincipalUID: "hub", HubGeneration: 6, Store: engine.Store{UID: "copy"}}
	for _, tc := range []struct {
		servers []string
		want    string
	}{{[]string{"a", "b"}, "standby"}, {[]string{"a"}, "copy"}} {
		a.cfg.Servers = tc.servers
		if !a.recordGeneration(nil, second) {
			t.Error("the core does not decide about the session")
		}
		if got := l.recall(t).known.Generation.Store; got != tc.want {
			t.Errorf("with %d addresses, another hub of the same generation leaves store %s, want %s", len(tc.servers), got, tc.want)
		}
	}
	l.annotations[generationStoreAnnotation] = "5/older" // an older release has recorded generation 6
	if got := l.recall(t).known.Generation; got.Store != "" {
		t.Errorf("the store of an earlier generation counts: %+v", got)
	}
}

// The agent has a new hub, and knows the generation of the former one after a restart.
func TestLeaseState_StoresGenerationsOfFormerHubs(t *testing.T) {
	l := &leases{}
	first, second := at(12, 3, 12), at(7, 3, 7)
	first.Generation, second.Generation = engine.HubGeneration{Hub: "hub", Number: 3}, engine.HubGeneration{Hub: "new", Number: 1}
	for _, known := range []reconcile.Memory{first, second} {
		if err := l.recall(t).save(t.Context(), known); err != nil {
			t.Fatal(err)
		}
	}
	next := l.recall(t)
	a := &agent{state: next, ctx: t.Context(), log: slog.New(slog.DiscardHandler)}
	first.Generation.Number = 4 // a rebuilt hub
	if !a.recordGeneration(nil, engine.Welcome{PrincipalUID: "hub", HubGeneration: 4}) {
		t.Error("the session does not begin")
	}
	if a.cfg.Servers = []string{"a", "b"}; !a.recordGeneration(nil, engine.Welcome{PrincipalUID: "refused", HubGeneration: 9}) {
		t.Error("the core does not refuse the session")
	}
	next = l.recall(t)
	if want := []engine.HubGeneration{first.Generation}; next.known.Generation != second.Generation || !slices.Equal(next.known.FormerGenerations, want) {
		t.Errorf("known is %+v", next.known)
	}
	if cfg := (&agent{state: next}).nodeConfig(); !slices.Equal(cfg.FormerGenerations, next.known.FormerGenerations) {
		t.Errorf("its core knows %+v", cfg.FormerGenerations)
	}
	if err := next.save(t.Context(), reconcile.Memory{Generation: engine.HubGeneration{Hub: "hub", Number: 1}}); err != nil { // of an older process
		t.Fatal(err)
	}
	if got := l.recall(t).known; got.Generation != first.Generation || !slices.Equal(got.FormerGenerations, []engine.HubGeneration{second.Generation}) {
		t.Errorf("known is %+v", got)
	}
}

func mark(record string, number uint64) engine.HistoryMark {
	return engine.HistoryMark{Record: record, Number: number}
}

func TestLeaseState_KnowsTheMarkOfTheHub(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	known := at(12, 3, 12)
	known.Store.Mark = mark("agent-uid", 7)
	if err := m.save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	next := l.recall(t)
	if next.known.Store != known.Store {
		t.Fatalf("the next process knows %+v", next.known.Store)
	}
	known.Store.Mark.Number = 6 // of a process that has not received the last one
	if err := next.atLeast(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	if got := l.recall(t).known.Store.Mark; got != mark("agent-uid", 7) {
		t.Errorf("a later mark was replaced: %+v", got)
	}
	next.accepted.Store(true)
	if err := next.save(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	if got := l.recall(t).known.Store.Mark; got != mark("agent-uid", 6) {
		t.Errorf("after the store was accepted, the agent knows %+v", got)
	}
}

func TestLeaseState_RecordsMarks(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	session := m.historyMark()
	if session != mark("lease-uid", 0) {
		t.Fatalf("the first session has %+v", session)
	}
	other := l.recall(t)
	for want := uint64(1); want <= 2; want++ {
		if got, err := m.recordMark(t.Context(), session); err != nil || got != mark("lease-uid", want) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if got, err := other.recordMark(t.Context(), session); err != nil || got != mark("lease-uid", 3) {
		t.Errorf("another process records %+v, %v", got, err)
	}
	if _, err := m.reload(t.Context()); err != nil || m.historyMark() != mark("lease-uid", 3) {
		t.Errorf("the next session has %+v, %v", m.historyMark(), err)
	}
	m.accepted.Store(true)
	if _, err := other.recordMark(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if _, err := m.reload(t.Context()); err != nil || m.historyMark() != mark("lease-uid", 4) {
		t.Errorf("a session after the hub's store was accepted has %+v, %v", m.historyMark(), err)
	}
}

// The cluster is restored while the process runs. The next process must have a lower mark than the hub may know, also if the
// Lease of the backup has the same one.
func TestLeaseState_ResetsItsMarkAfterARestore(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	if _, err := m.recordMark(t.Context(), m.historyMark()); err != nil {
		t.Fatal(err)
	}
	if err := m.atLeast(t.Context(), reconcile.Memory{Generation: engine.HubGeneration{Hub: "hub", Number: 4}, Commands: []string{"c1"}}); err != nil {
		t.Fatal(err)
	}
	l.revision += 5 // of the backup, which this process has not read
	l.annotations[generationAnnotation], l.annotations[commandsAnnotation] = "hub/3", ""
	if err := m.resetMark(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := l.recall(t)
	if next.historyMark() != mark("lease-uid", 0) || next.known.Generation.Number != 4 || !slices.Contains(next.known.Commands, "c1") {
		t.Errorf("the next process has %+v and knows %+v", next.historyMark(), next.known)
	}
}

// The cluster is restored, with an earlier mark. The process that runs must not continue from it.
func TestLeaseState_RecordsNoMarkAfterARestore(t *testing.T) {
	l := &leases{}
	m := l.recall(t)
	sent, err := m.recordMark(t.Context(), m.historyMark())
	if err != nil {
		t.Fatal(err)
	}
	l.annotations[historyMarkAnnotation], l.revision = "0", l.revision+1
	if got, err := m.recordMark(t.Context(), sent); err == nil {
		t.Errorf("recorded %+v", got)
	}
	if l.annotations[historyMarkAnnotation] != "0" {
		t.Errorf("the Lease has mark %s", l.annotations[historyMarkAnnotation])
	}
	if _, err := m.recordMark(t.Context(), mark("another-lease", 0)); err == nil {
		t.Error("a mark of another Lease is continued")
	}
}

// The API server accepts annotations of 256 KiB for each object. With a Lease that is too large, the agent deletes nothing and
// begins no command.
func TestLeaseState_FitsIntoAnObject(t *testing.T) {
	long, uid := strings.Repeat("u", 128), strings.Repeat("u", 36)
	known := at(1<<63, 1<<63, 1<<63)
	for i := range 2 * reconcile.MaxDeletions {
		known.Commands = append(known.Commands, fmt.Sprintf("%04d%s", i, long[4:]))
		known.Deletions = append(known.Deletions, reconcile.Deletion{UID: fmt.Sprintf("%04d%s", i, uid[4:]), At: 1 << 42, Until: 1<<42 + 1<<40})
		known.Removals = append(known.Removals, engine.Removal{Scope: "repository-credential", Key: engine.KeyHash(1<<63 + uint64(i)), Source: long, Store: fmt.Sprintf("%04d%s", i, long[4:]), Generation: 1 << 31, Revision: 1 << 63})
	}
	size := 0
	for key, value := range hubAnnotations(reconcile.Memory{}.With(known)) {
		size += len(key) + len(value)
	}
	if size > 200<<10 {
		t.Errorf("the Lease has %d bytes of annotations", size)
	}
}
