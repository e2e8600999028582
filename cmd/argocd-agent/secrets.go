package main

import (
	"fmt"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/identity"
)

// secrets has certificates from Secrets: the program's own from one, and those
// of the authorities from another. It has none until it has them all: an agent
// that knew no authorities yet would believe those of the system.
type secrets struct {
	*identity.Store
	namespace    string
	own, trusted string // names; trusted may be empty: nobody is verified

	mu            sync.Mutex
	cert, key, ca []byte
	works         bool // what was put to use last
}

func newSecrets(namespace, own, trusted string, verify bool) *secrets {
	what := "Secret " + namespace + "/" + own
	if !verify {
		trusted = ""
	} else if trusted != own {
		what = "Secrets " + namespace + "/" + own + " and " + namespace + "/" + trusted
	}
	return &secrets{Store: identity.NewStore(what), namespace: namespace, own: own, trusted: trusted}
}

// handlers are what takes the data of each Secret.
func (s *secrets) handlers() map[string]func(map[string][]byte) error {
	feeds := map[string]func(map[string][]byte) error{s.own: s.takeOwn}
	switch s.trusted {
	case "":
	case s.own:
		feeds[s.own] = func(data map[string][]byte) error {
			if err := s.takeOwn(data); err != nil {
				return err
			}
			return s.takeTrusted(data)
		}
	default:
		feeds[s.trusted] = s.takeTrusted
	}
	return feeds
}

func (s *secrets) takeOwn(data map[string][]byte) error {
	cert, err := s.part(s.own, data, "tls.crt")
	if err != nil {
		return err
	}
	key, err := s.part(s.own, data, "tls.key")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	oldCert, oldKey := s.cert, s.key
	s.cert, s.key = cert, key
	return s.update(func() { s.cert, s.key = oldCert, oldKey })
}

// takeTrusted reads authorities. A Secret that was made as that of a
// certificate has its own at tls.crt, and often nothing at ca.crt.
func (s *secrets) takeTrusted(data map[string][]byte) error {
	ca, err := s.part(s.trusted, data, "ca.crt", "tls.crt")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ca
	s.ca = ca
	return s.update(func() { s.ca = before })
}

// part returns the first of the keys that the Secret has.
func (s *secrets) part(secret string, data map[string][]byte, keys ...string) ([]byte, error) {
	if data == nil {
		return nil, fmt.Errorf("there is no Secret %s/%s", s.namespace, secret)
	}
	for _, key := range keys {
		if len(data[key]) > 0 {
			return data[key], nil
		}
	}
	return nil, fmt.Errorf("the Secret %s/%s has no %s", s.namespace, secret, keys[0])
}

// update puts what there is to use, if that is enough. If that does not work
// although it did before, what has changed is taken back: it must not hold up
// the other Secret's next change.
func (s *secrets) update(takeBack func()) error {
	if s.cert == nil || s.trusted != "" && s.ca == nil {
		return nil
	}
	err := s.Update(s.cert, s.key, s.ca)
	if err != nil && s.works {
		takeBack()
	}
	s.works = s.works || err == nil
	return err
}
