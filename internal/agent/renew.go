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
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// Certificates names the Secrets of Namespace that the agent's own certificate,
// and those of the CAs that it believes, are kept in.
type Certificates struct {
	Client, Authority string
	Token             string // a token to join with, where there is no certificate yet
}

// certificateClient is where certificates are renewed: a *link.Office.
type certificateClient interface {
	Renew(ctx context.Context, request []byte, clock time.Time) (transport.Certificate, error)
}

// certRenewer keeps up the agent's certificate, and whom it believes, while there is a
// session. Who keeps a Secret that is not marked as ours is left to it.
type certRenewer struct {
	agent   *agent
	secrets pki.Secrets
	names   Certificates
	now     func() time.Time
	said    string // the last failure that was logged
}

func (a *agent) newKeeper() *certRenewer {
	return &certRenewer{agent: a, secrets: kube.Secrets{Client: a.client, Namespace: a.cfg.Namespace}, names: *a.cfg.Certificates, now: time.Now}
}

// run implements link.DialerConfig.Office. The end of one session and the
// beginning of the next may overlap: each has a keeper of its own.
func (k *certRenewer) run(ctx context.Context, o *transport.CertificateClient) error {
	session := *k
	return session.runSession(ctx, o)
}

func (k *certRenewer) runSession(ctx context.Context, o *transport.CertificateClient) error {
	updates := make(chan transport.Trust)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() {
		cancel(o.WatchTrust(ctx, func(t transport.Trust) {
			select {
			case updates <- t:
			case <-ctx.Done():
			}
		}))
	})
	var trust transport.Trust
	timer := time.NewTimer(0)
	timer.Stop()
	pause := firstPause
	for {
		select {
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		case trust = <-updates:
			// All agents learn of a new CA at the same moment.
			timer.Reset(k.jittered(changeSpread))
			continue
		case <-timer.C:
		}
		next, err := k.reconcile(ctx, o, trust)
		if err != nil {
			k.logFailureOnce(ctx, err)
			next = k.now().Add(max(pause/2+k.jittered(pause/2), retryAfter(err)))
			pause = min(2*pause, longestPause)
		} else {
			pause = firstPause
			k.said = ""
		}
		timer.Reset(max(0, next.Sub(k.now())))
	}
}

const (
	changeSpread = 2 * time.Second
	firstPause   = 5 * time.Second
	longestPause = 10 * time.Minute
	// recheckInterval is how often the Secrets are looked at when nothing is due: somebody
	// may have put something else there.
	recheckInterval = time.Hour
)

func (k *certRenewer) jittered(d time.Duration) time.Duration {
	return time.Duration(k.agent.cfg.Jitter() * float64(d))
}

func retryAfter(err error) time.Duration {
	if told, ok := errors.AsType[*transport.EnrollError](err); ok {
		return told.RetryAfter
	}
	return 0
}

// logFailureOnce logs a failure, once.
func (k *certRenewer) logFailureOnce(ctx context.Context, err error) {
	if ctx.Err() != nil || err.Error() == k.said {
		return
	}
	k.said = err.Error()
	k.agent.log.WarnContext(ctx, "cannot keep up the certificate; trying again", "error", err)
}

// reconcile does what is due, and tells when to look again.
func (k *certRenewer) reconcile(ctx context.Context, o certificateClient, trust transport.Trust) (next time.Time, err error) {
	again := k.now().Add(recheckInterval + k.jittered(recheckInterval/10))
	if len(trust.Bundle) == 0 {
		return again, nil // the hub has no CA to speak of
	}
	if err := transport.StoreTrust(ctx, k.secrets, k.names.Authority, trust.Bundle); err != nil && !k.foreign(ctx, err) {
		return time.Time{}, err
	}
	s, err := k.secrets.Get(ctx, k.names.Client)
	if err != nil {
		return time.Time{}, fmt.Errorf("read Secret %s: %w", k.names.Client, err)
	}
	if s == nil || len(trust.Issuer) == 0 {
		return again, nil
	}
	certs, err := pki.Certificates(s.Data[pki.CertKey])
	if err != nil {
		return time.Time{}, fmt.Errorf("the Secret %s: %w", k.names.Client, err)
	}
	leaf := certs[0]
	due := pki.RenewAt(leaf).Add(k.jittered(leaf.NotAfter.Sub(leaf.NotBefore) / 30))
	if k.now().Before(due) && issuedBy(leaf, trust) {
		return earliest(due, again), nil
	}
	if !s.Managed() {
		k.foreign(ctx, &pki.NotManagedError{Secret: k.names.Client})
		return again, nil
	}
	return again, k.renew(ctx, o, s, leaf)
}

// foreign says, once, that something is left to somebody else.
func (k *certRenewer) foreign(ctx context.Context, err error) bool {
	other, ok := errors.AsType[*pki.NotManagedError](err)
	if ok && k.said != other.Error() {
		k.said = other.Error()
		k.agent.log.InfoContext(ctx, "not renewed by the agent", "secret", other.Secret, "reason", other.Error())
	}
	return ok
}

// issuedBy reports whether a certificate is of the CA that issues now.
func issuedBy(leaf *x509.Certificate, trust transport.Trust) bool {
	cas, err := pki.Certificates(trust.Bundle)
	if err != nil {
		return true // it is not for a broken list to say that it is not
	}
	for _, ca := range cas {
		if pin := pki.PinOf(ca); bytes.Equal(pin[:], trust.Issuer) {
			return leaf.CheckSignatureFrom(ca) == nil
		}
	}
	return true
}

// renew asks for the next certificate, with a new key, and keeps it. What is
// connected stays so; the next connection uses it.
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
	request, key, err := pki.NewRequest(name, nil)
	if err != nil {
		return err
	}
	asked := k.now()
	issued, err := o.Renew(ctx, request, asked)
	if err != nil {
		return fmt.Errorf("renew the certificate that expires on %s: %w", leaf.NotAfter.UTC().Format(time.RFC3339), err)
	}
	if err := transport.CheckIssued(issued, key, name, k.now()); err != nil {
		return err
	}
	k.compareClocks(ctx, asked, issued.Clock)
	if err := transport.StoreTrust(ctx, k.secrets, k.names.Authority, issued.Bundle); err != nil && !errors.As(err, new(*pki.NotManagedError)) {
		return err
	}
	stored, err := pki.PutPair(ctx, k.secrets, k.names.Client, s, pki.Pair{Cert: issued.Chain, Key: key}, nil)
	if err == nil && !stored {
		err = fmt.Errorf("write Secret %s: %w", k.names.Client, pki.ErrBusy)
	}
	if err != nil {
		return err
	}
	certs, _ := pki.Certificates(issued.Chain)
	k.agent.log.InfoContext(ctx, "renewed the certificate", "agent", name, "expires", certs[0].NotAfter.UTC(),
		"fingerprint", pki.Describe(certs[0]).Fingerprint, "before", pki.Describe(leaf).Fingerprint)
	return nil
}

// compareClocks says so if the two differ by more than a request takes.
func (k *certRenewer) compareClocks(ctx context.Context, asked, hub time.Time) {
	if skew := hub.Sub(asked); skew.Abs() > time.Minute {
		k.agent.log.WarnContext(ctx, "the clock of this cluster and the hub's differ: set them right, or certificates will be taken for expired", "hubIsAhead", skew.Round(time.Second).String())
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
