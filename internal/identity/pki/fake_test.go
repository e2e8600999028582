package pki

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"
)

// memory is Secrets in a map, with what can go wrong.
type memory struct {
	mu      sync.Mutex
	all     map[string]*Secret
	version int
	before  func(*Secret) // what somebody else does just before a write
}

func newMemory() *memory { return &memory{all: map[string]*Secret{}} }

func (m *memory) Get(_ context.Context, name string) (*Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.all[name]; s != nil {
		return s.clone(), nil
	}
	return nil, nil
}

func (m *memory) List(_ context.Context, label string) ([]*Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*Secret
	for _, s := range m.all {
		if _, ok := s.Labels[label]; ok {
			out = append(out, s.clone())
		}
	}
	return out, nil
}

func (m *memory) Put(_ context.Context, s *Secret) (bool, error) {
	if f := m.before; f != nil {
		m.before = nil
		f(s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	revision := ""
	if old := m.all[s.Name]; old != nil {
		revision = old.Revision
	}
	if revision != s.Revision {
		return false, nil
	}
	m.version++
	c := s.clone()
	c.Revision = strconv.Itoa(m.version)
	m.all[s.Name] = c
	return true, nil
}

func (m *memory) Delete(_ context.Context, s *Secret) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.all[s.Name]; old == nil || old.Revision != s.Revision {
		return false, nil
	}
	delete(m.all, s.Name)
	return true, nil
}

// bench is a hub with a clock that somebody moves.
type bench struct {
	*Hub
	*memory
	t     *testing.T
	clock time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{memory: newMemory(), t: t, clock: time.Now()}
	b.Hub = &Hub{Secrets: b.memory, Now: func() time.Time { return b.clock }}
	return b
}

// authorityNow is the CA, made if there is none.
func (b *bench) authorityNow() *Authority {
	b.t.Helper()
	a, _, err := b.Init(b.t.Context())
	must(b.t, err)
	return a
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
