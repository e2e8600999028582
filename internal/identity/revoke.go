package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Fingerprint returns the SHA-256 of a certificate in upper-case hex.
func Fingerprint(cert *x509.Certificate) string {
	return fmt.Sprintf("%X", sha256.Sum256(cert.Raw))
}

// Revocations is the set of revoked certificates. The zero value and nil are empty. It is safe for concurrent use.
type Revocations struct {
	set    atomic.Pointer[map[string]bool]
	before atomic.Pointer[map[string]time.Time]
}

// SetBefore revokes the certificates of some agents, and those for their clusters, that were issued before a time. Not all
// of them are listed: another CA may have issued them.
func (r *Revocations) SetBefore(agents map[string]time.Time) { r.before.Store(&agents) }

// Before returns the time that SetBefore has set for an agent, or zero.
func (r *Revocations) Before(agent string) time.Time {
	if r == nil || r.before.Load() == nil {
		return time.Time{}
	}
	return (*r.before.Load())[agent]
}

// Set replaces the set. Fingerprints may be in any case, with or without colons. It returns the new ones, whose
// connections must be closed. It skips invalid fingerprints and returns an error for them.
func (r *Revocations) Set(fingerprints []string) (added []string, err error) {
	next := make(map[string]bool, len(fingerprints))
	var invalid []error
	for _, text := range fingerprints {
		id := strings.ToUpper(strings.ReplaceAll(text, ":", ""))
		if len(id) != 2*sha256.Size || strings.Trim(id, "0123456789ABCDEF") != "" {
			invalid = append(invalid, fmt.Errorf("invalid SHA-256 fingerprint %q: it must have 64 hexadecimal digits; the certificate is NOT revoked", clip(text)))
			continue
		}
		if !next[id] && !r.Revoked(id) {
			added = append(added, id)
		}
		next[id] = true
	}
	r.set.Store(&next)
	return added, errors.Join(invalid...)
}

// Revoked reports whether a certificate is in the set.
func (r *Revocations) Revoked(fingerprint string) bool {
	if r == nil {
		return false
	}
	set := r.set.Load()
	return set != nil && (*set)[fingerprint]
}

// RevokedError means that a certificate is revoked.
type RevokedError struct{ Fingerprint, Subject string }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("the certificate of %q with fingerprint %s is revoked: it is listed in ConfigMap argocd-agent-tls-blocklist on the hub", e.Subject, e.Fingerprint)
}
