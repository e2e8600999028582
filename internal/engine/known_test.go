package engine

import (
	"slices"
	"testing"
)

func TestKnown_RecordDoesNotLowerSeenRevision(t *testing.T) {
	p := NewPeer(Config{Hub: true, KnownStore: Store{UID: "s", Revision: 100}}, nil)
	p.other = Store{UID: "s", Revision: 500} // seen since
	for _, c := range []struct {
		name     string
		recorded Store
		want     Store
	}{
		{"the same record again, because something else about the agent has changed", Store{UID: "s", Revision: 100}, Store{UID: "s", Revision: 500}},
		{"a newer record that still lags behind", Store{UID: "s", Revision: 300}, Store{UID: "s", Revision: 500}},
		{"a record of another replica that has seen more", Store{UID: "s", Revision: 700}, Store{UID: "s", Revision: 700}},
		{"the store regressed, and a user accepted that", Store{UID: "s", Revision: 200}, Store{UID: "s", Revision: 200}},
		{"another store was accepted", Store{UID: "t", Revision: 5}, Store{UID: "t", Revision: 5}},
	} {
		p.Step(1, Known{Store: c.recorded})
		if p.other != c.want {
			t.Errorf("%s: %v", c.name, p.other)
		}
	}
}

// A user has accepted another store, and that is not recorded yet.
func TestKnown_OldRecordDoesNotUndoAnAcceptance(t *testing.T) {
	p := NewPeer(Config{Hub: true, KnownStore: Store{UID: "s", Revision: 100}}, nil)
	accepted := Store{UID: "t", Revision: 9}
	p.other = accepted
	p.Step(1, Known{Store: Store{UID: "s", Revision: 100}}) // something else about the agent has changed
	if p.other != accepted {
		t.Errorf("the known store is %v again", p.other)
	}
}

func TestKnown_SeenOfEarlierProcesses(t *testing.T) {
	scopes := []ScopeConfig{{Name: "application", Role: Replica}, {Name: "repository", Role: Replica}}
	p := NewPeer(Config{Scopes: scopes, KnownStore: Store{UID: "s", Revision: 500}, KnownSeen: []Seen{{"application", 400}, {"unknown", 9}}}, nil)
	if got, want := p.Seen(), []Seen{{"application", 400}, {"repository", 500}}; !slices.Equal(got, want) {
		t.Errorf("seen %v, want %v", got, want)
	}
}

// Another principal replica, or the next process of this one, must know that a store is untrusted. A stale record must
// not make this end trust it.
func TestKnown_StaleRecordKeepsStoreUntrusted(t *testing.T) {
	type record struct {
		store   Store
		suspect bool
	}
	for title, c := range map[string]struct {
		finds   bool // this end has found out by itself
		records []record
		want    bool
	}{
		"another replica has found out":                {false, []record{{Store{UID: "s", Revision: 500}, true}}, true},
		"and a user has accepted it":                   {false, []record{{Store{UID: "s", Revision: 500}, true}, {Store{UID: "s", Revision: 300}, false}}, false},
		"and a user has accepted another":              {false, []record{{Store{UID: "s", Revision: 500}, true}, {Store{UID: "t", Revision: 9}, false}}, false},
		"this end has, and nothing of it is recorded":  {true, []record{{Store{UID: "s", Revision: 100}, false}}, true},
		"this end has, and an older record is written": {true, []record{{Store{UID: "s", Revision: 400}, false}}, true},
		"this end has, it is recorded, and accepted":   {true, []record{{Store{UID: "s", Revision: 500}, true}, {Store{UID: "s", Revision: 300}, false}}, false},
		"this end has, and another store is accepted":  {true, []record{{Store{UID: "t", Revision: 9}, false}}, false},
	} {
		p := NewPeer(Config{Hub: true, KnownStore: Store{UID: "s", Revision: 100}}, nil)
		p.other = Store{UID: "s", Revision: 500} // seen since
		if c.finds {
			p.checkStore(Store{UID: "s", Revision: 300})
		}
		for _, r := range c.records {
			p.Step(1, Known{Store: r.store, StoreUntrusted: r.suspect})
		}
		if p.storeUntrusted != c.want || (p.storeHoldID != "") != c.want {
			t.Errorf("%s: suspect is %v, %q", title, p.storeUntrusted, p.storeHoldID)
		}
	}
}

// The history mark of an agent's store is recorded with its revision.
func TestKnown_HistoryMark(t *testing.T) {
	at := func(revision, mark uint64) Store {
		return Store{UID: "s", Revision: revision, Mark: HistoryMark{Record: "lease", Number: mark}}
	}
	p := NewPeer(Config{Hub: true, KnownStore: at(100, 4)}, nil)
	for _, c := range []struct {
		name           string
		recorded, want Store
	}{
		{"another replica has received a mark", at(100, 6), at(100, 6)},
		{"and one that lags behind has written", at(200, 6), at(200, 6)},
		{"the cluster was restored and has written past, and a user has accepted that", at(300, 2), at(300, 2)},
	} {
		p.Step(1, Known{Store: c.recorded})
		if p.other != c.want {
			t.Errorf("%s: %v", c.name, p.other)
		}
	}
	p.markStoreUntrusted()
	p.Step(1, Known{Store: at(300, 3)})
	if !p.storeUntrusted {
		t.Error("a mark of a lagging record makes the store trusted")
	}
}

// One confirmation does, whichever replica has the session by then.
func TestKnown_StoreHoldHasSameIDEverywhere(t *testing.T) {
	finds := NewPeer(Config{Hub: true, KnownStore: Store{UID: "s", Revision: 500}}, nil)
	finds.checkStore(Store{UID: "s", Revision: 300})
	store, _ := finds.Other()
	starts := NewPeer(Config{Hub: true, KnownStore: store, StoreUntrusted: true}, nil)
	hears := NewPeer(Config{Hub: true, KnownStore: Store{UID: "s", Revision: 100}}, nil)
	hears.Step(1, Known{Store: store, StoreUntrusted: true})
	if finds.storeHoldID == "" || starts.storeHoldID != finds.storeHoldID || hears.storeHoldID != finds.storeHoldID {
		t.Errorf("%q, %q, %q", finds.storeHoldID, starts.storeHoldID, hears.storeHoldID)
	}
	// The store has grown and is still untrusted.
	starts.checkStore(Store{UID: "s", Revision: 900})
	if !starts.storeUntrusted {
		t.Error("it is trusted because it has grown")
	}
}

// Another principal replica may record the cluster of an agent name after a session of another cluster was opened here.
func TestKnown_ClosesSessionOfAnotherCluster(t *testing.T) {
	for title, c := range map[string]struct {
		recorded string
		ends     bool
	}{
		"nothing is recorded yet": {"", false},
		"its own":                 {"mine", false},
		"another one":             {"other", true},
	} {
		p := NewPeer(Config{Hub: true, Mode: "managed"}, nil)
		hello := Hello{Epoch: Epoch{Incarnation: 1}, ClusterUID: "mine", Mode: "managed", Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax}}
		p.Step(1, Connected{Session: 1})
		p.Step(1, Received{Session: 1, Message: hello})
		var cut *CloseSession
		for _, e := range p.Step(1, Known{Cluster: c.recorded}) {
			if e, ok := e.(CloseSession); ok {
				cut = &e
			}
		}
		if _, open := p.Session(); open == c.ends || (cut != nil) != c.ends || cut != nil && (cut.Code != WrongCluster || cut.Session != 1) {
			t.Errorf("%s: open %v, %+v", title, open, cut)
		}
		hello.Epoch.Attempt, hello.ClusterUID = 1, "other"
		p.Step(1, Received{Session: 2, Message: hello})
		if session, _ := p.Session(); (session == 2) != c.ends {
			t.Errorf("%s: the other cluster has session %d", title, session)
		}
	}
}
