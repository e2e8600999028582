package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPeers_Converge lets users, crashes and a bad network loose on two sides, and looks at every step that nothing is
// broken and, when it has become quiet, that both sides hold the same.
func TestPeers_Converge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, Tuning{DeletionBudgetItems: 2, Window: 300, MaxTombstones: 3})
		w.agent.store.never, w.hub.store.never = true, true
		w.hub.do(Tick{})
		w.agent.do(Tick{})
		c := &chaosModel{w: w}
		w.hub.store.story = &history{}
		w.agent.store.story = w.hub.store.story
		t.Repeat(map[string]func(*rapid.T){
			"owner writes":    c.ownerWrites,
			"owner goes on":   c.ownerWrites,
			"owner deletes":   c.ownerDeletes,
			"user interferes": c.userInterferes,
			"API server":      c.apiServer,
			"network":         c.network,
			"network passes":  c.timePasses,
			"network is fine": func(*rapid.T) { c.w.deliver() },
			"and fine again":  func(*rapid.T) { c.w.deliver() },
			"connection":      c.connection,
			"crash":           c.crash,
			"time":            c.time,
			"confirm":         c.confirm,
			"":                func(*rapid.T) { c.foreignUntouched() },
		})
		c.quiet()
	})
}

// GoString keeps the log of a failing property readable.
func (e envelope) GoString() string { return fmt.Sprintf("%d:%T", e.session, e.message) }

type chaosModel struct {
	w       *world
	writes  int
	foreign map[string]string // objects at the agent that are not ours
}

var (
	chaosKeys   = []string{"a", "b", "c", "team/d", "e"}
	chaosScopes = []string{"project", "application", "application", "status", "command"}
)

func drawKey(t *rapid.T) Key { return parseKey(rapid.SampledFrom(chaosKeys).Draw(t, "key")) }

// owner is the side that owns a scope.
func (c *chaosModel) owner(scope string) *side {
	if scope == "status" {
		return c.w.agent
	}
	return c.w.hub
}

func (c *chaosModel) ownerWrites(t *rapid.T) {
	scope, key := rapid.SampledFrom(chaosScopes).Draw(t, "scope"), drawKey(t)
	c.writes++
	content := fmt.Sprintf("v%d", c.writes)
	switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
	case what == 0 && scope == "application":
		content = fmt.Sprintf("deleting%d", c.writes)
	case what == 1:
		content = "often" // comes back again and again
	}
	c.owner(scope).store.put(scope, key, func(o *object) {
		o.content = content
		if scope == "application" {
			o.needs = parseKey(rapid.SampledFrom(chaosKeys[:3]).Draw(t, "project"))
		}
		if scope == "status" {
			o.extra = rapid.SampledFrom([]string{"", "t1", "!t2"}).Draw(t, "extra")
		}
	})
}

func (c *chaosModel) ownerDeletes(t *rapid.T) {
	scope, key := rapid.SampledFrom(chaosScopes).Draw(t, "scope"), drawKey(t)
	owner := c.owner(scope)
	if rapid.Bool().Draw(t, "seen") || owner.store.of(scope)[key] == nil {
		owner.store.delete(scope, key)
		return
	}
	if err := owner.run([]string{"misses", scope, key.String()}); err != nil {
		t.Fatal(err)
	}
	owner.store.attach(scope, key)
}

// userInterferes on the replica's side: with ours, or with an object of their own.
func (c *chaosModel) userInterferes(t *rapid.T) {
	scope, key := rapid.SampledFrom(chaosScopes[:3]).Draw(t, "scope"), drawKey(t)
	st := c.w.agent.store
	name := scope + " " + key.String()
	if rapid.Bool().Draw(t, "delete") {
		delete(c.foreign, name)
		st.delete(scope, key)
		return
	}
	c.writes++ // never the same twice: that would end in an alias
	st.put(scope, key, func(o *object) {
		o.content = fmt.Sprintf("edited%d", c.writes)
		if !o.owned {
			if c.foreign == nil {
				c.foreign = map[string]string{}
			}
			c.foreign[name] = o.content
		}
	})
}

func (c *chaosModel) apiServer(t *rapid.T) {
	s := rapid.SampledFrom([]*side{c.w.hub, c.w.agent}).Draw(t, "side")
	name := rapid.SampledFrom(chaosScopes).Draw(t, "scope") + " " + drawKey(t).String()
	switch rapid.SampledFrom([]string{"slow", "finish", "refuse", "busy", "accept"}).Draw(t, "what") {
	case "slow":
		s.store.slow = rapid.Bool().Draw(t, "really")
	case "finish":
		s.store.slow = false
		s.store.drain()
	case "refuse":
		s.store.refuse[name] = refusal{Invalid, "no"}
	case "busy":
		s.store.refuse[name] = refusal{Unavailable, "later"}
	case "accept":
		delete(s.store.refuse, name)
	}
	c.w.work()
}

func (c *chaosModel) network(t *rapid.T) {
	s := rapid.SampledFrom([]*side{c.w.hub, c.w.agent}).Draw(t, "side")
	if len(s.history) > 0 && rapid.Bool().Draw(t, "late") {
		e := s.history[len(s.history)-1-rapid.IntRange(0, min(len(s.history)-1, 15)).Draw(t, "how late")]
		s.other.do(Received{e.session, e.message})
		return
	}
	if len(s.pipe) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.pipe)-1).Draw(t, "message")
	switch rapid.SampledFrom([]string{"lost", "doubled", "overtaken"}).Draw(t, "fate") {
	case "lost":
		if s.pipe[i].message != nil {
			s.pipe = slices.Delete(s.pipe, i, i+1)
		}
	case "doubled":
		s.pipe = append(s.pipe, s.pipe[i])
	case "overtaken":
		s.pipe[0], s.pipe[i] = s.pipe[i], s.pipe[0]
	}
}

func (c *chaosModel) timePasses(t *rapid.T) {
	for range rapid.IntRange(1, 12).Draw(t, "messages") {
		c.w.hub.deliverOne()
		c.w.agent.deliverOne()
	}
}

func (c *chaosModel) connection(t *rapid.T) {
	switch once := rapid.IntRange(0, 7).Draw(t, "rarely"); {
	case !c.w.agent.live[c.w.session] || once == 0:
		c.w.connect()
	case once == 1:
		c.w.cut(rapid.Bool().Draw(t, "messages arrive late"))
	}
}

func (c *chaosModel) crash(t *rapid.T) {
	if rapid.IntRange(0, 5).Draw(t, "rarely") != 0 {
		return
	}
	s := rapid.SampledFrom([]*side{c.w.hub, c.w.agent}).Draw(t, "side")
	for _, e := range s.store.waiting {
		if rapid.Bool().Draw(t, "the write went through") {
			s.store.write(e)
		}
	}
	if err := s.run([]string{"restart"}); err != nil {
		t.Fatal(err)
	}
}

func (c *chaosModel) time(t *rapid.T) {
	c.w.now += Time(rapid.IntRange(0, 70_000).Draw(t, "milliseconds"))
	c.w.hub.do(Tick{})
	c.w.agent.do(Tick{})
}

func (c *chaosModel) confirm(t *rapid.T) {
	s := rapid.SampledFrom([]*side{c.w.hub, c.w.agent}).Draw(t, "side")
	for _, scope := range []string{"", "project", "application"} {
		s.do(Confirmed{s.held[scope]})
	}
}

func (c *chaosModel) foreignUntouched() {
	for _, name := range slices.Sorted(keysOf(c.foreign)) {
		var scope, key string
		if _, err := fmt.Sscan(name, &scope, &key); err != nil {
			c.w.t.Fatalf("%s: %v", name, err)
		}
		if o := c.w.agent.store.of(scope)[parseKey(key)]; o == nil || o.owned || o.content != c.foreign[name] {
			c.w.t.Fatalf("%s was not ours and has been touched", name)
		}
	}
}

// quiet takes all faults away, gives both sides time, and looks.
func (c *chaosModel) quiet() {
	w := c.w
	for _, s := range []*side{w.hub, w.agent} {
		s.store.slow, s.store.refuse = false, map[string]refusal{}
		s.store.drain()
		s.pipe = nil
	}
	w.cut(false)
	w.connect()
	for range 4 {
		w.wait(400 * Second)
		for _, s := range []*side{w.agent, w.hub} {
			for _, scope := range []string{"", "project", "application"} {
				s.do(Confirmed{s.held[scope]})
			}
		}
	}
	w.wait(400 * Second)
	c.foreignUntouched()
	c.compare()
	for _, s := range []*side{w.hub, w.agent} {
		checkAtRest(w.t, s)
	}
}

// compare holds both sides against each other. What stands in the way of an item, an object that is not ours, stays;
// what is being deleted is nowhere.
func (c *chaosModel) compare() {
	hub, agent := c.w.hub.store, c.w.agent.store
	for _, scope := range []string{"project", "application"} {
		for _, name := range chaosKeys {
			key := parseKey(name)
			want, got := hub.of(scope)[key], agent.of(scope)[key]
			switch {
			case got != nil && !got.owned:
			case want == nil && got == nil:
			case want != nil && strings.HasPrefix(want.content, "deleting") && got == nil:
			case want == nil || got == nil || want.content != got.content:
				c.w.t.Fatalf("%s %s: hub has %+v, agent %+v", scope, key, want, got)
			}
		}
	}
	for _, name := range chaosKeys {
		key := parseKey(name)
		want, got := agent.of("status")[key], hub.of("status")[key]
		if want != nil && got != nil && want.content != got.content {
			c.w.t.Fatalf("status %s: agent has %+v, hub %+v", key, want, got)
		}
		if (got != nil) != (hub.of("application")[key] != nil) {
			c.w.t.Fatalf("status %s exists on its own", key)
		}
		if o := hub.of("command")[key]; o != nil && !slices.Contains(agent.ran, key.String()+"="+o.content) {
			c.w.t.Fatalf("command %s=%s was never carried out", key, o.content)
		}
	}
}

// checkAtRest: when all is said, nothing is left in queues and maps but what objects account for.
func checkAtRest(t reporter, s *side) {
	for _, cfg := range s.cfg.Scopes {
		objects := len(s.store.of(cfg.Name))
		if o := s.peer.owners[cfg.Name]; o != nil {
			if len(o.items) != objects || o.tombstones != 0 || o.inFlight != 0 || o.lists[queued].len+o.lists[blocked].len+o.lists[inFlight].len > 0 {
				t.Fatalf("%s %s: %d objects, %d items, %d tombstones, %d bytes and %d items on their way", s.name, cfg.Name,
					objects, len(o.items), o.tombstones, o.inFlight, o.lists[queued].len+o.lists[blocked].len+o.lists[inFlight].len)
			}
			continue
		}
		r := s.peer.replicas[cfg.Name]
		if len(r.items) > objects+r.rejected || len(r.diverged) > 0 || r.round.active || len(r.guard.held) > 0 || r.load != 0 {
			t.Fatalf("%s %s: %d objects, %d items, %d refused, %d to be asked for, round %v, %d held, load %d", s.name, cfg.Name,
				objects, len(r.items), r.rejected, len(r.diverged), r.round.active, len(r.guard.held), r.load)
		}
		if cfg.Style != OneShot && !r.inSync {
			t.Fatalf("%s %s: not proven equal", s.name, cfg.Name)
		}
	}
}
