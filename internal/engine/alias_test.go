package engine

import (
	"fmt"
	"testing"
)

// pruned is a connected world whose agent drops the field "+x" of its Applications.
func pruned(t *testing.T, names ...string) *world {
	t.Helper()
	w := newWorld(t, Tuning{})
	w.agent.store.prune["application"] = "+x"
	for _, name := range names {
		w.hub.store.put("application", Key{Name: name}, func(o *object) { o.content = "v1+x" })
	}
	w.hub.do(Tick{})
	w.agent.do(Tick{})
	w.connect()
	w.deliver()
	return w
}

func (w *world) lossy() int {
	for _, s := range w.agent.peer.Status().Scopes {
		if s.Name == "application" {
			return s.Lossy
		}
	}
	return -1
}

func (w *world) stored(name string) string {
	return w.agent.store.of("application")[Key{Name: name}].content
}

func TestAlias_LossyIsCheckedWithGrowingDelay(t *testing.T) {
	w := pruned(t, "a")
	w.wait(2 * 3600 * Second)
	before := w.agent.applies
	if before < 4 || before > 10 {
		t.Errorf("%d writes in the first two hours", before)
	}
	w.wait(24 * 3600 * Second)
	if n := w.agent.applies - before; n < 24 || n > 48 {
		t.Errorf("%d writes in a day", n)
	}
	if w.lossy() != 1 || w.agent.events[Aliased] != 1 {
		t.Errorf("%d lossy, reported %d times", w.lossy(), w.agent.events[Aliased])
	}
}

func TestAlias_HarmlessIsNotCheckedByTime(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.agent.store.normalise["application"] = "+default"
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.hub.do(Tick{})
	w.agent.do(Tick{})
	w.connect()
	w.deliver()
	w.wait(24 * 3600 * Second)
	if w.agent.applies != 1 || w.lossy() != 0 {
		t.Errorf("%d writes, %d lossy", w.agent.applies, w.lossy())
	}
	w.agent.do(Recheck{Scope: "application", Key: Key{Name: "a"}})
	w.wait(maxRecheckDelay)
	if w.agent.applies != 2 {
		t.Errorf("%d writes after what it rests on has changed", w.agent.applies)
	}
	w.wait(24 * 3600 * Second)
	if w.agent.applies != 2 {
		t.Errorf("%d writes a day later", w.agent.applies)
	}
}

func TestAlias_FieldIsWrittenOnceItCanBeStored(t *testing.T) {
	for _, c := range []struct {
		name   string
		within Time
		event  func(*world)
	}{
		{"after a recheck of the scope", maxRecheckDelay, func(w *world) { w.agent.do(Recheck{Scope: "application"}) }},
		{"after a recheck of the item", maxRecheckDelay, func(w *world) { w.agent.do(Recheck{Scope: "application", Key: Key{Name: "a"}}) }},
		{"after a recheck without a session", maxRecheckDelay, func(w *world) {
			w.cut(false)
			w.agent.do(Recheck{Scope: "application"})
			w.wait(60 * Second)
			w.connect()
			w.deliver()
		}},
		{"after constant rechecks", 0, func(w *world) {
			for range 5 {
				w.agent.do(Recheck{Scope: "application"})
				w.wait(maxRecheckDelay / 4)
			}
		}},
		{"after a recheck before the API server serves the new schema", minLossyLifetime, func(w *world) {
			w.agent.store.prune["application"] = "+x"
			w.agent.do(Recheck{Scope: "application"})
			w.wait(maxRecheckDelay)
			w.agent.store.prune["application"] = ""
		}},
		{"without a recheck, the item was changed", minLossyLifetime, func(w *world) {
			w.agent.store.prune["application"] = "+x"
			w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v2+x" })
			w.deliver()
			w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1+x" })
			w.deliver()
			w.agent.store.prune["application"] = ""
		}},
		{"without a recheck", maxLossyLifetime, func(*world) {}},
		{"without a recheck, and the session is renewed all the time", maxLossyLifetime, func(w *world) {
			for range 40 {
				w.cut(false)
				w.connect()
				w.deliver()
				w.wait(60 * Second)
			}
		}},
		{"without a recheck, by a new process", maxLossyLifetime, func(w *world) {
			w.cut(false)
			w.agent.boot()
			w.agent.do(Tick{})
			w.connect()
			w.deliver()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := pruned(t, "a")
			w.wait(4 * 3600 * Second)
			w.agent.store.prune["application"] = ""
			c.event(w)
			w.wait(c.within)
			if got := w.stored("a"); got != "v1+x" || w.lossy() != 0 {
				t.Errorf("stored is %q, %d lossy", got, w.lossy())
			}
			// What is recorded says nothing of what is stored now.
			w.agent.boot()
			w.agent.do(Tick{})
			if n := len(w.agent.peer.replicas["application"].aliasEnds); n != 0 {
				t.Errorf("%d aliases that will end", n)
			}
		})
	}
}

// An alias that has ended and is still recorded does not come back by being seen, even if it is not known in this
// session what the owner has.
func TestAlias_EndedStaysEnded(t *testing.T) {
	w := pruned(t, "a")
	r := w.agent.peer.replicas["application"]
	it := r.get(Key{Name: "a"})
	delete(r.aliasEnds, it.hash)
	r.endAlias(it)
	it.want = Version{}
	w.agent.do(w.agent.store.inputFor("application", it.key))
	if it.aliasActive() || it.alias.Written.IsZero() {
		t.Errorf("active: %t, alias %v", it.aliasActive(), it.alias)
	}
}

// An alias that was recorded under another CRD is checked soon, also if it is seen after the CRD was reported as changed: another
// item had another alias then.
func TestAlias_OutdatedIsCheckedSoon(t *testing.T) {
	w := pruned(t, "a")
	r := w.agent.peer.replicas["application"]
	it := r.get(Key{Name: "a"})
	r.setAlias(it, Alias{}, false)
	it.want = Version{}
	w.agent.store.prune["application"] = ""
	in := w.agent.store.inputFor("application", it.key).(Observe)
	in.Outdated = true
	w.agent.do(in)
	if !it.aliasActive() {
		t.Error("the alias does not count until it is checked")
	}
	w.wait(maxRecheckDelay + 5*Second)
	if got := w.stored("a"); got != "v1+x" || w.lossy() != 0 {
		t.Errorf("stored is %q, %d lossy", got, w.lossy())
	}
}

// Two versions may be stored as the same. The one that was learnt just now is not recorded yet when the object is seen
// with the older one.
func TestAlias_OlderDoesNotReplaceNewer(t *testing.T) {
	w := pruned(t, "a")
	o := w.agent.store.of("application")[Key{Name: "a"}]
	o.alias.Written = VersionOf([]byte("v0"))
	w.agent.do(w.agent.store.inputFor("application", Key{Name: "a"}))
	w.deliver()
	if it := w.agent.peer.replicas["application"].get(Key{Name: "a"}); it.effective() != VersionOf([]byte("v1+x")) || w.agent.applies != 1 {
		t.Errorf("the alias is %v, %d writes", it.alias, w.agent.applies)
	}
}

// While the owner's store is untrusted no update is accepted, so a check could only turn an item that counts as equal
// into one that waits.
func TestAlias_IsNotCheckedWhileStoreIsUntrusted(t *testing.T) {
	w := pruned(t, "a")
	w.cut(false)
	w.hub.store.id.Revision = 50
	w.connect()
	w.deliver()
	if w.agent.peer.Status().StoreHoldID == "" {
		t.Fatal("the store is trusted")
	}
	w.agent.store.prune["application"] = ""
	before := w.agent.applies
	w.agent.do(Recheck{Scope: "application"})
	w.wait(4 * 3600 * Second)
	if w.agent.applies != before || w.agent.events[Rejected] != 0 || w.lossy() != 1 {
		t.Errorf("%d writes, %d rejected, %d lossy", w.agent.applies-before, w.agent.events[Rejected], w.lossy())
	}
	w.agent.do(Confirmed{ID: w.agent.peer.Status().StoreHoldID})
	w.wait(minLossyLifetime)
	if w.stored("a") != "v1+x" {
		t.Errorf("stored is %q after the store was accepted", w.stored("a"))
	}
}

func TestAlias_ChecksAreSpread(t *testing.T) {
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("a%d", i))
	}
	w := pruned(t, names...)
	w.wait(4 * 3600 * Second)
	w.agent.do(Recheck{Scope: "application"})
	before, most := w.agent.applies, 0
	for range int(maxRecheckDelay / Second) {
		n := w.agent.applies
		w.wait(Second)
		most = max(most, w.agent.applies-n)
	}
	if n := w.agent.applies - before; n != len(names) || most > len(names)/2 {
		t.Errorf("%d writes, %d of them in one second", n, most)
	}
}

func TestAlias_EndsWithVersionWithoutTheField(t *testing.T) {
	w := pruned(t, "a")
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v2" })
	w.deliver()
	if w.stored("a") != "v2" || w.lossy() != 0 {
		t.Fatalf("stored is %q, %d lossy", w.stored("a"), w.lossy())
	}
	before := w.agent.applies
	w.wait(24 * 3600 * Second)
	if w.agent.applies != before {
		t.Errorf("%d writes for an alias that is over", w.agent.applies-before)
	}
}

// A change that is put back repeatedly is tolerated, and tried again in the end.
func TestAlias_ContestedContentIsWrittenAgain(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.agent.store.fight["application a"] = "mine"
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.hub.do(Tick{})
	w.agent.do(Tick{})
	w.connect()
	w.deliver()
	w.wait(120 * Second)
	if w.stored("a") != "mine" || w.lossy() != 1 {
		t.Fatalf("stored is %q, %d lossy", w.stored("a"), w.lossy())
	}
	delete(w.agent.store.fight, "application a")
	w.wait(contestedLifetime)
	if w.stored("a") != "v1" || w.lossy() != 0 {
		t.Errorf("stored is %q, %d lossy", w.stored("a"), w.lossy())
	}
}
