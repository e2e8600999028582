package principal

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
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// Issue is what the principal does about certificates when the CA's key is in
// the hub: it issues and renews its own, signs those of agents, and lets clusters
// join.
type Issue struct {
	// Servers are the Secrets of servers' certificates, and the host names and
	// addresses of each.
	Servers    map[string][]string
	ClientLife time.Duration // of agents' certificates; zero: the default
	// Names tells which agent a certificate is taken for. One that would be taken
	// for another is not issued.
	Names func(*x509.Certificate) (string, error)
}

// issuer carries that out.
type issuer struct {
	cfg     Issue
	manager *pki.Manager
	agents  registrations
	log     *slog.Logger
	now     func() time.Time
	wake    chan struct{} // of one: a Secret has changed
	logged  map[string]string
	mu      sync.Mutex
	trust   *pki.Authority
	changed chan struct{} // closed when trust is replaced

	authorityChanged func() // likewise; may be nil
}

// registrations are the agents, as far as certificates go.
type registrations interface {
	// register has an agent registered as its token says. Who is not registered
	// may have been a moment ago: then its token went first, and it is not
	// registered again unless that is still good.
	register(ctx context.Context, who pki.JoinGrant, still func() error) error
	// denyReason tells why an agent shall have no certificate, or not in this mode if
	// one is given; empty: it may.
	denyReason(ctx context.Context, agent, mode string) (string, error)
	// recordIssued notes a certificate, before the agent has it.
	recordIssued(ctx context.Context, agent, fingerprint string, until time.Time) error
}

func newIssuer(cfg Issue, secrets pki.Secrets, agents registrations, log *slog.Logger) *issuer {
	return &issuer{cfg: cfg, manager: &pki.Manager{Secrets: secrets, ClientLife: cfg.ClientLife}, agents: agents, log: log, now: time.Now,
		wake: make(chan struct{}, 1), logged: map[string]string{}, changed: make(chan struct{})}
}

// newIssuer is the principal's, which keeps its Secrets in Argo CD's namespace.
func (p *principal) newIssuer() *issuer {
	if p.cfg.Issue == nil {
		return nil
	}
	secrets := kube.Secrets{Client: p.client, Namespace: p.cfg.Namespace}
	i := newIssuer(*p.cfg.Issue, secrets, agentObjects{p.client, p.cfg.Namespace}, p.log)
	i.authorityChanged = func() { p.agents.recheck() }
	return i
}

// secretHandlers are those of the configuration, to which it listens too.
func (i *issuer) secretHandlers(given map[string]func(map[string][]byte) error) map[string]func(map[string][]byte) error {
	if i == nil {
		return given
	}
	all := maps.Clone(given)
	if all == nil {
		all = map[string]func(map[string][]byte) error{}
	}
	also := func(name string, take func(map[string][]byte)) {
		first := all[name]
		all[name] = func(data map[string][]byte) error {
			take(data)
			i.wakeUp()
			var err error
			if first != nil {
				err = first(data)
			}
			if data == nil {
				return nil // it is about to be made, or tend says why not
			}
			return err
		}
	}
	also(pki.AuthoritySecret, i.setAuthority)
	for name := range i.cfg.Servers {
		also(name, func(map[string][]byte) {})
	}
	return all
}

func (i *issuer) wakeUp() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// setAuthority takes the CA as it is now, and tells agents.
func (i *issuer) setAuthority(data map[string][]byte) {
	if data == nil {
		return // whoever is connected goes on believing what it believes
	}
	a, err := pki.ReadAuthority(data)
	if err != nil {
		return // tend says so
	}
	i.mu.Lock()
	same := i.trust != nil && i.trust.Issues() == a.Issues() && i.trust.Pin() == a.Pin() && bytes.Equal(i.trust.BundlePEM(), a.BundlePEM())
	if !same {
		i.trust = a
		close(i.changed)
		i.changed = make(chan struct{})
	}
	i.mu.Unlock()
	if !same && i.authorityChanged != nil {
		i.authorityChanged()
	}
}

// How often to look when nothing is due, and after something went wrong.
const (
	issuerInterval = time.Hour
	issuerRetry    = 10 * time.Second
)

// run keeps the principal's own certificates, until the context ends.
func (i *issuer) run(ctx context.Context) error {
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
			i.logOnce(ctx, "", "cannot keep up certificates; trying again", err)
			next = i.now().Add(issuerRetry)
		}
		timer.Reset(max(time.Second, next.Sub(i.now())))
	}
}

// logOnce logs something about a Secret, unless that was the last that was said.
func (i *issuer) logOnce(ctx context.Context, about, message string, reason error) {
	if i.logged[about] != reason.Error() {
		i.logged[about] = reason.Error()
		i.log.WarnContext(ctx, message, "reason", reason) //nolint:sloglint // constant where it is called
	}
}

// reconcile does what is due, and tells when to look again.
func (i *issuer) reconcile(ctx context.Context) (next time.Time, err error) {
	next = i.now().Add(issuerInterval)
	a, err := i.authority(ctx)
	if err != nil || a == nil {
		return next, err
	}
	var failed []error
	for name, hosts := range i.cfg.Servers {
		issued, again, err := i.manager.EnsureServerCert(ctx, name, hosts)
		switch {
		case errors.As(err, new(*pki.NotManagedError)):
			i.logOnce(ctx, name, "a certificate is not ours to renew", err)
		case err != nil:
			failed = append(failed, err)
		default:
			if issued {
				i.log.InfoContext(ctx, "issued a certificate for the hub", "secret", name, "names", hosts, "renewAt", again.UTC())
			}
			next = earlier(next, again)
		}
	}
	failed = append(failed, i.finish(ctx, a))
	if n, err := i.manager.DeleteExpiredTokens(ctx); err != nil {
		failed = append(failed, err)
	} else if n > 0 {
		i.log.InfoContext(ctx, "deleted join tokens that are long over", "count", n)
	}
	return next, errors.Join(failed...)
}

// authority is the CA, made if neither it nor a certificate of somebody else's is
// there. Nil: there is none that can issue.
func (i *issuer) authority(ctx context.Context) (*pki.Authority, error) {
	a, err := i.manager.Authority(ctx)
	if errors.Is(err, pki.ErrNoAuthority) {
		if len(i.cfg.Servers) == 0 {
			return nil, nil // nobody needs one
		}
		for name := range i.cfg.Servers {
			s, err := i.manager.Secrets.Get(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("read Secret %s: %w", name, err)
			}
			if s != nil && !s.Managed() {
				i.logOnce(ctx, pki.AuthoritySecret, "certificates are not issued here", fmt.Errorf("the Secret %s is somebody else's, so its CA is too: put that into Secret %s", name, pki.AuthoritySecret))
				return nil, nil
			}
		}
		var made bool
		if a, made, err = i.manager.Init(ctx); made {
			i.log.InfoContext(ctx, "made a CA", "secret", pki.AuthoritySecret, "pin", a.Pin().String(), "expires", a.Cert.NotAfter.UTC())
		}
	}
	if err != nil {
		return nil, err
	}
	if !a.Issues() {
		i.logOnce(ctx, pki.AuthoritySecret, "certificates are not issued here", pki.ErrNoKey)
		return nil, nil
	}
	return a, nil
}

// finish ends the replacement of a CA once nobody needs the old one.
func (i *issuer) finish(ctx context.Context, a *pki.Authority) error {
	if !a.Replaces() {
		return nil
	}
	_, err := i.manager.Finish(ctx, false)
	if errors.As(err, new(*pki.TooEarlyError)) {
		return nil
	}
	if err == nil {
		i.log.InfoContext(ctx, "the CA that was replaced is no longer believed", "pin", a.Pin().String())
	}
	return err
}

// checkIdentity tells why a certificate for an agent would be of no use to it.
func (i *issuer) checkIdentity(agent string) error {
	if i.cfg.Names == nil {
		return nil
	}
	name, err := i.cfg.Names(&x509.Certificate{Subject: pkix.Name{CommonName: agent, Names: []pkix.AttributeTypeAndValue{{Type: []int{2, 5, 4, 3}, Value: agent}}}})
	if err == nil && name != agent {
		err = fmt.Errorf("it would be taken for %q", name)
	}
	if err != nil {
		return fmt.Errorf("the hub cannot issue a certificate for %s that it recognises (--auth): %w", agent, err)
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
