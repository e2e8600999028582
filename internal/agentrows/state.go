package agentrows

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// State has the rows of all agents in the order of their changes.
type State struct {
	instance string // of cursors, because each State counts changes by itself

	mu      sync.Mutex
	rows    map[string]entry
	deleted int           // number of rows that are deleted
	last    uint64        // the latest change
	floor   uint64        // deletions up to this change may be forgotten
	stale   string        // why rows may be out of date
	wake    chan struct{} // closed at the next change
}

// entry is an encoded row and its latest change.
type entry struct {
	row    json.RawMessage // if nil, deleted
	change uint64
}

// maxDeleted limits the deleted rows that are kept for updates. A cursor that missed a forgotten deletion is reset.
const maxDeleted = 1000

// NewState returns a State without rows.
func NewState() *State {
	return &State{instance: rand.Text(), rows: map[string]entry{}, last: 1, wake: make(chan struct{})}
}

// Set adds or replaces a row. An equal row is not a change.
func (b *State) Set(r Row) error {
	row, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode row of %s: %w", r.Name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.rows[r.Name]
	if known && bytes.Equal(old.row, row) {
		return nil
	}
	if known && old.row == nil {
		b.deleted--
	}
	b.rows[r.Name] = entry{row, b.changed()}
	return nil
}

// Remove deletes a row.
func (b *State) Remove(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rows[name].row == nil {
		return
	}
	b.rows[name] = entry{change: b.changed()}
	if b.deleted++; b.deleted > maxDeleted {
		b.forget()
	}
}

// SetStale sets why rows may be out of date. If empty, they are up to date.
func (b *State) SetStale(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stale != reason {
		b.stale = reason
		b.changed()
	}
}

// changed counts a change and wakes streams. The caller must hold mu.
func (b *State) changed() uint64 {
	b.last++
	close(b.wake)
	b.wake = make(chan struct{})
	return b.last
}

// forget drops the older half of the deleted rows. The caller must hold mu.
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
			b.deleted--
		}
	}
}

// cursor is the position of a stream. The zero value has seen nothing.
type cursor struct {
	reset uint64 // latest change at the last reset. The stream does not know rows that were deleted before
	seen  uint64 // latest change that was sent
}

// update is the payload of one event.
type update struct {
	Reset   bool              `json:"reset,omitempty"` // delete all rows first
	Rows    []json.RawMessage `json:"rows,omitempty"`
	Deleted []string          `json:"deleted,omitempty"`
	Stale   string            `json:"stale,omitempty"`
	More    bool              `json:"more,omitempty"` // another update follows immediately
	About   *About            `json:"about,omitempty"`
}

// Names returns the names of all rows, in no order.
func (b *State) Names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	names := make([]string, 0, len(b.rows))
	for name, e := range b.rows {
		if e.row != nil {
			names = append(names, name)
		}
	}
	return names
}

// next returns a channel that is closed at the next change.
func (b *State) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wake
}

// since returns changes after a cursor, oldest first and about limit bytes, and the new cursor. If visible is not nil, it
// returns only rows with these names.
func (b *State) since(p cursor, limit int, visible map[string]bool) (update, cursor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := update{Stale: b.stale}
	if p.reset == 0 || max(p.reset, p.seen) < b.floor || max(p.reset, p.seen) > b.last {
		n.Reset, p = true, cursor{reset: b.last}
	}
	type change struct {
		name string
		entry
	}
	var all []change
	for name, e := range b.rows {
		if e.change > p.seen && (e.row != nil || e.change > p.reset) && (visible == nil || visible[name]) {
			all = append(all, change{name, e})
		}
	}
	slices.SortFunc(all, func(x, y change) int { return cmp.Compare(x.change, y.change) })
	p.seen = b.last
	for i, c := range all {
		if c.row == nil {
			n.Deleted = append(n.Deleted, c.name)
		} else {
			n.Rows = append(n.Rows, c.row)
		}
		if limit -= len(c.name) + len(c.row); limit <= 0 && i < len(all)-1 {
			p.seen, n.More = c.change, true
			break
		}
	}
	return n, p
}
