package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// secrets reads a certificate from one Secret and the CA certificates from another. It is empty until it has both: an
// agent that has no CA yet would trust the CAs of the system.
type secrets struct {
	*identity.Store
	namespace    string
	own, trusted string // names; trusted is empty if peers are not verified

	mu            sync.Mutex
	cert, key, ca []byte
	works         bool // whether an update has succeeded
}

func newSecrets(namespace, own, trusted string, verify bool) *secrets {
	origin := "Secret " + namespace + "/" + own
	if !verify {
		trusted = ""
	} else if trusted != own {
		origin = "Secrets " + namespace + "/" + own + " and " + namespace + "/" + trusted
	}
	return &secrets{Store: identity.NewStore(origin), namespace: namespace, own: own, trusted: trusted}
}

func (s *secrets) handlers() secretHandlers {
	handlers := secretHandlers{s.own: s.setOwn}
	switch s.trusted {
	case "":
	case s.own:
		handlers[s.own] = func(data map[string][]byte) error {
			if err := s.setOwn(data); err != nil {
				return err
			}
			return s.setTrusted(data)
		}
	default:
		handlers[s.trusted] = s.setTrusted
	}
	return handlers
}

// mergeHandlers joins handlers. If several have the same Secret, all are called.
func mergeHandlers(all ...secretHandlers) secretHandlers {
	merged := secretHandlers{}
	for _, handlers := range all {
		for name, handle := range handlers {
			first := merged[name]
			if first == nil {
				merged[name] = handle
				continue
			}
			merged[name] = func(data map[string][]byte) error { return errors.Join(first(data), handle(data)) }
		}
	}
	return merged
}

func (s *secrets) setOwn(data map[string][]byte) error {
	cert, err := secretValue(s.namespace, s.own, data, "tls.crt")
	if err != nil {
		return err
	}
	key, err := secretValue(s.namespace, s.own, data, "tls.key")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	oldCert, oldKey := s.cert, s.key
	s.cert, s.key = cert, key
	return s.update(func() { s.cert, s.key = oldCert, oldKey })
}

// setTrusted reads the CA certificates. A Secret of type kubernetes.io/tls has them at tls.crt and often no ca.crt.
func (s *secrets) setTrusted(data map[string][]byte) error {
	ca, err := secretValue(s.namespace, s.trusted, data, "ca.crt", "tls.crt")
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.ca
	s.ca = ca
	return s.update(func() { s.ca = before })
}

// secretValue returns the value of the first key that a Secret has.
func secretValue(namespace, secret string, data map[string][]byte, keys ...string) ([]byte, error) {
	if data == nil {
		return nil, fmt.Errorf("Secret %s/%s not found", namespace, secret)
	}
	for _, key := range keys {
		if len(data[key]) > 0 {
			return data[key], nil
		}
	}
	return nil, fmt.Errorf("Secret %s/%s has no %s", namespace, secret, keys[0])
}

// trustedCAs are the CA certificates of a server, from a Secret. An invalid Secret does not replace a valid one.
type trustedCAs struct {
	namespace, secret string

	mu   sync.Mutex
	pool *x509.CertPool // nil until a valid Secret was read
	err  error          // why there is none
}

func (c *trustedCAs) set(data map[string][]byte) error {
	pool, err := c.parse(data)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.err = err
		return err
	}
	c.pool = pool
	return nil
}

func (c *trustedCAs) parse(data map[string][]byte) (*x509.CertPool, error) {
	bundle, err := secretValue(c.namespace, c.secret, data, "ca.crt", "tls.crt")
	if err != nil {
		return nil, err
	}
	certificates, err := pki.Certificates(bundle)
	if err != nil {
		return nil, fmt.Errorf("parse the CA certificates in Secret %s/%s: %w", c.namespace, c.secret, err)
	}
	pool := x509.NewCertPool()
	for _, certificate := range certificates {
		pool.AddCert(certificate)
	}
	return pool, nil
}

func (c *trustedCAs) current() (*x509.CertPool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pool != nil:
		return c.pool, nil
	case c.err != nil:
		return nil, c.err
	}
	return nil, fmt.Errorf("Secret %s/%s is not read yet", c.namespace, c.secret)
}

// update activates the certificates if they are complete. If that fails although it succeeded before, it calls revert,
// so that an invalid Secret does not block the next change of the other one. The caller must hold s.mu.
func (s *secrets) update(revert func()) error {
	if s.cert == nil || s.trusted != "" && s.ca == nil {
		return nil
	}
	err := s.Update(s.cert, s.key, s.ca)
	if err != nil && s.works {
		revert()
	}
	s.works = s.works || err == nil
	return err
}
