package identity

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

// Store holds material that somebody else watches, such as Secrets.
type Store struct {
	what string
	now  func() time.Time

	mu            sync.Mutex
	cert, key, ca []byte // of what is used
	current       *Material
	err           error // why what came last is not used
}

// NewStore returns an empty Store. What names the place where the material comes
// from, for error messages.
func NewStore(what string) *Store { return &Store{what: what, now: time.Now} }

// Update replaces the material. Nil leaves a part as it is, for a certificate
// and a CA that are kept in different places. If the outcome would be broken,
// what was there before stays in use, and the error says what is wrong.
func (s *Store) Update(certPEM, keyPEM, caPEM []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cert, key, ca := or(certPEM, s.cert), or(keyPEM, s.key), or(caPEM, s.ca)
	if s.current != nil && s.err == nil && bytes.Equal(cert, s.cert) && bytes.Equal(key, s.key) && bytes.Equal(ca, s.ca) {
		return nil
	}
	next, err := parse(cert, key, ca, s.now())
	if err != nil {
		s.err = fmt.Errorf("%s: %w", s.what, err)
		if s.current != nil {
			return fmt.Errorf("%w; the certificate that expires on %s stays in use", s.err, day(s.current.NotAfter()))
		}
		return s.err
	}
	s.cert, s.key, s.ca = bytes.Clone(cert), bytes.Clone(key), bytes.Clone(ca)
	s.current, s.err = next, nil
	return nil
}

// Material implements Source.
func (s *Store) Material() (*Material, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.current != nil:
		return s.current, nil
	case s.err != nil:
		return nil, s.err
	}
	return nil, fmt.Errorf("%s: there is no certificate yet", s.what)
}

// Err returns why what came last is not used; nil: it is.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func or(part, otherwise []byte) []byte {
	if part == nil {
		return otherwise
	}
	return part
}
