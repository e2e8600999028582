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

// RenewAt is when a certificate is to be renewed: after two thirds of its life,
// without the part of it that was over when it was issued.
func RenewAt(cert *x509.Certificate) time.Time {
	from := cert.NotBefore
	if cert.NotAfter.Sub(from) > Backdate {
		from = from.Add(Backdate)
	}
	return from.Add(cert.NotAfter.Sub(from) / 3 * 2)
}

// NotManagedError says that a Secret is somebody else's to renew.
type NotManagedError struct{ Secret, Keeper string }

func (e *NotManagedError) Error() string {
	if e.Keeper != "" {
		return fmt.Sprintf("the Secret %s is kept by %s: it is used as it is", e.Secret, e.Keeper)
	}
	return fmt.Sprintf("the Secret %s was not made by us: it is used as it is. To have it renewed, label it %s=%s, or delete it", e.Secret, ManagedLabel, KeptValue)
}

// EnsureServerCert sees to it that a Secret has a server's certificate for these host
// names and addresses: of the CA that issues now, and not about to expire. It
// reports whether it had to issue one, and when to look again. Another's Secret is
// a *ForeignError.
func (h *Manager) EnsureServerCert(ctx context.Context, secret string, names []string) (issued bool, next time.Time, err error) {
	a, err := h.Authority(ctx)
	if err != nil {
		return false, time.Time{}, err
	}
	for range attempts {
		s, err := h.Secrets.Get(ctx, secret)
		if err != nil {
			return false, time.Time{}, fmt.Errorf("read Secret %s: %w", secret, err)
		}
		if s != nil && !s.Managed() {
			return false, time.Time{}, &NotManagedError{secret, s.ManagedBy()}
		}
		if s != nil && h.serves(a, s, names) {
			certs, _ := Certificates(s.Data[CertKey])
			return issued, RenewAt(certs[0]), nil
		}
		pair, err := a.Server(append(slices.Clone(names), others(s, names)...), h.serverLife(), h.now())
		if err != nil {
			return false, time.Time{}, err
		}
		stored, err := PutPair(ctx, h.Secrets, secret, s, pair, a.BundlePEM())
		if err != nil {
			return false, time.Time{}, err
		}
		issued = issued || stored
	}
	return false, time.Time{}, fmt.Errorf("write Secret %s: %w", secret, ErrBusy)
}

// others are the names in a certificate beside these: somebody has asked for
// them, and they are not lost when it is renewed.
func others(s *Secret, names []string) []string {
	if s == nil {
		return nil
	}
	certs, err := Certificates(s.Data[CertKey])
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(Describe(certs[0]).Names, func(name string) bool { return slices.Contains(names, name) })
}

// serves reports whether a Secret has what it should. A longer list of names does
// no harm: another replica may have been given more.
func (h *Manager) serves(a *Authority, s *Secret, names []string) bool {
	certs, err := Certificates(s.Data[CertKey])
	if err != nil || a.Due(s.Data[CertKey], h.now()) || !bytes.Equal(s.Data[BundleKey], a.BundlePEM()) {
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

// PutPair writes a certificate, its key and a bundle into a Secret: into this
// one, or into a new one if that is nil. False: somebody else was quicker.
func PutPair(ctx context.Context, to Secrets, name string, s *Secret, pair Pair, bundle []byte) (bool, error) {
	if s == nil {
		s = &Secret{Name: name, Type: typeTLS}
	}
	s = s.clone()
	s.Labels[ManagedLabel] = KeptValue
	s.Data[CertKey], s.Data[KeyKey] = pair.Cert, pair.Key
	if bundle != nil {
		s.Data[BundleKey] = bundle
	}
	stored, err := to.Put(ctx, s)
	if err != nil {
		return false, fmt.Errorf("write Secret %s: %w", name, err)
	}
	return stored, nil
}

// PutBundle writes whom to believe into a Secret of a spoke.
func PutBundle(ctx context.Context, to Secrets, name string, s *Secret, bundle []byte) (bool, error) {
	if s == nil {
		s = &Secret{Name: name, Type: typeOpaque}
	}
	s = s.clone()
	s.Labels[ManagedLabel] = KeptValue
	s.Data[BundleKey] = bundle
	stored, err := to.Put(ctx, s)
	if err != nil {
		return false, fmt.Errorf("write Secret %s: %w", name, err)
	}
	return stored, nil
}
