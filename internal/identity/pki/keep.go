package pki

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// RenewAt returns when to renew a certificate: after two thirds of its lifetime, not counting Backdate.
func RenewAt(cert *x509.Certificate) time.Time {
	from := cert.NotBefore
	if cert.NotAfter.Sub(from) > Backdate {
		from = from.Add(Backdate)
	}
	return from.Add(cert.NotAfter.Sub(from) / 3 * 2)
}

// NotManagedError means that argocd-agent must not change a Secret.
type NotManagedError struct{ Secret, ManagedBy string }

func (e *NotManagedError) Error() string {
	if e.ManagedBy != "" {
		return fmt.Sprintf("Secret %s is managed by %s and is not changed", e.Secret, e.ManagedBy)
	}
	return fmt.Sprintf("Secret %s was not created by argocd-agent and is not changed. To have it renewed, label it %s=%s or delete it", e.Secret, ManagedLabel, ManagedValue)
}

// EnsureServerCert makes sure that a Secret has a current server certificate for these host names and addresses. It
// reports whether it issued one, and when to run again. It returns a *NotManagedError if the Secret is not managed.
func (h *Manager) EnsureServerCert(ctx context.Context, secret string, names []string) (issued bool, next time.Time, err error) {
	a, err := h.Authority(ctx)
	if err != nil {
		return false, time.Time{}, err
	}
	err = update(ctx, h.Secrets, secret, func(s *Secret) (*Secret, error) {
		issued = false
		if s != nil && !s.Managed() {
			return nil, &NotManagedError{secret, s.ManagedBy()}
		}
		if s != nil && h.current(a, s, names) {
			certs, _ := Certificates(s.Data[CertKey])
			next = RenewAt(certs[0])
			return nil, nil
		}
		pair, err := a.Server(append(slices.Clone(names), additionalNames(s, names)...), ServerLifetime, h.now())
		if err != nil {
			return nil, err
		}
		certs, err := Certificates(pair.Cert)
		if err != nil {
			return nil, err
		}
		issued, next = true, RenewAt(certs[0])
		return withPair(secret, s, pair, a.BundlePEM()), nil
	})
	return issued && err == nil, next, err
}

// additionalNames returns other names in the current certificate. A renewal keeps them.
func additionalNames(s *Secret, names []string) []string {
	if s == nil {
		return nil
	}
	certs, err := Certificates(s.Data[CertKey])
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(Describe(certs[0]).Names, func(name string) bool { return slices.Contains(names, name) })
}

// current reports whether a Secret needs no change. Additional names are fine: another replica may have requested them.
func (h *Manager) current(a *Authority, s *Secret, names []string) bool {
	certs, err := Certificates(s.Data[CertKey])
	if err != nil || a.NeedsRenewal(s.Data[CertKey], h.now()) || !bytes.Equal(s.Data[BundleKey], a.BundlePEM()) {
		return false
	}
	for _, name := range names {
		if ip := net.ParseIP(strings.Trim(name, "[]")); ip != nil {
			if !slices.ContainsFunc(certs[0].IPAddresses, ip.Equal) {
				return false
			}
		} else if !slices.Contains(certs[0].DNSNames, name) {
			return false
		}
	}
	return true
}
