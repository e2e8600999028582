package pki

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Manager is the authority of an installation, as its hub keeps it in Secrets.
type Manager struct {
	Secrets Secrets
	Now     func() time.Time // nil: the clock

	// Lives of what is issued; zero: ServerLife and ClientLife.
	ServerLife, ClientLife time.Duration
}

// ErrNoAuthority says that there is no CA yet.
var ErrNoAuthority = errors.New("there is no CA on the hub: make one with `argocd-agentctl pki init`, or put yours into Secret " + AuthoritySecret)

// ErrBusy says that a Secret changes faster than it can be written.
var ErrBusy = errors.New("somebody else is changing it at the same time: try again")

// attempts bounds how often a write that lost a race is made again.
const attempts = 5

func (h *Manager) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

func (h *Manager) clientLife() time.Duration { return orLife(h.ClientLife, ClientLife) }
func (h *Manager) serverLife() time.Duration { return orLife(h.ServerLife, ServerLife) }

func orLife(life, otherwise time.Duration) time.Duration {
	if life > 0 {
		return life
	}
	return otherwise
}

// Authority reads the CA.
func (h *Manager) Authority(ctx context.Context) (*Authority, error) {
	_, a, err := h.authority(ctx)
	return a, err
}

func (h *Manager) authority(ctx context.Context) (*Secret, *Authority, error) {
	s, err := h.Secrets.Get(ctx, AuthoritySecret)
	if err != nil {
		return nil, nil, fmt.Errorf("read Secret %s: %w", AuthoritySecret, err)
	}
	if s == nil {
		return nil, nil, ErrNoAuthority
	}
	a, err := ReadAuthority(s.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("the CA in Secret %s: %w", AuthoritySecret, err)
	}
	return s, a, nil
}

// Init makes a CA unless there is one. It reports whether it did.
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
	s := &Secret{Name: AuthoritySecret, Type: typeTLS, Labels: map[string]string{ManagedLabel: KeptValue}, Data: data}
	made, err = h.Secrets.Put(ctx, s)
	if err != nil {
		return nil, false, fmt.Errorf("write Secret %s: %w", AuthoritySecret, err)
	}
	if !made { // somebody else has made one meanwhile
		a, err = h.Authority(ctx)
	}
	return a, made, err
}

// Annotations of the CA's Secret.
const (
	// issuedUntilAnnotation is when the last of the clients' certificates expires
	// that the CA has issued, rounded up to days; previousUntilAnnotation the same of
	// the CA that it replaces.
	issuedUntilAnnotation   = prefix + "issued-until"
	previousUntilAnnotation = prefix + "previous-issued-until"
)

// Rotate puts a new CA into the place of the old one. Both are believed until
// Finish: what the old one has issued stays good, and whoever knows only the old
// one believes what the new one issues. Agents that are connected change over by
// themselves.
func (h *Manager) Rotate(ctx context.Context) (*Authority, error) {
	return h.change(ctx, func(s *Secret, a *Authority) (*Authority, error) {
		if a.Replaces() {
			return nil, errors.New("the CA is being replaced already: finish that first with `argocd-agentctl pki rotate --finish`")
		}
		next, err := a.replace(h.now())
		if err != nil {
			return nil, err
		}
		until := s.Annotations[issuedUntilAnnotation]
		if until == "" && s.Managed() {
			until = h.now().UTC().Format(time.RFC3339) // it has issued nothing to clients
		}
		s.Annotations[previousUntilAnnotation] = until
		delete(s.Annotations, issuedUntilAnnotation)
		s.Labels[ManagedLabel] = KeptValue
		return next, nil
	})
}

// TooEarlyError says that the old CA is still needed.
type TooEarlyError struct{ Until time.Time } // zero: it is not known until when

func (e *TooEarlyError) Error() string {
	if e.Until.IsZero() {
		return "the old CA was not made by us, so it is not known until when what it has issued is good: see that every agent has a certificate of the new one, then finish with --force"
	}
	return fmt.Sprintf("the old CA has issued certificates that are good until %s: wait, or see that every agent has a certificate of the new one, then finish with --force", day(e.Until))
}

// Finish ends a rotation: the old CA is believed no longer. Unless forced it is
// a *TooEarlyError as long as a certificate of the old one can be in use.
func (h *Manager) Finish(ctx context.Context, force bool) (*Authority, error) {
	return h.change(ctx, func(s *Secret, a *Authority) (*Authority, error) {
		if !a.Replaces() {
			return nil, errors.New("no CA is being replaced: there is nothing to finish")
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

// change writes another CA into the Secret, or the same one with other
// annotations.
func (h *Manager) change(ctx context.Context, f func(*Secret, *Authority) (*Authority, error)) (*Authority, error) {
	for range attempts {
		s, a, err := h.authority(ctx)
		if err != nil {
			return nil, err
		}
		if who := s.ManagedBy(); who != "" {
			return nil, fmt.Errorf("the CA in Secret %s is kept by %s: replace it there", AuthoritySecret, who)
		}
		next := s.clone()
		if a, err = f(next, a); err != nil {
			return nil, err
		}
		if next.Data, err = a.data(); err != nil {
			return nil, err
		}
		stored, err := h.Secrets.Put(ctx, next)
		if err != nil {
			return nil, fmt.Errorf("write Secret %s: %w", AuthoritySecret, err)
		}
		if stored {
			return a, nil
		}
	}
	return nil, fmt.Errorf("write Secret %s: %w", AuthoritySecret, ErrBusy)
}

// recordIssuedUntil notes until when a client's certificate will be good, before it is
// issued: so long the CA cannot go.
func (h *Manager) recordIssuedUntil(ctx context.Context, until time.Time) (*Authority, error) {
	for range attempts {
		s, a, err := h.authority(ctx)
		if err != nil {
			return nil, err
		}
		if !a.Issues() {
			return nil, ErrNoKey
		}
		noted, _ := time.Parse(time.RFC3339, s.Annotations[issuedUntilAnnotation])
		if !s.Managed() || !noted.Before(until) {
			return a, nil
		}
		next := s.clone()
		next.Annotations[issuedUntilAnnotation] = until.Truncate(24 * time.Hour).Add(24 * time.Hour).UTC().Format(time.RFC3339)
		stored, err := h.Secrets.Put(ctx, next)
		if err != nil {
			return nil, fmt.Errorf("write Secret %s: %w", AuthoritySecret, err)
		}
		if stored {
			return a, nil
		}
	}
	return nil, fmt.Errorf("write Secret %s: %w", AuthoritySecret, ErrBusy)
}

// Issued is a client's certificate, and whom its owner shall believe.
type Issued struct {
	Pair
	Bundle []byte // PEM
}

// Sign signs an agent's request; the key of the answer is empty.
func (h *Manager) Sign(ctx context.Context, request []byte, agent string) (Issued, error) {
	if _, err := ReadRequest(request, agent); err != nil {
		return Issued{}, err
	}
	a, err := h.recordIssuedUntil(ctx, h.now().Add(h.clientLife()))
	if err != nil {
		return Issued{}, err
	}
	chain, err := a.Sign(request, agent, h.clientLife(), h.now())
	return Issued{Pair{Cert: chain}, a.BundlePEM()}, err
}

// Client issues a certificate for an agent, key and all: for clusters that can
// not join.
func (h *Manager) Client(ctx context.Context, agent string) (Issued, error) {
	return h.client(ctx, agent, (*Authority).Client)
}

// ProxyClient issues a certificate for Argo CD, to reach an agent's cluster with
// through the resource proxy: what goes into its cluster Secret.
func (h *Manager) ProxyClient(ctx context.Context, agent string) (Issued, error) {
	return h.client(ctx, agent, (*Authority).ProxyClient)
}

func (h *Manager) client(ctx context.Context, agent string, issue func(*Authority, string, time.Duration, time.Time) (Pair, error)) (Issued, error) {
	if err := checkAgent(agent); err != nil {
		return Issued{}, err
	}
	a, err := h.recordIssuedUntil(ctx, h.now().Add(h.clientLife()))
	if err != nil {
		return Issued{}, err
	}
	pair, err := issue(a, agent, h.clientLife(), h.now())
	return Issued{pair, a.BundlePEM()}, err
}

// Due reports whether a certificate is to be issued again: two thirds of its life
// are over, or it is of another CA than the one that issues now.
func (a *Authority) Due(certPEM []byte, now time.Time) bool {
	certs, err := Certificates(certPEM)
	return err != nil || a.Issues() && !a.Issued(certs[0]) || !now.Before(RenewAt(certs[0]))
}
