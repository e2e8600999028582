// Package issue issues certificates on the hub: those of the principal, of agents that join or renew, and the client
// certificates in cluster Secrets. It is used only if the key of the CA is in the hub's Secrets.
package issue

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Config is what an Issuer issues.
type Config struct {
	Servers    map[string][]string // Secret of a server certificate → host names and addresses
	ClientLife time.Duration       // of agents' certificates; if zero, the default
	// Names returns the agent that a certificate authenticates. A certificate that would authenticate another agent is
	// not issued. If nil, this is not checked.
	Names func(*x509.Certificate) (string, error)
}

// Issuer issues and renews certificates. It implements transport.Enroller.
type Issuer struct {
	cfg     Config
	manager *pki.Manager
	agents  Registrations
	log     *slog.Logger
	now     func() time.Time
	wake    chan struct{}        // capacity 1; a Secret has changed
	logged  logonce.Last[string] // by Secret

	mu      sync.Mutex
	trust   *pki.Authority
	changed chan struct{} // closed when trust is replaced
}

// Registrations registers agents that join, and records their certificates.
type Registrations interface {
	// Register registers an agent as its join token says. If the agent is not registered, tokenValid is called before it
	// is created, because the deletion of an Agent deletes its tokens first.
	Register(ctx context.Context, grant pki.JoinGrant, tokenValid func() error) error
	// DenyReason returns why an agent must not get a certificate, or not for this mode. It is empty if the agent may.
	DenyReason(ctx context.Context, agent, mode string) (string, error)
	// RecordJoined records a certificate before it is sent to an agent that joins. If the agent was suspended because its
	// certificate was reused, it first revokes the other certificates of the agent.
	RecordJoined(ctx context.Context, agent string, entry pki.RecordEntry) error
	// RecordRenewed records a certificate before it is sent to an agent that connected with another certificate. If that
	// was reused, it suspends the agent.
	RecordRenewed(ctx context.Context, agent string, with, entry pki.RecordEntry) error
}

// New returns an Issuer. Run keeps the server certificates valid.
func New(cfg Config, secrets pki.Secrets, agents Registrations, log *slog.Logger) *Issuer {
	return &Issuer{cfg: cfg, manager: &pki.Manager{Secrets: secrets, ClientLifetime: cfg.ClientLife}, agents: agents, log: log, now: time.Now,
		wake: make(chan struct{}, 1), changed: make(chan struct{})}
}

// SecretHandlers returns the given handlers of Secrets, extended so that the Issuer also receives its Secrets.
func (i *Issuer) SecretHandlers(given map[string]func(map[string][]byte) error) map[string]func(map[string][]byte) error {
	all := map[string]func(map[string][]byte) error{}
	maps.Copy(all, given)
	extend := func(name string, handle func(map[string][]byte)) {
		next := all[name]
		all[name] = func(data map[string][]byte) error {
			handle(data)
			i.wakeUp()
			var err error
			if next != nil {
				err = next(data)
			}
			if data == nil {
				return nil // Run creates it, or logs why not
			}
			return err
		}
	}
	extend(pki.AuthoritySecret, i.setAuthority)
	for name := range i.cfg.Servers {
		extend(name, func(map[string][]byte) {})
	}
	return all
}

func (i *Issuer) wakeUp() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// setAuthority reads the CA. If it is missing or invalid, agents keep the CA that they trust.
func (i *Issuer) setAuthority(data map[string][]byte) {
	if data == nil {
		return
	}
	a, err := pki.ReadAuthority(data)
	if err != nil {
		return // reconcile logs it
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.trust != nil && i.trust.CanIssue() == a.CanIssue() && i.trust.Pin() == a.Pin() && bytes.Equal(i.trust.BundlePEM(), a.BundlePEM()) {
		return
	}
	i.trust = a
	close(i.changed)
	i.changed = make(chan struct{})
}

const (
	maxInterval   = time.Hour // between two reconciles
	retryInterval = 10 * time.Second
)

// Run keeps the principal's certificates valid until ctx ends.
func (i *Issuer) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-i.wake:
		}
		next, err := i.reconcile(ctx)
		if err != nil && ctx.Err() == nil {
			i.logOnce(ctx, "", "Failed to reconcile certificates, retrying", err)
			next = i.now().Add(retryInterval)
		}
		timer.Reset(max(time.Second, next.Sub(i.now())))
	}
}

// logOnce logs a message about a Secret, unless the reason is the last one that was logged.
func (i *Issuer) logOnce(ctx context.Context, secret, message string, reason error) {
	if i.logged.Changed(secret, reason.Error()) {
		i.log.WarnContext(ctx, message, "reason", reason) //nolint:sloglint // callers pass constants
	}
}

// reconcile renews what is due and returns when to run again.
func (i *Issuer) reconcile(ctx context.Context) (next time.Time, err error) {
	next = i.now().Add(maxInterval)
	a, err := i.authority(ctx)
	if err != nil || a == nil {
		return next, err
	}
	var failed []error
	for name, hosts := range i.cfg.Servers {
		issued, due, err := i.manager.EnsureServerCert(ctx, name, hosts)
		switch {
		case errors.As(err, new(*pki.NotManagedError)):
			i.logOnce(ctx, name, "Certificate is not managed by the principal", err)
		case err != nil:
			failed = append(failed, err)
		default:
			if issued {
				i.log.InfoContext(ctx, "Issued server certificate", "secret", name, "names", hosts, "renewAt", due.UTC())
			}
			if due.Before(next) {
				next = due
			}
		}
	}
	failed = append(failed, i.finishRotation(ctx, a))
	if n, err := i.manager.DeleteExpiredTokens(ctx); err != nil {
		failed = append(failed, err)
	} else if n > 0 {
		i.log.InfoContext(ctx, "Deleted expired join tokens", "count", n)
	}
	return next, errors.Join(failed...)
}

// authority returns the CA. It creates the CA if there is none and all server certificates are managed. It returns nil if
// the hub cannot issue.
func (i *Issuer) authority(ctx context.Context) (*pki.Authority, error) {
	a, err := i.manager.Authority(ctx)
	if errors.Is(err, pki.ErrNoAuthority) {
		if len(i.cfg.Servers) == 0 {
			return nil, nil
		}
		for name := range i.cfg.Servers {
			s, err := i.manager.Secrets.Get(ctx, name)
			if err != nil {
				return nil, err
			}
			if s != nil && !s.Managed() {
				i.logOnce(ctx, pki.AuthoritySecret, "Certificates are not issued on this hub",
					fmt.Errorf("Secret %s is not managed by the principal: put its CA into Secret %s", name, pki.AuthoritySecret))
				return nil, nil
			}
		}
		var created bool
		if a, created, err = i.manager.Init(ctx); created {
			i.log.InfoContext(ctx, "Created CA", "secret", pki.AuthoritySecret, "pin", a.Pin().String(), "expires", a.Cert.NotAfter.UTC())
		}
	}
	if err != nil {
		return nil, err
	}
	if !a.CanIssue() {
		i.logOnce(ctx, pki.AuthoritySecret, "Certificates are not issued on this hub", pki.ErrNoKey)
		return nil, nil
	}
	return a, nil
}

// finishRotation removes the old CA when no valid certificate needs it.
func (i *Issuer) finishRotation(ctx context.Context, a *pki.Authority) error {
	if !a.Rotating() {
		return nil
	}
	_, err := i.manager.Finish(ctx, false)
	if errors.As(err, new(*pki.TooEarlyError)) {
		return nil
	}
	if err == nil {
		i.log.InfoContext(ctx, "Removed the old CA", "pin", a.Pin().String())
	}
	return err
}

// checkIdentity returns an error if a certificate for an agent would not authenticate it.
func (i *Issuer) checkIdentity(agent string) error {
	if i.cfg.Names == nil {
		return nil
	}
	name, err := i.cfg.Names(&x509.Certificate{Subject: pkix.Name{CommonName: agent, Names: []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 3}, Value: agent}}}})
	if err == nil && name != agent {
		err = fmt.Errorf("it would authenticate %q", name)
	}
	if err != nil {
		return fmt.Errorf("the hub cannot issue a certificate for %s that it recognizes (--auth): %w", agent, err)
	}
	return nil
}
