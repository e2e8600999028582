package identity

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

// Store is a Source that is updated by its owner, for example from Secrets.
type Store struct {
	what string
	now  func() time.Time

	mu            sync.Mutex
	cert, key, ca []byte // of current
	current       *Material
	err           error // why the last update is not used
}

// NewStore returns an empty Store. What names the source of the material in errors.
func NewStore(what string) *Store { return &Store{what: what, now: time.Now} }

// Update replaces the material. A nil part stays unchanged, because certificate and CA may come from different Secrets.
// If the result is invalid, the previous material stays in use.
func (s *Store) Update(certPEM, keyPEM, caPEM []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cert, key, ca := orElse(certPEM, s.cert), orElse(keyPEM, s.key), orElse(caPEM, s.ca)
	if s.current != nil && s.err == nil && bytes.Equal(cert, s.cert) && bytes.Equal(key, s.key) && bytes.Equal(ca, s.ca) {
		return nil
	}
	next, err := parse(cert, key, ca, s.now())
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.what, err)
		if s.current != nil {
			return fmt.Errorf("%w; the certificate that expires on %s stays in use", s.err, formatTime(s.current.NotAfter()))
		}
		return s.err
	}
	s.cert, s.key, s.ca = bytes.Clone(cert), bytes.Clone(key), bytes.Clone(ca)
	s.current, s.err = next, nil
	return nil
}

func (s *Store) Material() (*Material, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.current != nil:
		return s.current, nil
	case s.err != nil:
		return nil, s.err
	}
	return nil, fmt.Errorf("%s: no certificate yet", s.what)
}

// Err returns why the last update is not used, or nil.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func orElse(part, otherwise []byte) []byte {
	if part == nil {
		return otherwise
	}
	return part
}
