package engine

import (
	"fmt"
	"runtime"
	"testing"
)

// What the engine keeps per item in addition to the content, without headroom. If you add a field, adjust it.
const memoryTarget = 300

// used is the heap in use.
func used() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// emptySource has content for every item, and none of it in memory.
type emptySource struct{}

func (emptySource) Content(_ string, key Key) ([]byte, []byte, bool) {
	return []byte(key.Name), nil, true
}
func (emptySource) Revision(string) uint64            { return 1 }
func (emptySource) SourceRevision(string, Key) uint64 { return 0 }
func (emptySource) View(string) (uint64, uint64)      { return 0, 0 }

// TestMemory_PerItem fills one scope with 100,000 items at either end. Keys belong to the caller.
func TestMemory_PerItem(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	const n = 100_000
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = benchKey(i)
	}
	scopes := func(role Role) Config {
		return Config{Hub: role == Owner, Scopes: []ScopeConfig{{Name: "application", Role: role}}, Tuning: Tuning{MaxItems: 2 * n}}
	}
	for _, c := range []struct {
		name string
		fill func() *Peer
	}{
		{"owner", func() *Peer {
			p := NewPeer(scopes(Owner), emptySource{})
			for _, k := range keys {
				p.Step(1, Publish{Scope: "application", Key: k, Version: VersionOf([]byte(k.Name))})
			}
			return p
		}},
		{"owner, all in flight", func() *Peer {
			cfg := scopes(Owner)
			cfg.Tuning.Window = 1 << 40
			p := NewPeer(cfg, emptySource{})
			open(p)
			for _, k := range keys {
				p.Step(1, Publish{Scope: "application", Key: k, Version: VersionOf([]byte(k.Name))})
			}
			return p
		}},
		{"replica", func() *Peer {
			p := NewPeer(scopes(Replica), emptySource{})
			for _, k := range keys {
				p.Step(1, Observe{Scope: "application", Key: k, Stored: VersionOf([]byte(k.Name)), Owned: true})
			}
			return p
		}},
		{"replica, after a first sync", func() *Peer {
			p := NewPeer(scopes(Replica), emptySource{})
			p.Step(1, View{Scope: "application", Complete: true})
			open(p)
			for i, k := range keys {
				content := []byte(k.Name)
				for _, e := range p.Step(1, Received{1, Delta{Scope: "application", Items: []DeltaItem{{Seq: uint64(i + 1), Key: k, Version: VersionOf(content), Content: content}}}}) {
					if a, ok := e.(Apply); ok {
						p.Step(1, Applied{Scope: a.Scope, Key: a.Key, Ticket: a.Ticket, Stored: a.Version, Written: true})
						break
					}
				}
			}
			return p
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := used()
			p := c.fill()
			per := float64(used()-before) / n
			if s := p.Status().Scopes[0]; s.Items != n {
				t.Fatalf("%d items", s.Items)
			}
			runtime.KeepAlive(p)
			t.Logf("%.0f bytes per item", per)
			if per > memoryTarget {
				t.Errorf("%.0f bytes per item, at most %d are allowed", per, memoryTarget)
			}
		})
	}
}

// open brings a Peer into a session.
func open(p *Peer) {
	p.Step(1, Connected{Session: 1, Epoch: Epoch{1, 1}})
	if p.cfg.Hub {
		p.Step(1, Received{1, Hello{Epoch: Epoch{1, 1}, Protocol: Range{1, 1}, Projection: Range{1, 1}}})
	} else {
		p.Step(1, Received{1, Welcome{Epoch: Epoch{1, 1}, Protocol: 1, Projection: 1}})
	}
	p.Step(1, Begin{})
	if !p.Status().Connected {
		panic(fmt.Sprintf("phase %d", p.phase))
	}
}
