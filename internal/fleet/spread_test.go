package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// spreadHub has principal replicas, agents, and a Service that selects a replica for each connection.
type spreadHub struct {
	t         *testing.T
	spreaders []*Spreader
	replicas  []*Replicas
	selects   func(from int) int
	connects  time.Duration // how long an agent takes to connect again
	draining  []bool        // by replica
	revision  int

	mu       sync.Mutex
	sessions [][]SpreadSession
}

func newSpreadHub(t *testing.T, counts ...int) *spreadHub {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	h := &spreadHub{t: t, sessions: make([][]SpreadSession, len(counts)), draining: make([]bool, len(counts)), selects: func(int) int { return random.IntN(len(counts)) }}
	for i, n := range counts {
		h.replicas = append(h.replicas, NewReplicas(nil, nil, "argocd", fmt.Sprint("p-", i), "", slog.New(slog.DiscardHandler)))
		h.spreaders = append(h.spreaders, NewSpreader(h.replicas[i], func() []SpreadSession { return h.of(i) }, slog.New(slog.DiscardHandler)))
		for range n {
			h.connect(i, false)
		}
	}
	return h
}

func (h *spreadHub) of(replica int) []SpreadSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sessions[replica])
}

func (h *spreadHub) connect(to int, used bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, arrived := time.Now(), false
	h.sessions[to] = append(h.sessions[to], SpreadSession{Since: since, Used: used, Arrived: func() bool { h.mu.Lock(); defer h.mu.Unlock(); return arrived }, Move: func(string) {
		h.mu.Lock()
		i := slices.IndexFunc(h.sessions[to], func(s SpreadSession) bool { return s.Since.Equal(since) && s.Used == used })
		h.sessions[to] = slices.Delete(h.sessions[to], i, i+1)
		next := h.selects(to)
		h.mu.Unlock()
		if next < 0 { // it does not come back
			return
		}
		connect := func() {
			h.connect(next, used)
			h.mu.Lock()
			defer h.mu.Unlock()
			arrived = next != to
		}
		if h.connects == 0 {
			connect()
			return
		}
		time.AfterFunc(h.connects, connect)
	}})
}

// renew writes the Leases. A replica without agents that it accepts has no number.
func (h *spreadHub) renew(accepting ...bool) {
	h.t.Helper()
	var leases []*kind.Object
	for i := range h.replicas {
		share := `{"Settings":"s1"}`
		if len(accepting) == 0 || accepting[i] {
			share = fmt.Sprintf(`{"Settings":"s1","Sessions":%d}`, len(h.of(i)))
		}
		if h.draining[i] {
			share = `{"Settings":"s1","Draining":true}`
		}
		h.revision++
		leases = append(leases, parsed(h.t, map[string]any{"metadata": map[string]any{"name": fmt.Sprint("l-", i), "namespace": "argocd", "resourceVersion": fmt.Sprint(h.revision),
			"annotations": map[string]string{replicaAnnotation: fmt.Sprint("p-", i), fleetAnnotation: share}}}))
	}
	for _, r := range h.replicas {
		if err := r.Apply(h.t.Context(), reconcile.List{Resource: kube.Leases, Objects: leases}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *spreadHub) counts() (all []int) {
	for i := range h.replicas {
		all = append(all, len(h.of(i)))
	}
	return all
}

// run runs one round of each replica after each renewal of the Leases.
func (h *spreadHub) run(renewals int) {
	for range renewals {
		h.renew()
		time.Sleep(leaseRenewal)
		for _, s := range h.spreaders {
			s.round(h.t.Context(), s.excess())
		}
	}
}

// start runs the first replica. elapse lets time pass in which Leases are renewed.
func (h *spreadHub) start() (elapse func(time.Duration), stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.spreaders[0].Run(ctx) })
	elapse = func(d time.Duration) {
		time.Sleep(time.Second) // not at the same time as Run
		for range d / leaseRenewal {
			h.renew()
			time.Sleep(leaseRenewal)
		}
	}
	return elapse, func() { cancel(); running.Wait() }
}

// Agents that were asked and do not come back show that the hub is busy. Then no others are asked, but not forever.
func TestSpread_WaitsForTheLastRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSpreadHub(t, 600, 0)
		h.selects = func(int) int { return -1 }
		elapse, stop := h.start()
		defer stop()
		elapse(youngestMoved + 2*leaseRenewal)
		first := h.spreaders[0].Moved()
		elapse(50 * time.Second)
		if after := h.spreaders[0].Moved(); first != 100 || after != first {
			t.Errorf("%d agents were asked, and then %d more, although none came back", first, after-first)
		}
		elapse(40 * time.Second)
		if after := h.spreaders[0].Moved(); after == first {
			t.Error("agents that do not come back stop the spread")
		}
	})
}

// After a rollout or a scale-out one replica is empty. It gets its share, and then nothing moves any longer.
func TestSpread_FillsEmptyReplica(t *testing.T) {
	for _, counts := range [][]int{{500, 500, 0}, {1000, 0}, {0, 0, 0, 4000}, {5, 0}} {
		t.Run(fmt.Sprint(counts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSpreadHub(t, counts...)
				time.Sleep(youngestMoved)
				h.run(15) // five minutes: a round and the pause after it take 20 s
				total, moved := 0, uint64(0)
				for _, n := range h.counts() {
					total += n
				}
				for i, n := range h.counts() {
					if share := total/len(counts) + 1; n > share+max(1, share/10) {
						t.Errorf("replica %d has %d of %d sessions: %v", i, n, total, h.counts())
					}
					moved += h.spreaders[i].Moved()
				}
				h.run(30)
				after := uint64(0)
				for _, s := range h.spreaders {
					after += s.Moved()
				}
				if after != moved {
					t.Errorf("%d more agents moved after the sessions were spread", after-moved)
				}
				t.Logf("%v → %v with %d moves", counts, h.counts(), moved)
			})
		})
	}
}

// A hub with 100,000 agents has ten replicas. No replica stays above 110 % of its share, and the number of agents
// that connect in a second is bounded.
func TestSpread_100000Agents(t *testing.T) {
	for name, test := range map[string]struct {
		counts []int
		within time.Duration
	}{
		"one replica was replaced": {append(slices.Repeat([]int{11_111}, 9), 0), 5 * time.Minute},
		"five replicas became ten": {append(slices.Repeat([]int{20_000}, 5), 0, 0, 0, 0, 0), 15 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSpreadHub(t, test.counts...)
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				defer running.Wait()
				defer cancel()
				time.Sleep(youngestMoved)
				h.renew()
				for _, s := range h.spreaders {
					running.Go(func() { _ = s.Run(ctx) })
				}
				const share = 10_000
				var most, moved uint64
				began := time.Now()
				for slices.Max(h.counts()) > share+share/10 {
					if time.Since(began) > test.within {
						t.Fatalf("not spread after %v: %v", test.within, h.counts())
					}
					for range leaseRenewal / time.Second {
						time.Sleep(time.Second)
						before := moved
						moved = 0
						for _, s := range h.spreaders {
							moved += s.Moved()
						}
						most = max(most, moved-before)
					}
					h.renew()
				}
				if limit := uint64(len(test.counts)) * (mostMoved/uint64(leaseRenewal/time.Second) + 1); most > limit {
					t.Errorf("%d agents were asked in one second, limit %d", most, limit)
				}
				t.Logf("spread after %v, %d agents asked, at most %d in a second: %v", time.Since(began), moved, most, h.counts())
			})
		})
	}
}

func TestSpread_DoesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		counts    []int
		accepting []bool
	}{
		"one replica":               {[]int{100}, nil},
		"even":                      {[]int{100, 95, 104}, nil},
		"the other is not ready":    {[]int{100, 0}, []bool{true, false}},
		"the empty one starts":      {[]int{100, 100, 0}, []bool{true, true, false}},
		"this one has fewer agents": {[]int{0, 100}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSpreadHub(t, test.counts...)
				time.Sleep(youngestMoved)
				h.renew(test.accepting...)
				if n := h.spreaders[0].excess(); n != 0 {
					t.Errorf("%d sessions are too many", n)
				}
			})
		})
	}
}

// Sessions that users use move last, and sessions that have just begun do not move.
func TestSpread_ChoosesSessions(t *testing.T) {
	now := time.Now()
	session := func(age time.Duration, used bool) SpreadSession {
		return SpreadSession{Since: now.Add(-age), Used: used}
	}
	all := []SpreadSession{session(time.Hour, true), session(time.Second, false), session(2*time.Minute, false), session(5*time.Minute, false)}
	var got []string
	for _, s := range chooseSessions(all, 10, now) {
		got = append(got, fmt.Sprint(now.Sub(s.Since), " ", s.Used))
	}
	if want := []string{"5m0s false", "2m0s false", "1h0m0s true"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := len(chooseSessions(all, 1, now)); n != 1 {
		t.Errorf("%d sessions instead of 1", n)
	}
}

// A load balancer can send every agent back to the same replica. The replica asks them ever more rarely.
func TestSpread_GivesUpIfAgentsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSpreadHub(t, 100, 0)
		h.selects = func(from int) int { return from }
		elapse, stop := h.start()
		elapse(time.Hour)
		first := h.spreaders[0].Moved()
		elapse(5 * time.Hour)
		stop()
		if more := h.spreaders[0].Moved() - first; first == 0 || more > 6*20 {
			t.Errorf("%d agents moved in the first hour, %d in the next five", first, more)
		}
	})
}

// A replica that shuts down moves its agents to the others, at a bounded rate, and returns when the last one has arrived.
func TestDrain_MovesAgents(t *testing.T) {
	for name, test := range map[string]struct {
		counts   []int
		draining []bool
		connects time.Duration
		within   time.Duration // it returns
		left     int
	}{
		"a few agents":                      {counts: []int{20, 20, 20}, connects: time.Second, within: time.Second + drainInterval},
		"many agents, one target":           {counts: []int{800, 800}, connects: time.Second, within: 9 * time.Second},
		"many agents, three targets":        {counts: []int{2400, 2400, 2400, 2400}, connects: time.Second, within: 9 * time.Second},
		"too many agents":                   {counts: []int{5000, 5000}, connects: time.Second, within: 15 * time.Second, left: 3500},
		"no agents":                         {counts: []int{0, 100}},
		"alone":                             {counts: []int{100}, left: 100},
		"the other one drains":              {counts: []int{100, 100}, draining: []bool{true, true}, left: 100},
		"one of the others drains":          {counts: []int{100, 100, 100}, draining: []bool{true, false, true}, connects: time.Second, within: 2 * time.Second},
		"agents do not arrive in this time": {counts: []int{100, 100}, connects: time.Minute, within: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSpreadHub(t, test.counts...)
				copy(h.draining, append(test.draining, true))
				h.draining[0] = true
				accepting := 0
				for _, drains := range h.draining {
					if !drains {
						accepting++
					}
				}
				h.selects = func(int) int {
					for i, drains := range h.draining {
						if !drains {
							return i
						}
					}
					return -1
				}
				h.connects = test.connects
				h.renew()
				var most int
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second-time.Millisecond)
				defer cancel()
				done := make(chan struct{})
				began := time.Now()
				go func() {
					defer close(done)
					h.spreaders[0].Drain(ctx)
				}()
				for ended, before := false, uint64(0); !ended; {
					select {
					case <-done:
						ended = true
					case <-time.After(time.Second):
						h.renew()
					}
					moved := h.spreaders[0].Moved()
					most, before = max(most, int(moved-before)), moved
				}
				if took := time.Since(began); took > test.within || took < min(test.connects, test.within-drainInterval) {
					t.Errorf("took %v, at most %v, and agents need %v", took, test.within, test.connects)
				}
				if left := len(h.of(0)); left != test.left {
					t.Errorf("%d sessions are left, want %d", left, test.left)
				}
				if limit := accepting * drainPerSecond * 11 / 10; most > limit {
					t.Errorf("%d agents were asked in a second, at most %d", most, limit)
				}
				if test.connects < 15*time.Second && int(h.spreaders[0].Moved()) != test.counts[0]-test.left {
					t.Errorf("%d agents were asked of %d", h.spreaders[0].Moved(), test.counts[0])
				}
				synctest.Wait()
				time.Sleep(test.connects)
			})
		})
	}
}

// A replica that drains keeps its agents while the others start, and does not ask agents because it has more than its share.
func TestDrain_WaitsForReplicaThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSpreadHub(t, 100, 0)
		h.draining[0] = true
		h.selects = func(int) int { return 1 }
		h.renew(false, false)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.spreaders[0].Drain(t.Context())
		}()
		time.Sleep(5 * time.Second)
		if n := len(h.of(0)); n != 100 {
			t.Errorf("%d sessions are left before the other replica accepts agents", n)
		}
		running := make(chan struct{})
		go func() {
			defer close(running)
			_ = h.spreaders[0].Run(t.Context())
		}()
		<-running
		h.renew(false, true)
		<-done
		if n := len(h.of(1)); n != 100 {
			t.Errorf("%d agents have moved", n)
		}
	})
}

// Sessions that users use move last.
func TestDrain_Order(t *testing.T) {
	now := time.Now()
	session := func(age time.Duration, used bool) SpreadSession {
		return SpreadSession{Since: now.Add(-age), Used: used}
	}
	var got []string
	for _, s := range inOrder([]SpreadSession{session(time.Hour, true), session(time.Second, false), session(time.Minute, false)}) {
		got = append(got, fmt.Sprint(now.Sub(s.Since), " ", s.Used))
	}
	if want := []string{"1m0s false", "1s false", "1h0m0s true"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
