package engine

import "testing"

// An item that asks to leave the object alone counts as equal to whatever the object holds, and nothing is written for
// it.
func TestLeftUnchanged_CountsAsEqual(t *testing.T) {
	w := atRest(t)
	key := Key{Name: "a"}
	writes := w.agent.store.id.Revision
	w.hub.store.put("application", key, func(o *object) { o.content = "leave 1" })
	w.wait(200 * Second)
	proven := func(when string) {
		t.Helper()
		if at := w.hub.scope("application").InSyncAt; at <= w.now-100*Second {
			t.Errorf("%s: the hub knows only how it was %d s before", when, (w.now-at)/Second)
		}
		if got := w.agent.store.contents("application")["a"]; got != "v1" {
			t.Errorf("%s: the object is now %q", when, got)
		}
		if s := w.agent.scope("application"); s.Diverged != 0 || s.Rejected != 0 {
			t.Errorf("%s: %+v", when, s)
		}
	}
	proven("left")
	for _, again := range []struct {
		when string
		do   func()
	}{
		{"in a new session", func() { w.cut(false) }},
		{"by a new agent", func() { w.cut(false); w.agent.boot() }},
		{"by a new hub", func() { w.cut(false); w.hub.boot() }},
	} {
		again.do()
		w.connect()
		w.wait(200 * Second)
		proven(again.when)
	}
	if w.agent.store.id.Revision != writes || w.agent.store.of("application")[key].alias != (Alias{}) || w.agent.events[Aliased] != 0 {
		t.Errorf("something was written or reported: %d writes, alias %v, %d events", w.agent.store.id.Revision-writes,
			w.agent.store.of("application")[key].alias, w.agent.events[Aliased])
	}

	// A user changes it on the replica side: that is kept as well.
	w.agent.store.put("application", key, func(o *object) { o.content = "theirs" })
	w.wait(700 * Second)
	if got := w.agent.store.contents("application")["a"]; got != "theirs" {
		t.Errorf("a change was undone: %q", got)
	}
	if at := w.hub.scope("application").InSyncAt; at <= w.now-100*Second {
		t.Error("after a change the hub never calls it proven")
	}

	// The owner speaks of content again.
	w.hub.store.put("application", key, func(o *object) { o.content = "v2" })
	w.wait(200 * Second)
	if err := w.equal("application"); err != nil {
		t.Error(err)
	}
	if w.agent.store.of("application")[key].alias != (Alias{}) || w.agent.events[Aliased] != 0 {
		t.Error("an alias was recorded")
	}
}

// Back to the content that the object holds: nothing is written.
func TestLeftUnchanged_EndsWithNextItem(t *testing.T) {
	w := atRest(t)
	key := Key{Name: "a"}
	writes := w.agent.store.id.Revision
	for _, content := range []string{"leave 1", "v1", "leave 2", "leave 3", "v1"} {
		w.hub.store.put("application", key, func(o *object) { o.content = content })
		w.wait(70 * Second)
	}
	if w.agent.store.id.Revision != writes || w.agent.store.of("application")[key].alias != (Alias{}) || w.agent.events[Aliased] != 0 {
		t.Errorf("something was written or reported: %d writes, alias %v", w.agent.store.id.Revision-writes, w.agent.store.of("application")[key].alias)
	}
	if at := w.hub.scope("application").InSyncAt; at <= w.now-100*Second {
		t.Error("the hub does not call it proven")
	}
}

// Where there is no object, the item is refused and nothing is created.
func TestLeftUnchanged_RejectedWithoutObject(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.connect()
	w.agent.store.put("application", Key{Name: "theirs"}, func(o *object) { o.content = "x" })
	for _, name := range []string{"missing", "theirs"} {
		w.hub.store.put("application", Key{Name: name}, func(o *object) { o.content = "leave" })
	}
	w.wait(200 * Second)
	if len(w.agent.store.contents("application")) != 0 || len(w.agent.store.of("application")) != 1 {
		t.Errorf("created or adopted: %v", w.agent.store.contents("application"))
	}
	if n := w.hub.scope("application").Rejected; n != 2 {
		t.Errorf("%d are rejected", n)
	}
	w.hub.store.put("application", Key{Name: "missing"}, func(o *object) { o.content = "v1" })
	w.wait(Second)
	if w.agent.store.contents("application")["missing"] != "v1" {
		t.Error("it is not sent when it may be")
	}
}
