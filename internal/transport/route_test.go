package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport/route"
)

func TestRoute_TriesAddressesInOrder(t *testing.T) {
	const s = time.Second
	refused := func(after time.Duration) error { return &RefusedError{Code: engine.Overloaded, RetryAfter: after} }
	back := &ByeError{Code: engine.Reconnect, Local: true}
	broken := errors.New("broken")
	r := route.New(3, func() float64 { return 1 })
	for i, step := range []struct {
		from   int // the address that is dialed
		opened bool
		lasted time.Duration
		ended  error
		want   time.Duration
	}{
		{0, false, 0, broken, s / 2},
		{1, false, 0, broken, s / 2},
		{2, false, 0, broken, s / 2}, // all have failed: the pause begins to double
		{0, false, 0, refused(40 * s), s / 2},
		{1, false, 0, broken, s / 2},
		{2, false, 0, broken, 41 * s}, // also the pause that the first has requested
		{0, false, 0, broken, s / 2},
		{1, true, time.Hour, broken, s / 2}, // a session is continued at its address
		{1, false, 0, broken, s / 2},
		{2, false, 0, broken, s / 2},
		{0, false, 0, broken, 1 * s},
		{1, true, time.Hour, back, s / 2},
		{0, true, time.Hour, &ByeError{Code: engine.Reconnect}, s / 2}, // to another principal replica of the same hub
		{0, false, 0, broken, s / 2},
	} {
		if r.Current() != step.from {
			t.Fatalf("step %d: address %d is dialed instead of %d", i, r.Current(), step.from)
		}
		if got := r.Next(step.opened, step.lasted, endOf(step.ended)); got != step.want {
			t.Errorf("step %d: pause %s instead of %s", i, got, step.want)
		}
	}
}

// The agent does not go back and forth between the hub that it follows and one that was superseded.
func TestRoute_SkipsSupersededHub(t *testing.T) {
	superseded := &ByeError{Code: engine.HubSuperseded, Local: true}
	other := &ByeError{Code: engine.WrongHub, Local: true}
	broken := errors.New("broken")
	r := route.New(3, func() float64 { return 1 })
	for i, step := range []struct {
		from    int // the address that is dialed
		opened  bool
		ended   error
		returns bool // during a session with the next address, the first is tried
	}{
		{0, false, superseded, false},
		{1, true, broken, false}, // a session, which is continued at its address
		{1, false, broken, false},
		{2, false, broken, false}, // the first is skipped: all have failed
		{0, false, superseded, false},
		{1, false, broken, false},
		{2, false, broken, false},
		{1, false, broken, false}, // the first is skipped again
		{2, false, broken, false},
		{0, true, broken, false}, // it was promoted
		{0, false, broken, true},
		{1, false, other, true},
		{2, false, broken, false},
		{0, false, broken, true},
		{1, false, other, true}, // all had failed
		{2, false, broken, false},
		{0, false, broken, true},
		{2, false, broken, false}, // the second is skipped
	} {
		if r.Current() != step.from {
			t.Fatalf("step %d: address %d is dialed instead of %d", i, r.Current(), step.from)
		}
		r.Next(step.opened, time.Hour, endOf(step.ended))
		if got := r.MayReturn(); got != step.returns {
			t.Errorf("step %d: the first is tried during a session: %v", i, got)
		}
	}
}

// If the agent follows none of the hubs, it dials one after the other.
func TestRoute_DialsAllIfAllAreSuperseded(t *testing.T) {
	superseded := &ByeError{Code: engine.HubSuperseded, Local: true}
	for _, addresses := range []int{1, 2, 3} {
		r := route.New(addresses, func() float64 { return 1 })
		dialed := map[int]int{}
		for range 6 * addresses {
			dialed[r.Current()]++
			r.Next(false, 0, endOf(superseded))
		}
		for i := range addresses {
			if dialed[i] < 3 {
				t.Errorf("address %d of %d was dialed %d times", i, addresses, dialed[i])
			}
		}
	}
}

// A code that the hub sends is its word only: the agent does not skip it.
func TestRoute_HubCannotMakeTheAgentSkipIt(t *testing.T) {
	r := route.New(2, func() float64 { return 1 })
	r.Next(false, 0, endOf(&ByeError{Code: engine.HubSuperseded}))
	r.Next(false, 0, endOf(errors.New("broken")))
	if r.Current() != 0 {
		t.Errorf("address %d is dialed", r.Current())
	}
}
