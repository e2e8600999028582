package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// mirror is what a page knows: it does what the page's script does with news.
type mirror struct {
	at   cursor
	rows map[string]Row
}

func (m *mirror) learn(t *testing.T, n update) {
	t.Helper()
	if n.Reset {
		m.rows = map[string]Row{}
	}
	for _, name := range n.Gone {
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

// catchUp reads to the end, as a stream does; it returns how many rows it was told.
func (m *mirror) catchUp(t *testing.T, b *State, most int) int {
	t.Helper()
	told := 0
	for rounds := 0; ; rounds++ {
		n, next, _ := b.since(m.at, most)
		m.at = next
		m.learn(t, n)
		if told += len(n.Rows); !n.More {
			return told
		}
		if rounds > 100_000 {
			t.Fatal("it never ends")
		}
	}
}

func put(t *testing.T, b *State, r Row) {
	t.Helper()
	if err := b.Set(r); err != nil {
		t.Fatal(err)
	}
}

// However seldom and in however small portions somebody reads, in the end he has what is there. Rows come, change and
// go, more of them than ends are remembered.
func TestWhoeverReadsInTheEndHasWhatIsThere(t *testing.T) {
	for seed := range uint64(10) {
		chance := rand.New(rand.NewPCG(seed, 1))
		b, truth := NewBoard(), map[string]Row{}
		readers := []*mirror{{}, {}, {}}
		for range 6000 {
			name := fmt.Sprintf("a%d", chance.IntN(2500))
			if _, there := truth[name]; there && chance.IntN(2) == 0 {
				b.Remove(name)
				delete(truth, name)
			} else {
				truth[name] = Row{Name: name, Diverged: chance.Int64N(3)}
				put(t, b, truth[name])
			}
			if chance.IntN(50) == 0 { // one reads a portion
				m := readers[chance.IntN(len(readers))]
				n, next, _ := b.since(m.at, chance.IntN(2000))
				m.at = next
				m.learn(t, n)
			}
		}
		for i, m := range readers {
			m.catchUp(t, b, 10_000)
			if !maps.EqualFunc(m.rows, truth, func(x, y Row) bool { return x.Diverged == y.Diverged && x.Name == y.Name }) {
				t.Fatalf("seed %d, reader %d: it has %d rows, there are %d", seed, i, len(m.rows), len(truth))
			}
		}
		if b.gone > mostGone || len(b.rows) > len(truth)+mostGone {
			t.Fatalf("seed %d: %d ends are remembered, in %d rows", seed, b.gone, len(b.rows))
		}
	}
}

func TestOnlyWhatHasChangedIsTold(t *testing.T) {
	b, m := NewBoard(), &mirror{}
	for i := range 100 {
		put(t, b, Row{Name: fmt.Sprint("a", i)})
	}
	if n := m.catchUp(t, b, 1<<20); n != 100 {
		t.Errorf("at first %d rows are told", n)
	}
	_, _, wake := b.since(m.at, 1)
	put(t, b, Row{Name: "a7"}) // as it was
	b.Remove("nobody")
	b.SetTrouble("")
	select {
	case <-wake:
		t.Error("somebody is woken, and nothing has changed")
	default:
	}
	for i := range int64(10) {
		put(t, b, Row{Name: "a7", Diverged: i + 1})
	}
	<-wake
	if n := m.catchUp(t, b, 1<<20); n != 1 || m.rows["a7"].Diverged != 10 {
		t.Errorf("ten changes of one row are %d rows: %+v", n, m.rows["a7"])
	}
	b.SetTrouble("the hub is away")
	if n, _, _ := b.since(m.at, 1); n.Trouble == "" || len(n.Rows) > 0 || n.Reset {
		t.Errorf("trouble is told as %+v", n)
	}
}

// Who was away for so long that ends were forgotten must not go on showing what is no more.
func TestWhoHasMissedTooMuchIsToldEverything(t *testing.T) {
	b, away, there := NewBoard(), &mirror{}, &mirror{}
	for i := range 3 * mostGone {
		put(t, b, Row{Name: fmt.Sprint("a", i)})
	}
	away.catchUp(t, b, 1<<30)
	there.catchUp(t, b, 1<<30)
	for i := range 2 * mostGone {
		b.Remove(fmt.Sprint("a", i))
		if i%100 == 0 {
			if n, next, _ := b.since(there.at, 1<<30); n.Reset {
				t.Fatal("who keeps up is told everything again")
			} else {
				there.at = next
			}
		}
	}
	if n, _, _ := b.since(away.at, 1<<30); !n.Reset || len(n.Rows) != mostGone || len(n.Gone) > 0 {
		t.Errorf("reset: %v, %d rows, %d gone", n.Reset, len(n.Rows), len(n.Gone))
	}
	for _, nonsense := range []cursor{{begun: 1 << 60, upTo: 1}, {begun: 1, upTo: 1 << 60}, {upTo: 5}} {
		if n, _, _ := b.since(nonsense, 1); !n.Reset {
			t.Errorf("%v is believed", nonsense)
		}
	}
}

func TestRowsAreToldOldestChangeFirst(t *testing.T) {
	b := NewBoard()
	for _, name := range []string{"c", "a", "b", "c"} {
		put(t, b, Row{Name: name, Diverged: int64(b.last)})
	}
	m := &mirror{}
	var order []string
	for more := true; more; {
		n, next, _ := b.since(m.at, 1)
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
