package engine

import "testing"

// An agent that hangs answers pings forever: its connection lives, and only what it should say is missing.
func TestSession_ClosesUnresponsivePeer(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.connect()
	w.deliver()
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	hang := func(d Time) { // the hub goes on alone
		for end := w.now + d; ; {
			next, ok := w.hub.peer.NextWake()
			if !ok || next > end {
				w.now = end
				return
			}
			w.now = max(w.now, next)
			w.hub.do(Tick{})
		}
	}
	hang(170 * Second)
	if _, open := w.hub.peer.Session(); !open {
		t.Fatal("given up too soon: it may be slow")
	}
	hang(70 * Second)
	if _, open := w.hub.peer.Session(); open {
		t.Fatal("the peer did not answer for minutes, and the hub reports it as connected")
	}
	w.cut(false)
	w.connect()
	w.deliver()
	if err := w.equal("application"); err != nil {
		t.Error(err)
	}
}

// A peer without unacknowledged items may be silent, and a slow peer may answer late.
func TestSession_KeepsSlowPeer(t *testing.T) {
	w := newWorld(t, Tuning{})
	w.connect()
	w.deliver()
	w.agent.store.slow = true // its API server does not take the write
	w.hub.store.put("application", Key{Name: "a"}, func(o *object) { o.content = "v1" })
	w.wait(3600 * Second)
	if _, open := w.hub.peer.Session(); !open {
		t.Error("given up although it sends its beacons")
	}
}
