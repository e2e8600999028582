package agentrows

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// mirror applies updates like the script of the page.
type mirror struct {
	at   cursor
	rows map[string]Row
}

func (m *mirror) apply(t *testing.T, n update) {
	t.Helper()
	if n.Reset {
		m.rows = map[string]Row{}
	}
	for _, name := range n.Deleted {
		delete(m.rows, name)
	}
	for _, one := range n.Rows {
		var r Row
		if err := json.Unmarshal(one, &r); err != nil {
			t.Fatal(err)
		}
		m.rows[r.Name] = r
	}
}

// catchUp reads all updates and returns the number of rows.
func (m *mirror) catchUp(t *testing.T, b *State, most int) int {
	t.Helper()
	received := 0
	for rounds := 0; ; rounds++ {
		n, next := b.since(m.at, most, nil)
		m.at = next
		m.apply(t, n)
		if received += len(n.Rows); !n.More {
			return received
		}
		if rounds > 100_000 {
			t.Fatal("updates never end")
		}
	}
}

func put(t *testing.T, b *State, r Row) {
	t.Helper()
	if err := b.Set(r); err != nil {
		t.Fatal(err)
	}
}

// Readers that read rarely and in small portions converge, also if more rows are deleted than State remembers.
func TestSince_ReadersConverge(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 1))
		b, want := NewState(), map[string]Row{}
		readers := []*mirror{{}, {}, {}}
		for range 6000 {
			name := fmt.Sprintf("a%d", random.IntN(2500))
			if _, exists := want[name]; exists && random.IntN(2) == 0 {
				b.Remove(name)
				delete(want, name)
			} else {
				want[name] = Row{Name: name, Diverged: random.Int64N(3)}
				put(t, b, want[name])
			}
			if random.IntN(50) == 0 {
				m := readers[random.IntN(len(readers))]
				n, next := b.since(m.at, random.IntN(2000), nil)
				m.at = next
				m.apply(t, n)
			}
		}
		for i, m := range readers {
			m.catchUp(t, b, 10_000)
			if !maps.EqualFunc(m.rows, want, func(x, y Row) bool { return x.Diverged == y.Diverged && x.Name == y.Name }) {
				t.Fatalf("seed %d, reader %d: %d rows, want %d", seed, i, len(m.rows), len(want))
			}
		}
		if b.deleted > maxDeleted || len(b.rows) > len(want)+maxDeleted {
			t.Fatalf("seed %d: %d deletions are remembered in %d rows", seed, b.deleted, len(b.rows))
		}
	}
}

func TestSince_ReturnsOnlyChanges(t *testing.T) {
	b, m := NewState(), &mirror{}
	for i := range 100 {
		put(t, b, Row{Name: fmt.Sprint("a", i)})
	}
	if n := m.catchUp(t, b, 1<<20); n != 100 {
		t.Errorf("first update has %d rows", n)
	}
	wake := b.next()
	put(t, b, Row{Name: "a7"}) // unchanged
	b.Remove("unknown")
	b.SetStale("")
	select {
	case <-wake:
		t.Error("woken without a change")
	default:
	}
	for i := range int64(10) {
		put(t, b, Row{Name: "a7", Diverged: i + 1})
	}
	<-wake
	if n := m.catchUp(t, b, 1<<20); n != 1 || m.rows["a7"].Diverged != 10 {
		t.Errorf("ten changes of one row are %d rows: %+v", n, m.rows["a7"])
	}
	b.SetStale("the hub is unreachable")
	if n, _ := b.since(m.at, 1, nil); n.Stale == "" || len(n.Rows) > 0 || n.Reset {
		t.Errorf("update is %+v", n)
	}
}

// A reader that missed forgotten deletions must not keep deleted rows.
func TestSince_ResetsCursorThatMissedDeletions(t *testing.T) {
	b, slow, quick := NewState(), &mirror{}, &mirror{}
	for i := range 3 * maxDeleted {
		put(t, b, Row{Name: fmt.Sprint("a", i)})
	}
	slow.catchUp(t, b, 1<<30)
	quick.catchUp(t, b, 1<<30)
	for i := range 2 * maxDeleted {
		b.Remove(fmt.Sprint("a", i))
		if i%100 == 0 {
			if n, next := b.since(quick.at, 1<<30, nil); n.Reset {
				t.Fatal("a reader that keeps up is reset")
			} else {
				quick.at = next
			}
		}
	}
	if n, _ := b.since(slow.at, 1<<30, nil); !n.Reset || len(n.Rows) != maxDeleted || len(n.Deleted) > 0 {
		t.Errorf("reset: %v, %d rows, %d deleted", n.Reset, len(n.Rows), len(n.Deleted))
	}
	for _, invalid := range []cursor{{reset: 1 << 60, seen: 1}, {reset: 1, seen: 1 << 60}, {seen: 5}} {
		if n, _ := b.since(invalid, 1, nil); !n.Reset {
			t.Errorf("cursor %v is accepted", invalid)
		}
	}
}

func TestSince_OldestChangeFirst(t *testing.T) {
	b := NewState()
	for _, name := range []string{"c", "a", "b", "c"} {
		put(t, b, Row{Name: name, Diverged: int64(b.last)})
	}
	m := &mirror{}
	var order []string
	for more := true; more; {
		n, next := b.since(m.at, 1, nil)
		m.at, more = next, n.More
		for _, one := range n.Rows {
			var r Row
			if err := json.Unmarshal(one, &r); err != nil {
				t.Fatal(err)
			}
			order = append(order, r.Name)
		}
	}
	if !slices.Equal(order, []string{"a", "b", "c"}) {
		t.Errorf("%v", order)
	}
}
