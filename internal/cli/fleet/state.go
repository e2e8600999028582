package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// State has the rows of all agents, and knows the order in which they have changed.
type State struct {
	mu      sync.Mutex
	rows    map[string]entry
	gone    int    // how many of them are no more
	last    uint64 // the latest change
	floor   uint64 // who has seen less than this may not know of all that is gone
	trouble string
	wake    chan struct{} // closed at the next change
}

// entry is a row as it is sent, and its latest change.
type entry struct {
	row    json.RawMessage // nil: it is no more
	change uint64
}

// mostGone is how many rows are remembered after their end, so that their end can be told. Who has not heard of it by
// then gets everything again.
const mostGone = 1000

// NewBoard makes an empty one.
func NewBoard() *State { return &State{rows: map[string]entry{}, last: 1, wake: make(chan struct{})} }

// Set puts a row up. One that is the same as before is no change.
func (b *State) Set(r Row) error {
	row, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write the row of %s: %w", r.Name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.rows[r.Name]
	if known && bytes.Equal(old.row, row) {
		return nil
	}
	if known && old.row == nil {
		b.gone--
	}
	b.rows[r.Name] = entry{row, b.changed()}
	return nil
}

// Remove takes a row down.
func (b *State) Remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows[name].row == nil {
		return
	}
	b.rows[name] = entry{change: b.changed()}
	if b.gone++; b.gone > mostGone {
		b.forget()
	}
}

// SetTrouble says why the board may not be up to date; empty: it is.
func (b *State) SetTrouble(why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trouble != why {
		b.trouble = why
		b.changed()
	}
}

// changed counts a change and wakes those who wait for one.
func (b *State) changed() uint64 {
	b.last++
	close(b.wake)
	b.wake = make(chan struct{})
	return b.last
}

// forget lets go of the older half of what is no more.
func (b *State) forget() {
	var ends []uint64
	for _, e := range b.rows {
		if e.row == nil {
			ends = append(ends, e.change)
		}
	}
	slices.Sort(ends)
	b.floor = ends[len(ends)/2]
	for name, e := range b.rows {
		if e.row == nil && e.change <= b.floor {
			delete(b.rows, name)
			b.gone--
		}
	}
}

// cursor is how far somebody has followed a board. The zero value has seen nothing.
type cursor struct {
	begun uint64 // the latest change when it was told everything; what ended before that it never knew
	upTo  uint64 // what it has been told
}

// update is what has changed on a board, or the first part of it.
type update struct {
	Reset   bool              `json:"reset,omitempty"` // forget everything first
	Rows    []json.RawMessage `json:"rows,omitempty"`
	Gone    []string          `json:"gone,omitempty"`
	Trouble string            `json:"trouble,omitempty"`
	More    bool              `json:"more,omitempty"` // there is more to come at once
	About   *About            `json:"about,omitempty"`
}

// since tells what is new to somebody, the oldest first and about so many bytes of it; how far that leads; and what is
// closed when there is something newer.
func (b *State) since(p cursor, most int) (update, cursor, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := update{Trouble: b.trouble}
	if p.begun == 0 || max(p.begun, p.upTo) < b.floor || max(p.begun, p.upTo) > b.last {
		n.Reset, p = true, cursor{begun: b.last}
	}
	type change struct {
		name string
		entry
	}
	var all []change
	for name, e := range b.rows {
		if e.change > p.upTo && (e.row != nil || e.change > p.begun) {
			all = append(all, change{name, e})
		}
	}
	slices.SortFunc(all, func(x, y change) int { return cmp.Compare(x.change, y.change) })
	p.upTo = b.last
	for i, c := range all {
		if c.row == nil {
			n.Gone = append(n.Gone, c.name)
		} else {
			n.Rows = append(n.Rows, c.row)
		}
		if most -= len(c.name) + len(c.row); most <= 0 && i < len(all)-1 {
			p.upTo, n.More = c.change, true
			break
		}
	}
	return n, p, b.wake
}
