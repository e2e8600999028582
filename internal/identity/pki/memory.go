package pki

import (
	"context"
	"strconv"
	"sync"
)

// FakeSecrets is an in-memory implementation of Secrets for tests. The zero value is empty.
type FakeSecrets struct {
	mu      sync.Mutex
	all     map[string]*Secret
	version int

	// Before is called once before the next write, to simulate another process. May be nil.
	Before func(*Secret)
}

func (m *FakeSecrets) Get(_ context.Context, name string) (*Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.all[name]; s != nil {
		return s.clone(), nil
	}
	return nil, nil
}

func (m *FakeSecrets) List(_ context.Context, label string) ([]*Secret, error) {
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

func (m *FakeSecrets) Put(_ context.Context, s *Secret) error {
	if f := m.Before; f != nil {
		m.Before = nil
		f(s)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	revision := ""
	if old := m.all[s.Name]; old != nil {
		revision = old.Revision
	}
	if revision != s.Revision {
		return ErrBusy
	}
	m.version++
	c := s.clone()
	c.Revision = strconv.Itoa(m.version)
	if m.all == nil {
		m.all = map[string]*Secret{}
	}
	m.all[s.Name] = c
	return nil
}

func (m *FakeSecrets) Delete(_ context.Context, s *Secret) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.all[s.Name]; old == nil || old.Revision != s.Revision {
		return false, nil
	}
	delete(m.all, s.Name)
	return true, nil
}
