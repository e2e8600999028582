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

// Fingerprint identifies a certificate: SHA-256 in upper-case hex.
func Fingerprint(cert *x509.Certificate) string {
	return fmt.Sprintf("%X", sha256.Sum256(cert.Raw))
}

// Revocations is the set of certificates that are no longer accepted. The zero
// value, and nil, are the empty set. It may be read and replaced at any time.
type Revocations struct {
	set    atomic.Pointer[map[string]bool]
	before atomic.Pointer[map[string]time.Time]
}

// SetBefore says of some agents that certificates for Argo CD to reach their
// clusters with, which may be many and are nowhere listed, are no longer accepted
// if they were issued before a time.
func (r *Revocations) SetBefore(agents map[string]time.Time) { r.before.Store(&agents) }

// Before is that time; zero: all are accepted.
func (r *Revocations) Before(agent string) time.Time {
	if r == nil || r.before.Load() == nil {
		return time.Time{}
	}
	return (*r.before.Load())[agent]
}

// Set replaces the set by the given fingerprints, in any case and with or
// without colons. It returns those that are new: what is connected with one of
// them has to be cut. Whatever is no fingerprint is left out and reported.
func (r *Revocations) Set(fingerprints []string) (added []string, err error) {
	next := make(map[string]bool, len(fingerprints))
	var broken []error
	for _, text := range fingerprints {
		id := strings.ToUpper(strings.ReplaceAll(text, ":", ""))
		if len(id) != 2*sha256.Size || strings.Trim(id, "0123456789ABCDEF") != "" {
			broken = append(broken, fmt.Errorf("%q is no SHA-256 fingerprint: 64 hexadecimal digits are needed; the certificate it means is NOT revoked", clip(text)))
			continue
		}
		if !next[id] && !r.Revoked(id) {
			added = append(added, id)
		}
		next[id] = true
	}
	r.set.Store(&next)
	return added, errors.Join(broken...)
}

// Revoked reports whether a certificate is in the set.
func (r *Revocations) Revoked(fingerprint string) bool {
	if r == nil {
		return false
	}
	set := r.set.Load()
	return set != nil && (*set)[fingerprint]
}

// RevokedError refuses a certificate that was revoked.
type RevokedError struct{ Fingerprint, Subject string }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("the certificate of %q with fingerprint %s is revoked: it is listed in ConfigMap argocd-agent-tls-blocklist on the hub", e.Subject, e.Fingerprint)
}
