package engine

import "testing"

// The owner changed an item and then lost it while disconnected, and the replica cannot delete it. Both sides count
// what the replica has.
func TestOwner_CountsItemInUseAsReplicaHasIt(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.connect()
	key := Key{Name: "p"}
	w.hub.store.put("project", key, func(o *object) { o.content = "v1" })
	w.wait(200 * Second)
	w.cut(false)
	w.hub.store.put("project", key, func(o *object) { o.content = "v2" })
	w.hub.store.delete("project", key)
	w.agent.store.refuse["project p"] = refusal{code: InUse, message: "an Application still uses this project"}
	w.connect()
	w.wait(400 * Second)
	if at := w.hub.scope("project").InSyncAt; at <= w.now-130*Second {
		t.Errorf("the hub knows only how it was %d s before", (w.now-at)/Second)
	}
	if n := w.hub.scope("project").Rejected; n != 1 {
		t.Errorf("%d are rejected", n)
	}

	delete(w.agent.store.refuse, "project p")
	w.wait(400 * Second)
	if len(w.agent.store.contents("project")) != 0 {
		t.Error("it is not removed when it can be")
	}
	if err := w.equal("project"); err != nil {
		t.Error(err)
	}
}
