package hublease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
)

const (
	testDuration = time.Minute
	testMaxLag   = 10 * time.Minute
)

// thirdCluster is a Lease in virtual time, with delays and faults from a seed.
type thirdCluster struct {
	mu      sync.Mutex
	random  *rand.Rand
	lease   Record
	version int
	cut     map[string]bool // hubs that cannot reach it
	faults  bool
	taken   func(hub string) // if not nil: a standby takes the Lease over
}

var errUnreachable = errors.New("connection refused")

// pass delays a request, and reports whether it arrives.
func (c *thirdCluster) pass(ctx context.Context, hub string) error {
	c.mu.Lock()
	delay, lost := time.Duration(0), c.cut[hub]
	if c.faults {
		delay = time.Duration(c.random.IntN(3000)) * time.Millisecond
		lost = lost || c.random.IntN(10) == 0
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
	}
	if lost {
		return errUnreachable
	}
	return nil
}

// connection is the third cluster as one hub reaches it.
type connection struct {
	*thirdCluster
	hub string
}

func (c connection) read(ctx context.Context) (Record, string, time.Duration, error) {
	if err := c.pass(ctx, c.hub); err != nil {
		return Record{}, "", 0, err
	}
	c.mu.Lock()
	l, version := c.lease, c.version
	c.mu.Unlock()
	if version == 0 {
		return Record{}, "", 0, c.pass(ctx, c.hub)
	}
	return l, strconv.Itoa(version), testDuration, c.pass(ctx, c.hub) // the answer can be lost too
}

func (c connection) write(ctx context.Context, resourceVersion string, l Record, _ time.Duration) error {
	if err := c.pass(ctx, c.hub); err != nil {
		return err
	}
	c.mu.Lock()
	is := ""
	if c.version > 0 {
		is = strconv.Itoa(c.version)
	}
	if is != resourceVersion {
		c.mu.Unlock()
		return errors.New(http.StatusText(http.StatusConflict))
	}
	if c.taken != nil && c.lease.Holder != "" && l.Holder != "" && c.lease.Holder != l.Holder {
		c.taken(c.hub)
	}
	c.version++
	c.lease = l
	c.mu.Unlock()
	return c.pass(ctx, c.hub)
}

// testHub is a hub with its stored state.
type testHub struct {
	uid string

	mu      sync.Mutex
	state   hubstate.State
	serving int           // principal replicas that serve agents
	served  int           // how often one began to
	ahead   time.Duration // of its clock
	proven  time.Time     // when the standby was last proven to have everything
	lease   *Lease        // of a process
}

func (h *testHub) reason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease == nil {
		return ""
	}
	return h.lease.Reason()
}

// clock is the wall clock of the hub.
func (h *testHub) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.ahead)
}

// replicate records that a standby has everything of another hub.
func (h *testHub) replicate(of *testHub, revision uint64) {
	h.set(func(s *hubstate.State) {
		if s.Role == hubstate.Standby {
			h.proven = time.Now()
			*s = hubstate.Proven(*s, engine.Store{UID: of.uid, Revision: revision}, h.proven.Add(h.ahead).Unix())
		}
	})
}

func (h *testHub) read(context.Context) (hubstate.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, nil
}

func (h *testHub) replace(_ context.Context, from, to hubstate.State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != from {
		return errRestart
	}
	h.state = to
	return nil
}

func (h *testHub) set(change func(*hubstate.State)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.state)
}

func (h *testHub) serve(delta int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving += delta
	h.served += max(0, delta)
}

func (h *testHub) serves() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.serving > 0
}

// run is a principal replica: it starts again after each end, as Kubernetes does.
func (h *testHub) run(ctx context.Context, third *thirdCluster) {
	for ctx.Err() == nil {
		state, _ := h.read(ctx)
		l := &Lease{lease: connection{third, h.uid}, states: h, clusterUID: h.uid, state: state, duration: testDuration, maxLag: testMaxLag, clock: h.clock, log: slog.New(slog.DiscardHandler)}
		h.set(func(*hubstate.State) { h.lease = l })
		h.process(ctx, l)
		time.Sleep(time.Second)
	}
}

func (h *testHub) process(ctx context.Context, l *Lease) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // the principal watches the state of its hub
		for ctx.Err() == nil {
			if s, _ := h.read(ctx); s.Role != l.state.Role || s.Generation != l.state.Generation {
				cancel()
			}
			time.Sleep(time.Second)
		}
	}()
	if l.state.Role == hubstate.Standby {
		_ = l.Follow(ctx)
		return
	}
	if err := l.Hold(ctx); err != nil {
		return
	}
	h.serve(1)
	defer h.serve(-1)
	_ = l.Renew(ctx)
}

// pair is an active hub, its standby and the third cluster.
type pair struct {
	*testing.T
	a, b  *testHub
	third *thirdCluster
}

// eachSecond checks that at most one hub serves agents.
func (p *pair) eachSecond(n int, also func(int)) {
	p.Helper()
	for i := range n {
		also(i)
		time.Sleep(time.Second)
		if p.a.serves() && p.b.serves() {
			p.Fatalf("after %d s two hubs serve agents", i)
		}
	}
}

// withPair runs two replicas of each of two hubs in virtual time.
func withPair(t *testing.T, seed uint64, f func(p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		p := &pair{T: t, third: &thirdCluster{random: rand.New(rand.NewPCG(seed, 1)), cut: map[string]bool{}},
			a: &testHub{uid: "a", state: hubstate.State{Identity: "group", Role: hubstate.Active, Generation: 1}},
			b: &testHub{uid: "b", state: hubstate.State{Identity: "group", Role: hubstate.Standby, Generation: 1, Predecessor: engine.Store{UID: "a", Revision: 9}}}}
		p.b.replicate(p.a, 9)
		for _, h := range []*testHub{p.a, p.a, p.b, p.b} {
			wg.Go(func() { h.run(ctx, p.third) })
		}
		f(p)
	})
}

func (p *pair) isolate(hub string, cut bool) {
	p.third.mu.Lock()
	defer p.third.mu.Unlock()
	p.third.cut[hub] = cut
}

func (p *pair) expect(what string, h *testHub, role hubstate.Role, generation uint64, serving int) {
	p.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Role != role || h.state.Generation != generation || h.serving != serving {
		p.Errorf("%s: hub %s is %s, generation %d, %d replicas serve agents; want %s, %d, %d", what, h.uid, h.state.Role, h.state.Generation, h.serving, role, generation, serving)
	}
}

// The standby takes over from a lost hub, which becomes the standby when it is back.
func TestLease_StandbyTakesOver(t *testing.T) {
	withPair(t, 1, func(p *pair) {
		nothing := func(int) {}
		p.eachSecond(300, nothing)
		p.expect("at first", p.a, hubstate.Active, 1, 2)
		p.expect("at first", p.b, hubstate.Standby, 1, 0)
		if p.a.served != 2 {
			t.Errorf("replicas of an active hub began to serve %d times", p.a.served)
		}

		p.isolate("a", true)
		p.eachSecond(150, nothing)
		p.expect("lost", p.a, hubstate.Active, 1, 0)
		p.expect("after the loss", p.b, hubstate.Active, 2, 2)

		p.isolate("a", false)
		p.eachSecond(60, nothing)
		p.expect("back", p.a, hubstate.Standby, 2, 0)
		p.expect("after the return", p.b, hubstate.Active, 2, 2)
		if s, _ := p.a.read(t.Context()); s.Predecessor != (engine.Store{UID: "b"}) {
			t.Errorf("the new standby has received %v", s.Predecessor)
		}

		p.isolate("b", true) // the new standby has received nothing and must not take over
		p.eachSecond(300, nothing)
		p.expect("lost", p.b, hubstate.Active, 2, 0)
		p.expect("not complete", p.a, hubstate.Standby, 2, 0)
	})
}

// Users switch hubs: the demoted hub gives the Lease up, so that the promoted one serves soon.
func TestLease_FollowsPromotionsByUsers(t *testing.T) {
	withPair(t, 1, func(p *pair) {
		nothing := func(int) {}
		p.eachSecond(60, nothing)
		p.a.set(func(s *hubstate.State) { s.Role = hubstate.Standby })
		p.eachSecond(120, nothing)
		p.expect("demoted", p.a, hubstate.Standby, 1, 0)
		p.expect("waits for the user", p.b, hubstate.Standby, 1, 0)
		p.b.set(func(s *hubstate.State) { s.Role, s.Generation = hubstate.Active, 2 })
		p.eachSecond(30, nothing)
		p.expect("promoted", p.b, hubstate.Active, 2, 2)
	})
}

// A replica that has not heard of the demotion of its hub does not take the Lease back that another replica has given up.
func TestLease_StaleReplicaDoesNotTakeItBack(t *testing.T) {
	released := Record{Exists: true, Identity: "group", Generation: 1}
	for name, c := range map[string]struct {
		is    hubstate.Role
		lease Record
		err   error
		held  bool
	}{
		"demoted":             {hubstate.Standby, released, errRestart, false},
		"demoted, no Lease":   {hubstate.Standby, Record{}, errRestart, false},
		"demoted and back":    {hubstate.Active, released, nil, true},
		"active and no Lease": {hubstate.Active, Record{}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			third := &thirdCluster{random: rand.New(rand.NewPCG(1, 1)), lease: c.lease}
			if c.lease.Exists {
				third.version = 1
			}
			h := &testHub{uid: "a", state: hubstate.State{Identity: "group", Role: c.is, Generation: 1}}
			l := &Lease{lease: connection{third, "a"}, states: h, clusterUID: "a", state: hubstate.State{Identity: "group", Role: hubstate.Active, Generation: 1},
				duration: testDuration, clock: time.Now, log: slog.New(slog.DiscardHandler)}
			if _, err := l.step(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("error %v", err)
			}
			if l.Held() != c.held || (third.lease.Holder == "a") != c.held {
				t.Errorf("held %t, the Lease is %+v", l.Held(), third.lease)
			}
		})
	}
}

// A standby that was disconnected from the active hub for too long does not take over. It does as soon as it has everything.
func TestLease_StandbyThatLacksTooMuchWaits(t *testing.T) {
	for name, c := range map[string]struct {
		age, ahead time.Duration // of the record and of the clock, when the active hub is lost
		takes      bool
	}{
		"a recent record": {age: testMaxLag / 2, takes: true},
		"an old record":   {age: 2 * testMaxLag},
		"an old record, and the clock was set back until it seems recent": {age: 2 * testMaxLag, ahead: -2 * testMaxLag},
		"a recent record, and the clock was set back":                     {age: testMaxLag / 2, ahead: -24 * time.Hour},
		"a recent record, and the clock was set forward":                  {age: testMaxLag / 2, ahead: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			withPair(t, 1, func(p *pair) {
				nothing := func(int) {}
				p.eachSecond(int(c.age/time.Second), nothing)
				p.b.set(func(*hubstate.State) { p.b.ahead = c.ahead })
				p.isolate("a", true)
				p.eachSecond(150, nothing)
				if c.takes {
					p.expect("a standby with a recent record", p.b, hubstate.Active, 2, 2)
					return
				}
				p.expect("a standby that may lack too much", p.b, hubstate.Standby, 1, 0)
				if reason := p.b.reason(); !strings.Contains(reason, "is lost, but this standby last had all objects") {
					t.Errorf("the reason is %q", reason)
				}
				p.b.replicate(p.a, 10)
				p.eachSecond(30, nothing)
				p.expect("a standby that has everything", p.b, hubstate.Active, 2, 2)
			})
		})
	}
}

// At no time two hubs serve agents, whatever fails: requests, answers, connections, replicas and clocks. No standby takes over
// that was disconnected from the active hub for too long.
func TestLease_AtMostOneHubServes(t *testing.T) {
	var took, waited int
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withPair(t, seed, func(p *pair) {
				p.third.mu.Lock()
				p.third.faults = true
				p.third.taken = func(hub string) {
					h := map[string]*testHub{"a": p.a, "b": p.b}[hub]
					h.mu.Lock()
					defer h.mu.Unlock()
					took++
					if age := time.Since(h.proven); age > testMaxLag+testDuration+2*Interval(testDuration) {
						t.Errorf("hub %s takes over and was last proven complete %v ago", hub, age)
					}
				}
				p.third.mu.Unlock()
				random := rand.New(rand.NewPCG(seed, 2))
				replicates := true
				p.eachSecond(3600, func(i int) {
					switch {
					case i%600 == 10:
						replicates = random.IntN(3) > 0
					case i%600 == 300 && random.IntN(4) == 0:
						h := []*testHub{p.a, p.b}[random.IntN(2)]
						h.set(func(*hubstate.State) { h.ahead += time.Duration(random.IntN(7200)-3600) * time.Second })
					case i%40 == 0:
						p.isolate("a", random.IntN(3) == 0)
					case i%40 == 20:
						p.isolate("b", random.IntN(3) == 0)
					case replicates && random.IntN(100) == 0: // replication is complete again
						p.a.replicate(p.b, uint64(i))
						p.b.replicate(p.a, uint64(i))
					}
					for _, h := range []*testHub{p.a, p.b} {
						if strings.Contains(h.reason(), "this standby last had all objects") {
							waited++
						}
					}
				})
			})
		})
	}
	if took < 60 || waited < 1000 {
		t.Errorf("a standby took over %d times, and lacked too much for %d seconds only: the test shows nothing", took, waited)
	}
}
