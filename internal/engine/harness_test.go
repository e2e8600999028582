package engine

import (
	"fmt"
	"slices"
)

// reporter is a testing.T or a rapid.T.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world is a hub, an agent, and a pipe in each direction between them.
type world struct {
	t       reporter
	now     Time
	hub     *side
	agent   *side
	session uint64
	epoch   Epoch
	names   *names
	trace   func(format string, args ...any) // if nil, nothing is recorded
	check   bool                             // invariants after every step
	onPass  func(*side)                      // before a side's oldest message is delivered; nil: nothing
}

// envelope is a message on its way.
type envelope struct {
	session uint64
	message Message
}

// side is one end: a Peer, its API server, and its messages in flight.
type side struct {
	w       *world
	name    string
	hub     bool
	cfg     Config
	peer    *Peer
	store   *store
	other   *side
	pipe    []envelope
	live    map[uint64]bool // sessions whose connection is up
	todo    []Input
	slow    bool              // Begin comes by hand
	held    map[string]string // by scope: what waits for a confirmation
	bytes   int               // sent, roughly as on the wire
	sent    int               // messages
	applies int
	removes int
	events  map[EventType]int
	history []envelope // the last messages that this side has sent
}

// GoString keeps the log of a failing property readable.
func (s *side) GoString() string { return s.name }

// testScopes are four scopes as a managed agent has them.
func testScopes(hub bool) []ScopeConfig {
	down, up := Owner, Replica
	if !hub {
		down, up = up, down
	}
	return []ScopeConfig{
		{Name: "project", Role: down},
		{Name: "application", Role: down, DependsOn: "project"},
		{Name: "status", Role: up, Style: Attached},
		{Name: "command", Role: down, Style: OneShot},
	}
}

func newWorld(t reporter, tune Tuning) *world {
	w := &world{t: t, now: 1000 * Second, names: newNames(), epoch: Epoch{Incarnation: 1}, check: true}
	w.hub = newSide(w, "hub", true, tune)
	w.agent = newSide(w, "agent", false, tune)
	w.hub.other, w.agent.other = w.agent, w.hub
	return w
}

func newSide(w *world, name string, hub bool, tune Tuning) *side {
	s := &side{w: w, name: name, hub: hub, live: map[uint64]bool{}, events: map[EventType]int{}, held: map[string]string{}}
	s.cfg = Config{Hub: hub, Scopes: testScopes(hub), Mode: "managed", Mapping: "namespace", Tuning: tune,
		Hello: &Hello{ClusterUID: "cluster-1"}}
	s.store = newStore(s, name+"-store")
	s.boot()
	return s
}

// boot starts the process again: the objects are all that is left.
func (s *side) boot() {
	s.peer = NewPeer(s.cfg, s.store)
	s.todo = s.store.allInputs()
	s.store.waiting = nil
}

// do gives one input to the Peer and carries out what it says.
func (s *side) do(in Input) {
	s.todo = append(s.todo, in)
	for len(s.todo) > 0 {
		next := s.todo[0]
		s.todo = s.todo[1:]
		for _, e := range s.peer.Step(s.w.now, next) {
			s.effect(e)
		}
		if s.w.check {
			checkInvariants(s.w.t, s.peer)
		}
	}
}

func (s *side) effect(e Effect) {
	switch e := e.(type) {
	case Send:
		s.w.names.recordKeys(e.Message)
		s.bytes += estimate(e.Message)
		s.sent++
		if s.w.trace != nil {
			s.w.trace("%-5s > %s", s.name, s.w.names.message(e.Message))
		}
		if s.live[e.Session] {
			s.pipe = append(s.pipe, envelope{e.Session, e.Message})
			s.history = append(s.history[max(0, len(s.history)-60):], envelope{e.Session, e.Message})
		}
	case CloseSession:
		if s.w.trace != nil {
			s.w.trace("%-5s x cut %s", s.name, e.Code)
		}
		if s.live[e.Session] {
			delete(s.live, e.Session)
			s.todo = append(s.todo, Disconnected{e.Session})
			s.pipe = append(s.pipe, envelope{session: e.Session}) // the end comes after what was said
		}
	case Apply:
		s.applies++
		s.store.queueWrite(e)
	case Remove:
		s.removes++
		s.store.queueWrite(e)
	case RecordAlias:
		s.store.annotate(e)
	case Event:
		s.events[e.Type]++
		if s.w.trace != nil {
			s.w.trace("%-5s * %s", s.name, s.w.names.event(e))
		}
		switch {
		case e.Type == Opened && !s.slow:
			s.todo = append(s.todo, Begin{})
		case e.Type == HoldStarted:
			s.held[e.Scope] = e.Held.ID
		}
	}
}

// connect makes a new connection; the older one, if any, stays up until the hub or the agent cuts it.
func (w *world) connect() {
	w.session++
	w.epoch.Attempt++
	w.hub.live[w.session], w.agent.live[w.session] = true, true
	w.hub.do(Connected{Session: w.session, Store: w.hub.store.id})
	w.agent.do(Connected{Session: w.session, Epoch: w.epoch, Store: w.agent.store.id})
}

// dropSession ends a connection at both ends; each learns of it in its own time.
func (w *world) dropSession(session uint64) {
	for _, s := range []*side{w.hub, w.agent} {
		if s.live[session] {
			delete(s.live, session)
			s.todo = append(s.todo, Disconnected{session})
		}
	}
}

// cut takes the connection away. What is in the pipes is lost, unless late messages are to be played.
func (w *world) cut(keep bool) {
	w.dropSession(w.session)
	if !keep {
		w.hub.pipe, w.agent.pipe = nil, nil
	}
	w.work()
}

// work lets both sides do what is waiting at home.
func (w *world) work() {
	for _, s := range []*side{w.hub, w.agent} {
		for len(s.todo) > 0 {
			next := s.todo[0]
			s.todo = s.todo[1:]
			s.do(next)
		}
	}
}

// deliverOne delivers the oldest message of a side; false: there is none.
func (s *side) deliverOne() bool {
	if len(s.pipe) == 0 {
		return false
	}
	if s.w.onPass != nil {
		s.w.onPass(s)
	}
	e := s.pipe[0]
	s.pipe = s.pipe[1:]
	switch {
	case e.message != nil:
		s.other.do(Received{e.session, e.message})
	case s.other.live[e.session]:
		delete(s.other.live, e.session)
		s.other.do(Disconnected{e.session})
	}
	return true
}

// deliver passes messages until both pipes are empty.
func (w *world) deliver() {
	for i := 0; ; i++ {
		w.work()
		hub, agent := w.hub.deliverOne(), w.agent.deliverOne()
		if !hub && !agent && len(w.hub.todo)+len(w.agent.todo) == 0 {
			return
		}
		if i > 200_000 {
			w.t.Fatalf("the two sides do not come to rest")
		}
	}
}

// wait lets time pass, with alarms and messages as they come.
func (w *world) wait(d Time) {
	end := w.now + d
	for i := 0; ; i++ {
		w.deliver()
		next, who := end+1, (*side)(nil)
		for _, s := range []*side{w.hub, w.agent} {
			if t, ok := s.peer.NextWake(); ok && t < next {
				next, who = t, s
			}
		}
		if who == nil || next > end {
			w.now = end
			return
		}
		if next <= w.now {
			next = w.now
		}
		w.now = next
		who.do(Tick{})
		if i > 100_000 {
			w.t.Fatalf("%s asks to be woken again and again", who.name)
		}
	}
}

// equal reports whether owner and replica of a scope hold the same.
func (w *world) equal(scope string) error {
	owner, replica := w.hub, w.agent
	if w.agent.peer.owners[scope] != nil {
		owner, replica = replica, owner
	}
	want, got := owner.store.contents(scope), replica.store.contents(scope)
	for _, k := range slices.Sorted(keysOf(want, got)) {
		a, inA := want[k]
		b, inB := got[k]
		if inA != inB || a != b {
			return fmt.Errorf("%s %s: owner has %q (%v), replica %q (%v)", scope, k, a, inA, b, inB)
		}
	}
	return nil
}

func keysOf(ms ...map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for _, m := range ms {
			for k := range m {
				if !seen[k] {
					seen[k] = true
					if !yield(k) {
						return
					}
				}
			}
		}
	}
}
