package engine

import "testing"

func TestWhatIsRecordedNeverLowersWhatWasSeenUnlessSomebodyAcceptedIt(t *testing.T) {
	p := NewPeer(Config{Hub: true, KnownStore: Store{UID: "s", Revision: 100}}, nil)
	p.other = Store{UID: "s", Revision: 500} // seen since
	for _, c := range []struct {
		name     string
		recorded Store
		want     Store
	}{
		{"the same record again, because something else about the agent has changed", Store{"s", 100}, Store{"s", 500}},
		{"a newer record that still lags behind", Store{"s", 300}, Store{"s", 500}},
		{"a record of another replica that has seen more", Store{"s", 700}, Store{"s", 700}},
		{"the store went back, and somebody has accepted that", Store{"s", 200}, Store{"s", 200}},
		{"another store was accepted", Store{"t", 5}, Store{"t", 5}},
	} {
		p.Step(1, Known{Store: c.recorded})
		if p.other != c.want {
			t.Errorf("%s: %v", c.name, p.other)
		}
	}
}
