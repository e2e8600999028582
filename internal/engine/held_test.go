package engine

import (
	"strings"
	"testing"
)

// commander is a hub in a session, with one command that the agent holds back again and again.
type commander struct{}

func (commander) Content(string, Key) (content, extra []byte, ok bool) {
	return []byte("sync"), nil, true
}

func (commander) Revision(string) uint64            { return 0 }
func (commander) SourceRevision(string, Key) uint64 { return 0 }
func (commander) View(string) (uint64, uint64)      { return 0, 0 }

// deltas counts the items that are sent in one step, and returns the last Seq.
func deltas(effects []Effect) (n int, seq uint64) {
	for _, e := range effects {
		if s, ok := e.(Send); ok {
			if d, ok := s.Message.(Delta); ok {
				for _, it := range d.Items {
					n, seq = n+1, it.Seq
				}
			}
		}
	}
	return n, seq
}

func TestHold_CommandIsSentWhenAgentHoldsNothing(t *testing.T) {
	p := NewPeer(Config{Hub: true, Scopes: []ScopeConfig{{Name: "command", Style: OneShot}}}, commander{})
	now := Time(1)
	p.Step(now, View{Scope: "command", Complete: true})
	p.Step(now, Connected{Session: 1})
	p.Step(now, Received{1, Hello{Epoch: Epoch{1, 1}, Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax}}})
	p.Step(now, Begin{})
	p.Step(now, Received{1, Held{ID: "store-1"}})
	key, version := Key{Name: "a"}, VersionOf([]byte("sync"))
	held := func(seq uint64) []Effect {
		return p.Step(now, Received{1, Ack{Scope: "command", Items: []AckItem{{Seq: seq, Key: key, Version: version, Code: OnHold}}}})
	}
	_, seq := deltas(p.Step(now, Publish{Scope: "command", Key: key, Version: version}))
	for range 6 { // by now it is tried once a minute
		held(seq)
		now, _ = p.NextWake()
		for seq0 := seq; seq == seq0; now, _ = p.NextWake() {
			if n, s := deltas(p.Step(now, Tick{})); n > 0 {
				seq = s
				break
			}
		}
	}

	// A user confirms. The order of the end of the hold and the older acknowledgment does not matter.
	t.Run("the answer is the later", func(t *testing.T) {
		p.Step(now, Received{1, Held{}})
		held(seq)
		n, s := deltas(p.Step(now+Second, Tick{}))
		if n != 1 {
			t.Fatal("it is not sent again within a second")
		}
		seq, now = s, now+Second
	})
	t.Run("the answer is the earlier", func(t *testing.T) {
		p.Step(now, Received{1, Held{ID: "store-2"}})
		held(seq)
		if n, _ := deltas(p.Step(now, Received{1, Held{}})); n != 1 {
			t.Fatal("it is not sent again at once")
		}
	})
}

// An earlier word may arrive after a later one, where messages do not keep their order. The hub must not show forever
// as held what is not.
func TestHold_EndIsSentTwice(t *testing.T) {
	p := NewPeer(Config{KnownStore: Store{UID: "hub", Revision: 9}, Scopes: []ScopeConfig{{Name: "s", Role: Replica}}}, emptySource{})
	open(p) // with a hub that says nothing of its store: another one
	now := Time(1)
	said := func(in Input) (out []string) {
		for _, e := range p.Step(now, in) {
			if s, ok := e.(Send); ok {
				if h, ok := s.Message.(Held); ok {
					out = append(out, h.Scope+":"+h.ID)
				}
			}
		}
		return out
	}
	id := p.Status().StoreHoldID
	if id == "" {
		t.Fatal("the store is trusted")
	}
	for i, want := range []string{":" + id, ":" + id, ":", ":", ""} {
		in := Input(Tick{})
		switch i {
		case 2:
			in = Received{1, Confirm{ID: id}}
		default:
			now += 60 * Second
		}
		if got := strings.Join(said(in), " "); got != want {
			t.Errorf("step %d: says %q, want %q", i, got, want)
		}
	}
}

// Both messages may get lost. Then the hub shows a hold that a user cannot confirm, and the agent answers with what it
// holds.
func TestHold_WrongConfirmationIsAnsweredWithCurrentHold(t *testing.T) {
	p := NewPeer(Config{KnownStore: Store{UID: "hub", Revision: 9}, Scopes: []ScopeConfig{{Name: "s", Role: Replica}}}, emptySource{})
	open(p)
	id := p.Status().StoreHoldID
	for _, c := range []struct {
		name    string
		confirm Confirm
		want    string
	}{
		{"a scope that holds nothing", Confirm{Scope: "s", ID: "gone"}, "s:"},
		{"another store than the untrusted one", Confirm{ID: "gone"}, ":" + id},
		{"a scope that there is none of", Confirm{Scope: "t", ID: "gone"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said []string
			for _, e := range p.Step(1, Received{1, c.confirm}) {
				if s, ok := e.(Send); ok {
					if h, ok := s.Message.(Held); ok {
						said = append(said, h.Scope+":"+h.ID)
					}
				}
			}
			if got := strings.Join(said, " "); got != c.want {
				t.Errorf("says %q, want %q", got, c.want)
			}
		})
	}
}
