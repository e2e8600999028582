package agent

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Certificates names the Secrets of the client certificate and the trusted CAs.
type Certificates struct {
	Client, Authority string
	Token             string // Secret of a join token
}

// certificateClient renews certificates. *transport.CertificateClient implements it.
type certificateClient interface {
	Renew(ctx context.Context, request []byte, clock time.Time) (enroll.Certificate, error)
	Fingerprint() string
}

// certRenewer renews the client certificate and updates the trusted CAs during a session. It does not change a Secret
// that is not marked as managed by argocd-agent.
type certRenewer struct {
	agent   *agent
	secrets pki.Secrets
	names   Certificates
	now     func() time.Time
	logged  logonce.One
}

func (a *agent) newCertRenewer() *certRenewer {
	return &certRenewer{agent: a, secrets: kube.Secrets{Client: a.client, Namespace: a.cfg.Namespace}, names: *a.cfg.Certificates, now: time.Now}
}

// run implements DialerConfig.RenewCertificate. The end of one session and the start of the next may overlap.
func (k *certRenewer) run(ctx context.Context, o enroll.Client) error {
	k = &certRenewer{agent: k.agent, secrets: k.secrets, names: k.names, now: k.now}
	updates := make(chan enroll.Trust)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() {
		cancel(o.WatchTrust(ctx, func(t enroll.Trust) {
			select {
			case updates <- t:
			case <-ctx.Done():
			}
		}))
	})
	var trust enroll.Trust
	timer := time.NewTimer(0)
	timer.Stop()
	pause := backoff.Backoff{Min: minRenewPause, Max: maxRenewPause, Jitter: k.agent.cfg.Jitter}
	for {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case trust = <-updates:
			// All agents learn of a new CA at the same time.
			timer.Reset(k.jittered(changeSpread))
			continue
		case <-timer.C:
		}
		next, err := k.reconcile(ctx, o, trust)
		if errors.Is(err, enroll.ErrReconnect) {
			return err
		}
		if err != nil {
			k.logFailureOnce(ctx, err)
			next = k.now().Add(max(pause.Next(), retryAfter(err)))
		} else {
			pause.Reset()
			k.logged.Reset()
		}
		timer.Reset(max(0, next.Sub(k.now())))
	}
}

const (
	changeSpread    = 2 * time.Second
	minRenewPause   = 5 * time.Second
	maxRenewPause   = 10 * time.Minute
	recheckInterval = time.Hour // users may change the Secrets
)

func (k *certRenewer) jittered(d time.Duration) time.Duration {
	return time.Duration(k.agent.cfg.Jitter() * float64(d))
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*enroll.Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

func (k *certRenewer) logFailureOnce(ctx context.Context, err error) {
	if ctx.Err() == nil && k.logged.Changed(err.Error()) {
		k.agent.log.WarnContext(ctx, "Failed to renew certificate, retrying", "error", err)
	}
}

// reconcile updates the trusted CAs, renews the certificate if it is due, and returns when to run again.
func (k *certRenewer) reconcile(ctx context.Context, o certificateClient, trust enroll.Trust) (next time.Time, err error) {
	again := k.now().Add(recheckInterval + k.jittered(recheckInterval/10))
	if len(trust.Bundle) == 0 {
		return again, nil // the hub has no CA of its own
	}
	if err := enroll.StoreTrust(ctx, k.secrets, k.names.Authority, trust.Bundle); err != nil && !k.logNotManaged(ctx, err) {
		return time.Time{}, err
	}
	s, err := k.secrets.Get(ctx, k.names.Client)
	if err != nil {
		return time.Time{}, fmt.Errorf("get Secret %s: %w", k.names.Client, err)
	}
	if s == nil || len(trust.Issuer) == 0 {
		return again, nil
	}
	certs, err := pki.Certificates(s.Data[pki.CertKey])
	if err != nil {
		return time.Time{}, fmt.Errorf("parse Secret %s: %w", k.names.Client, err)
	}
	leaf := certs[0]
	due := pki.RenewAt(leaf).Add(k.jittered(leaf.NotAfter.Sub(leaf.NotBefore) / 30))
	if k.now().Before(due) && issuedBy(leaf, trust) {
		return earliest(due, again), nil
	}
	if !s.Managed() {
		k.logNotManaged(ctx, &pki.NotManagedError{Secret: k.names.Client})
		return again, nil
	}
	if own := o.Fingerprint(); own != "" && own != pki.Describe(leaf).Fingerprint {
		return time.Time{}, enroll.ErrReconnect // the hub renews only the newest certificate
	}
	return again, k.renew(ctx, o, s, leaf)
}

// logNotManaged logs once that a Secret is managed by something else. It reports whether err says so.
func (k *certRenewer) logNotManaged(ctx context.Context, err error) bool {
	other, ok := errors.AsType[*pki.NotManagedError](err)
	if ok && k.logged.Changed(other.Error()) {
		k.agent.log.InfoContext(ctx, "Secret is not managed by the agent", "secret", other.Secret, "reason", other.Error())
	}
	return ok
}

// issuedBy reports whether a certificate was signed by the current issuer. If the bundle is invalid, it reports true.
func issuedBy(leaf *x509.Certificate, trust enroll.Trust) bool {
	cas, err := pki.Certificates(trust.Bundle)
	if err != nil {
		return true
	}
	for _, ca := range cas {
		if pin := pki.PinOf(ca); bytes.Equal(pin[:], trust.Issuer) {
			return leaf.CheckSignatureFrom(ca) == nil
		}
	}
	return true
}

// renew requests a certificate with a new key and stores it. Open connections stay open. The next connection uses it.
func (k *certRenewer) renew(ctx context.Context, o certificateClient, s *pki.Secret, leaf *x509.Certificate) error {
	ctx, span := k.agent.cfg.Trace.Start(ctx, trace.KindClient, "renew the certificate")
	defer span.End()
	err := k.replace(ctx, o, s, leaf)
	if err != nil {
		span.Fail(err.Error())
	}
	return err
}

func (k *certRenewer) replace(ctx context.Context, o certificateClient, s *pki.Secret, leaf *x509.Certificate) error {
	name := leaf.Subject.CommonName
	s, request, key, err := k.prepare(ctx, s, name)
	if err != nil {
		return err
	}
	asked := k.now()
	issued, err := o.Renew(ctx, request, asked)
	if err != nil {
		return fmt.Errorf("renew the certificate that expires on %s: %w", leaf.NotAfter.UTC().Format(time.RFC3339), err)
	}
	if err := enroll.CheckIssued(issued, key, name, k.now()); err != nil {
		return err
	}
	k.compareClocks(ctx, asked, issued.Clock)
	if err := enroll.StoreTrust(ctx, k.secrets, k.names.Authority, issued.Bundle); err != nil && !errors.As(err, new(*pki.NotManagedError)) {
		return err
	}
	if err := pki.PutPair(ctx, k.secrets, k.names.Client, s, pki.Pair{Cert: issued.Chain, Key: key}, nil); err != nil {
		return err
	}
	certs, _ := pki.Certificates(issued.Chain)
	k.agent.log.InfoContext(ctx, "Renewed certificate", "agent", name, "expires", certs[0].NotAfter.UTC(),
		"fingerprint", pki.Describe(certs[0]).Fingerprint, "previousFingerprint", pki.Describe(leaf).Fingerprint)
	return nil
}

// prepare returns a request with the key that is stored for it. If there is none, it stores a new key. If the answer of the
// hub is lost, the next request has the same key. The hub would take another one for that of a thief.
func (k *certRenewer) prepare(ctx context.Context, s *pki.Secret, agent string) (stored *pki.Secret, request, key []byte, err error) {
	if next := s.Data[pki.NextKeyKey]; len(next) > 0 {
		if request, key, err = pki.NewRequest(agent, next); err == nil {
			return s, request, key, nil
		}
	}
	if request, key, err = pki.NewRequest(agent, nil); err != nil {
		return nil, nil, nil, err
	}
	s.Data[pki.NextKeyKey] = key
	if err := k.secrets.Put(ctx, s); err != nil {
		return nil, nil, nil, fmt.Errorf("store the key of the renewal in Secret %s: %w", k.names.Client, err)
	}
	if stored, err = k.secrets.Get(ctx, k.names.Client); err != nil {
		return nil, nil, nil, err
	}
	if stored == nil || !bytes.Equal(stored.Data[pki.NextKeyKey], key) {
		return nil, nil, nil, fmt.Errorf("write Secret %s: %w", k.names.Client, pki.ErrBusy)
	}
	return stored, request, key, nil
}

func (k *certRenewer) compareClocks(ctx context.Context, asked, hub time.Time) {
	if skew := hub.Sub(asked); skew.Abs() > time.Minute {
		k.agent.log.WarnContext(ctx, "Clock differs from the hub's clock", "skew", skew.Round(time.Second).String())
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
