package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// peerHarness is one Peer with one scope, called s, that a test drives message by message. Its steps return what it
// does as short lines: "apply a", "ack a Held", "want a b", "event Rejected a".
type peerHarness struct {
	t       *testing.T
	peer    *Peer
	source  *harnessSource
	now     Time
	session uint64
	last    []Effect // of the last step
}

// harnessSource is what an owner has.
type harnessSource struct {
	content     map[Key]string
	extra       map[Key]string
	least, most uint64
}

func (s *harnessSource) Content(_ string, key Key) (content, extra []byte, ok bool) {
	c, ok := s.content[key]
	return []byte(c), []byte(s.extra[key]), ok
}

func (s *harnessSource) Revision(string) uint64            { return s.most }
func (s *harnessSource) SourceRevision(string, Key) uint64 { return s.most }
func (s *harnessSource) View(string) (uint64, uint64)      { return s.least, s.most }

var (
	hubStore   = Store{UID: "hub", Revision: 100}
	agentStore = Store{UID: "agent", Revision: 100}
)

// newReplicaSide returns an agent that has the replica of scope s.
func newReplicaSide(t *testing.T, style ScopeStyle, cfg Config) *peerHarness {
	t.Helper()
	cfg.Scopes = []ScopeConfig{{Name: "s", Role: Replica, Style: style}}
	return newPeerHarness(t, cfg)
}

// newOwnerSide returns a hub that owns scope s.
func newOwnerSide(t *testing.T, style ScopeStyle, cfg Config) *peerHarness {
	t.Helper()
	cfg.Hub, cfg.Scopes = true, []ScopeConfig{{Name: "s", Role: Owner, Style: style}}
	return newPeerHarness(t, cfg)
}

func newPeerHarness(t *testing.T, cfg Config) *peerHarness {
	t.Helper()
	l := &peerHarness{t: t, source: &harnessSource{content: map[Key]string{}, extra: map[Key]string{}}, now: 1000 * Second}
	l.peer = NewPeer(cfg, l.source)
	l.step(View{Scope: "s", Complete: true})
	return l
}

// open begins a session with a peer whose store is as given.
func (l *peerHarness) open(store Store) []string {
	l.t.Helper()
	l.session++
	epoch := Epoch{Incarnation: 1, Attempt: l.session}
	l.step(Connected{Session: l.session, Epoch: epoch, Store: Store{UID: "own", Revision: 100}})
	if l.peer.cfg.Hub {
		l.step(Received{l.session, Hello{Epoch: epoch, Protocol: Range{ProtocolMin, ProtocolMax}, Projection: Range{ProjectionMin, ProjectionMax}, Store: store}})
	} else {
		l.step(Received{l.session, Welcome{Epoch: epoch, Protocol: ProtocolMax, Projection: ProjectionMax, Store: store}})
	}
	return l.step(Begin{})
}

func (l *peerHarness) close() []string { return l.step(Disconnected{l.session}) }

// step gives an input to the Peer, checks its invariants, and returns what it does.
func (l *peerHarness) step(in Input) []string {
	l.t.Helper()
	l.last = slices.Clone(l.peer.Step(l.now, in))
	checkInvariants(l.t, l.peer)
	var out []string
	for _, e := range l.last {
		out = append(out, describe(e)...)
	}
	return out
}

func (l *peerHarness) receive(m Message) []string {
	l.t.Helper()
	return l.step(Received{l.session, m})
}

// delta receives one item.
func (l *peerHarness) delta(seq uint64, name, content string) []string {
	l.t.Helper()
	return l.receive(Delta{Scope: "s", Items: []DeltaItem{item(seq, name, content)}})
}

// gone receives the deletion of one item.
func (l *peerHarness) gone(seq uint64, name string) []string {
	l.t.Helper()
	return l.receive(Delta{Scope: "s", Items: []DeltaItem{{Seq: seq, Key: Key{Name: name}, Gone: true}}})
}

// observe says that the local object has a content, and carries our ownership annotation.
func (l *peerHarness) observe(name, content string) []string {
	l.t.Helper()
	return l.step(Observe{Scope: "s", Key: Key{Name: name}, Stored: VersionOf([]byte(content)), Owned: true})
}

// applied answers the last Apply or Remove of an item: what is stored now, and what was replaced; empty: nothing.
func (l *peerHarness) applied(name, stored, replaced string) []string {
	l.t.Helper()
	in := Applied{Scope: "s", Key: Key{Name: name}, Ticket: l.peer.replicas["s"].get(Key{Name: name}).ticket, Written: true}
	if stored != "" {
		in.Stored = VersionOf([]byte(stored))
	}
	if replaced != "" {
		in.Replaced = VersionOf([]byte(replaced))
	}
	return l.step(in)
}

// failed answers the last Apply or Remove of an item.
func (l *peerHarness) failed(name string, code Code) []string {
	l.t.Helper()
	return l.step(Applied{Scope: "s", Key: Key{Name: name}, Ticket: l.peer.replicas["s"].get(Key{Name: name}).ticket, Code: code, Message: "no"})
}

// publish says that the owner has an item.
func (l *peerHarness) publish(name, content string) []string {
	l.t.Helper()
	l.source.content[Key{Name: name}] = content
	return l.step(Publish{Scope: "s", Key: Key{Name: name}, Version: VersionOf([]byte(content))})
}

// ack answers an item that the owner has sent.
func (l *peerHarness) ack(seq uint64, name string, code Code) []string {
	l.t.Helper()
	return l.receive(Ack{Scope: "s", Items: []AckItem{{Seq: seq, Key: Key{Name: name}, Code: code, Message: "no"}}})
}

// root receives the root of an owner that has these items, by name and content.
func (l *peerHarness) root(items ...string) []string {
	l.t.Helper()
	return l.receive(Roots{Items: []Root{rootOf(items)}})
}

func rootOf(items []string) Root {
	var d Digest
	for i := 0; i < len(items); i += 2 {
		d.Set(Key{Name: items[i]}.Hash(), VersionOf([]byte(items[i+1])))
	}
	return Root{Scope: "s", Count: uint64(d.Len()), Sum: d.Sum()}
}

// round has the replica compare itself with an owner that has these items, and returns what it does in the end.
func (l *peerHarness) round(view uint64, items ...string) []string {
	l.t.Helper()
	if r := l.peer.replicas["s"]; !r.round.active {
		l.root(append(items, "zz", "makes a difference")...)
	}
	return l.answer(view, items...)
}

// answer answers the first question of a round.
func (l *peerHarness) answer(view uint64, items ...string) []string {
	l.t.Helper()
	var listed []Listed
	for i := 0; i < len(items); i += 2 {
		listed = append(listed, Listed{Key{Name: items[i]}.Hash(), VersionOf([]byte(items[i+1]))})
	}
	return l.receive(Answer{Scope: "s", Round: l.peer.replicas["s"].round.id, View: view, Branches: []Branch{{Items: listed}}})
}

// advance lets time pass until an instant, with a Tick whenever the Peer wants one, and returns all that it does.
func (l *peerHarness) advance(d Time) []string {
	l.t.Helper()
	var out []string
	end := l.now + d
	for range 10_000 {
		next, ok := l.peer.NextWake()
		if !ok || next > end {
			l.now = end
			return append(out, l.step(Tick{})...)
		}
		l.now = max(l.now, next)
		out = append(out, l.step(Tick{})...)
	}
	l.t.Fatal("the Peer wants to be woken again and again")
	return nil
}

// expect fails unless the lines contain this one.
func (l *peerHarness) expect(lines []string, line string) {
	l.t.Helper()
	if !slices.Contains(lines, line) {
		l.t.Errorf("%q is missing in %q", line, lines)
	}
}

// lineStarts are the words that a line of describe can start with. Events have their type as the second word.
var (
	lineStarts = []string{"apply", "remove", "alias", "cut", "event", "ack", "gone", "delta", "want", "held", "finished", "roots", "ask", "answer"}
	eventTypes = []EventType{Accepted, Finalized, HoldStarted, InSync, Opened, StoreAccepted, StoreContinued}
)

// expectNone fails if one of the lines starts with this. It also fails if no line can: such a test would pass in any
// case.
func (l *peerHarness) expectNone(lines []string, start string) {
	l.t.Helper()
	words := strings.Fields(start)
	if !slices.Contains(lineStarts, words[0]) || words[0] == "event" && len(words) > 1 && !slices.Contains(eventTypes, EventType(words[1])) {
		l.t.Fatalf("no line starts with %q", start)
	}
	for _, line := range lines {
		if strings.HasPrefix(line, start) {
			l.t.Errorf("%q in %q", line, lines)
		}
	}
}

func describe(e Effect) []string {
	switch e := e.(type) {
	case Apply:
		return []string{"apply " + e.Key.Name}
	case Remove:
		return []string{"remove " + e.Key.Name}
	case RecordAlias:
		return []string{"alias " + e.Key.Name}
	case CloseSession:
		return []string{"cut " + string(e.Code)}
	case Event:
		return []string{strings.TrimSpace(fmt.Sprintf("event %s %s", e.Type, e.Key.Name))}
	case Send:
		return describeMessage(e.Message)
	}
	return nil
}

func describeMessage(m Message) []string {
	var out []string
	switch m := m.(type) {
	case Ack:
		for _, it := range m.Items {
			out = append(out, strings.TrimSpace(fmt.Sprintf("ack %s %s", it.Key.Name, it.Code)))
		}
	case Delta:
		for _, it := range m.Items {
			if it.Gone {
				out = append(out, "gone "+it.Key.Name)
			} else {
				out = append(out, fmt.Sprintf("delta %s %s", it.Key.Name, it.Content))
			}
		}
	case Want:
		var names []string
		for _, h := range m.Hashes {
			names = append(names, nameOf(h))
		}
		slices.Sort(names)
		out = append(out, "want "+strings.Join(names, " "))
	case Held:
		out = append(out, strings.TrimSpace("held "+m.ID))
	case Finished:
		out = append(out, "finished "+m.Key.Name)
	default:
		out = append(out, strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", m), "engine.")))
	}
	return out
}

// nameOf returns the key of one letter, or of a letter and a number, that has a hash.
func nameOf(h KeyHash) string {
	for c := 'a'; c <= 'z'; c++ {
		if (Key{Name: string(c)}).Hash() == h {
			return string(c)
		}
		for i := range 200 {
			if name := fmt.Sprint(string(c), i); (Key{Name: name}).Hash() == h {
				return name
			}
		}
	}
	return "?"
}
