package pki

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Manager manages the CA of the hub and its certificates in Secrets.
type Manager struct {
	Secrets Secrets
	Now     func() time.Time // If nil, time.Now.

	// ClientLifetime is the lifetime of client certificates. If zero, the constant of the same name.
	ClientLifetime time.Duration
}

// ErrNoAuthority means that there is no CA yet.
var ErrNoAuthority = errors.New("no CA on the hub: create one with `argocd-agentctl pki init`, or store yours in Secret " + AuthoritySecret)

func (h *Manager) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

// Authority returns the CA.
func (h *Manager) Authority(ctx context.Context) (*Authority, error) {
	s, err := h.Secrets.Get(ctx, AuthoritySecret)
	if err != nil {
		return nil, err
	}
	return authorityOf(s)
}

func authorityOf(s *Secret) (*Authority, error) {
	if s == nil {
		return nil, ErrNoAuthority
	}
	a, err := ReadAuthority(s.Data)
	if err != nil {
		return nil, fmt.Errorf("parse CA in Secret %s: %w", AuthoritySecret, err)
	}
	return a, nil
}

// Init creates a CA if there is none. It reports whether it did.
func (h *Manager) Init(ctx context.Context) (a *Authority, made bool, err error) {
	if a, err = h.Authority(ctx); !errors.Is(err, ErrNoAuthority) {
		return a, false, err
	}
	if a, err = NewAuthority(h.now()); err != nil {
		return nil, false, err
	}
	data, err := a.data()
	if err != nil {
		return nil, false, err
	}
	s := managed(nil, AuthoritySecret, typeTLS)
	s.Data = data
	if err = h.Secrets.Put(ctx, s); errors.Is(err, ErrBusy) { // another process created one
		a, err = h.Authority(ctx)
		return a, false, err
	}
	return a, err == nil, err
}

// Annotations of the CA's Secret.
const (
	// issuedUntilAnnotation is when the last client certificate of the CA expires, rounded up to days.
	// previousUntilAnnotation is the same for the previous CA.
	issuedUntilAnnotation   = prefix + "issued-until"
	previousUntilAnnotation = prefix + "previous-issued-until"
)

// Rotate replaces the CA. Both CAs are trusted until Finish. Certificates of the old CA stay valid, and a peer that knows
// only the old CA trusts certificates of the new one. Connected agents renew their certificates.
func (h *Manager) Rotate(ctx context.Context) (*Authority, error) {
	return h.change(ctx, func(s *Secret, a *Authority) (*Authority, error) {
		if a.Rotating() {
			return nil, errors.New("a rotation is in progress: finish it with `argocd-agentctl pki rotate --finish`")
		}
		next, err := a.replace(h.now())
		if err != nil {
			return nil, err
		}
		until := s.Annotations[issuedUntilAnnotation]
		if until == "" && s.Managed() {
			until = h.now().UTC().Format(time.RFC3339) // it has issued no client certificate
		}
		s.Annotations[previousUntilAnnotation] = until
		delete(s.Annotations, issuedUntilAnnotation)
		s.Labels[ManagedLabel] = ManagedValue
		return next, nil
	})
}

// TooEarlyError means that the old CA is still needed.
type TooEarlyError struct{ Until time.Time } // zero if unknown

func (e *TooEarlyError) Error() string {
	if e.Until.IsZero() {
		return "the old CA was not created by argocd-agent, so the validity of its certificates is unknown: make sure that every agent has a certificate of the new CA, then finish with --force"
	}
	return fmt.Sprintf("the old CA has issued certificates that are valid until %s: wait, or make sure that every agent has a certificate of the new CA, then finish with --force", formatTime(e.Until))
}

// Finish ends a rotation: the old CA is no longer trusted. Unless forced, it returns a *TooEarlyError while a certificate
// of the old CA may be in use.
func (h *Manager) Finish(ctx context.Context, force bool) (*Authority, error) {
	return h.change(ctx, func(s *Secret, a *Authority) (*Authority, error) {
		if !a.Rotating() {
			return nil, errors.New("no rotation is in progress")
		}
		until, err := time.Parse(time.RFC3339, s.Annotations[previousUntilAnnotation])
		if !force && (err != nil || h.now().Before(until)) {
			return nil, &TooEarlyError{until}
		}
		delete(s.Annotations, previousUntilAnnotation)
		done := *a
		done.cross, done.Bundle = nil, a.issuers
		return &done, nil
	})
}

// change updates the Secret of the CA.
func (h *Manager) change(ctx context.Context, f func(*Secret, *Authority) (*Authority, error)) (changed *Authority, err error) {
	err = update(ctx, h.Secrets, AuthoritySecret, func(s *Secret) (*Secret, error) {
		a, err := authorityOf(s)
		if err != nil {
			return nil, err
		}
		if who := s.ManagedBy(); who != "" {
			return nil, fmt.Errorf("the CA in Secret %s is managed by %s: replace it there", AuthoritySecret, who)
		}
		next := s.clone()
		if changed, err = f(next, a); err != nil {
			return nil, err
		}
		next.Data, err = changed.data()
		return next, err
	})
	return changed, err
}

// recordIssuedUntil records until when a client certificate is valid, before it is issued. Finish depends on it.
func (h *Manager) recordIssuedUntil(ctx context.Context, until time.Time) (a *Authority, err error) {
	err = update(ctx, h.Secrets, AuthoritySecret, func(s *Secret) (*Secret, error) {
		if a, err = authorityOf(s); err != nil {
			return nil, err
		}
		if !a.CanIssue() {
			return nil, ErrNoKey
		}
		noted, _ := time.Parse(time.RFC3339, s.Annotations[issuedUntilAnnotation])
		if !s.Managed() || !noted.Before(until) {
			return nil, nil
		}
		next := s.clone()
		next.Annotations[issuedUntilAnnotation] = until.Truncate(24 * time.Hour).Add(24 * time.Hour).UTC().Format(time.RFC3339)
		return next, nil
	})
	return a, err
}

// Issued is a client certificate and the CAs that its owner must trust.
type Issued struct {
	Pair
	Bundle []byte // PEM
}

// Sign signs an agent's request. The key of the result is empty.
func (h *Manager) Sign(ctx context.Context, request []byte, agent string) (Issued, error) {
	if _, err := ReadRequest(request, agent); err != nil {
		return Issued{}, err
	}
	return h.issue(ctx, agent, func(a *Authority, agent string, life time.Duration, now time.Time) (Pair, error) {
		chain, err := a.Sign(request, agent, life, now)
		return Pair{Cert: chain}, err
	})
}

// Client issues a certificate with its key for an agent that cannot join by token.
func (h *Manager) Client(ctx context.Context, agent string) (Issued, error) {
	return h.issue(ctx, agent, (*Authority).Client)
}

// ProxyClient issues a resource proxy client certificate for the cluster Secret of an agent.
func (h *Manager) ProxyClient(ctx context.Context, agent string) (Issued, error) {
	return h.issue(ctx, agent, (*Authority).ProxyClient)
}

func (h *Manager) issue(ctx context.Context, agent string, issue func(*Authority, string, time.Duration, time.Time) (Pair, error)) (Issued, error) {
	if err := checkAgent(agent); err != nil {
		return Issued{}, err
	}
	life := cmp.Or(h.ClientLifetime, ClientLifetime)
	a, err := h.recordIssuedUntil(ctx, h.now().Add(life))
	if err != nil {
		return Issued{}, err
	}
	pair, err := issue(a, agent, life, h.now())
	return Issued{pair, a.BundlePEM()}, err
}

// NeedsRenewal reports whether two thirds of a certificate's lifetime are over, or another CA has issued it.
func (a *Authority) NeedsRenewal(certPEM []byte, now time.Time) bool {
	certs, err := Certificates(certPEM)
	return err != nil || a.CanIssue() && !a.HasIssued(certs[0]) || !now.Before(RenewAt(certs[0]))
}
