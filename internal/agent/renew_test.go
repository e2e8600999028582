package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// registry is a hub that renews certificates, and an agent that keeps its own.
type registry struct {
	*certRenewer
	t       *testing.T
	hub     *pki.Manager
	secrets *pki.FakeSecrets // of the agent
	clock   time.Time
	renewed int
	refuse  error
	lost    int    // answers that are lost
	session string // fingerprint of its certificate
	keys    [][]byte
	log     bytes.Buffer
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{t: t, secrets: &pki.FakeSecrets{}, clock: time.Now()}
	now := func() time.Time { return r.clock }
	r.hub = &pki.Manager{Secrets: &pki.FakeSecrets{}, Now: now}
	if _, _, err := r.hub.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := &agent{cfg: Config{Jitter: func() float64 { return 0.5 }}, log: slog.New(slog.NewTextHandler(&r.log, nil))}
	r.certRenewer = &certRenewer{agent: a, secrets: r.secrets, names: Certificates{Client: pki.ClientSecret, Authority: pki.AuthoritySecret, Token: pki.JoinSecret}, now: now}
	return r
}

// Renew implements renewer.
func (r *registry) Renew(ctx context.Context, request []byte, _ time.Time) (enroll.Certificate, error) {
	if r.refuse != nil {
		return enroll.Certificate{}, r.refuse
	}
	parsed, err := pki.ReadRequest(request, "w1")
	if err != nil {
		return enroll.Certificate{}, err
	}
	r.keys = append(r.keys, parsed.RawSubjectPublicKeyInfo)
	if r.lost > 0 {
		r.lost--
		return enroll.Certificate{}, errors.New("the connection broke")
	}
	r.renewed++
	issued, err := r.hub.Sign(ctx, request, "w1")
	return enroll.Certificate{Chain: issued.Cert, Bundle: issued.Bundle, Clock: r.clock}, err
}

func (r *registry) Fingerprint() string { return r.session }

// trust returns the CAs of the hub.
func (r *registry) trust() enroll.Trust {
	r.t.Helper()
	a, err := r.hub.Authority(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	pin := a.Pin()
	return enroll.Trust{Bundle: a.BundlePEM(), Issuer: pin[:]}
}

// begin stores a certificate for the agent.
func (r *registry) begin(kept bool) {
	r.t.Helper()
	issued, err := r.hub.Client(r.t.Context(), "w1")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := pki.PutPair(r.t.Context(), r.secrets, pki.ClientSecret, nil, issued.Pair, nil); err != nil {
		r.t.Fatal(err)
	}
	if !kept {
		s := r.secret(pki.ClientSecret)
		s.Labels = nil
		if err := r.secrets.Put(r.t.Context(), s); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *registry) secret(name string) *pki.Secret {
	r.t.Helper()
	s, err := r.secrets.Get(r.t.Context(), name)
	if err != nil || s == nil {
		r.t.Fatalf("there is no Secret %s: %v", name, err)
	}
	return s
}

func (r *registry) reconciled() time.Time {
	r.t.Helper()
	next, err := r.reconcile(r.t.Context(), r, r.trust())
	if err != nil {
		r.t.Fatal(err)
	}
	if !next.After(r.clock) {
		r.t.Errorf("look again at %s", next)
	}
	return next
}

func TestCertRenewer_RenewsInTime(t *testing.T) {
	r := newRegistry(t)
	r.begin(true)
	first := r.secret(pki.ClientSecret)
	certs, err := pki.Certificates(first.Data[pki.CertKey])
	if err != nil {
		t.Fatal(err)
	}
	for r.renewed == 0 { // as its own alarm clock says, never in a rush
		r.clock = r.reconciled()
	}
	life := certs[0].NotAfter.Sub(certs[0].NotBefore)
	if left := certs[0].NotAfter.Sub(r.clock); left < life/4 || left > life/3 {
		t.Errorf("renewed when %s were left of %s", left, life)
	}
	second := r.secret(pki.ClientSecret)
	if bytes.Equal(first.Data[pki.CertKey], second.Data[pki.CertKey]) || bytes.Equal(first.Data[pki.KeyKey], second.Data[pki.KeyKey]) {
		t.Error("certificate or key is the old one")
	}
	if r.reconciled(); r.renewed != 1 {
		t.Errorf("renewed %d times", r.renewed)
	}
}

func TestCertRenewer_TrustsNewCABeforeUse(t *testing.T) {
	r := newRegistry(t)
	r.begin(true)
	r.reconciled()
	if _, err := r.hub.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.refuse = errors.New("the hub is busy")
	if _, err := r.reconcile(t.Context(), r, r.trust()); err == nil || !strings.Contains(err.Error(), "the hub is busy") {
		t.Fatalf("error %v", err)
	}
	if cas, _ := pki.Certificates(r.secret(pki.AuthoritySecret).Data[pki.BundleKey]); len(cas) != 2 {
		t.Errorf("%d CAs are trusted", len(cas))
	}
	r.refuse = nil
	r.reconciled()
	a, err := r.hub.Authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if certs, _ := pki.Certificates(r.secret(pki.ClientSecret).Data[pki.CertKey]); !a.HasIssued(certs[0]) {
		t.Error("the certificate is not of the new CA")
	}
	if r.reconciled(); r.renewed != 1 {
		t.Errorf("renewed %d times", r.renewed)
	}
}

func TestCertRenewer_SkipsUnmanagedSecrets(t *testing.T) {
	r := newRegistry(t)
	r.begin(false)
	if err := r.secrets.Put(t.Context(), &pki.Secret{Name: pki.AuthoritySecret, Data: map[string][]byte{pki.BundleKey: []byte("theirs")}}); err != nil {
		t.Fatal(err)
	}
	before := r.secret(pki.ClientSecret).Revision
	r.clock = r.clock.Add(pki.ClientLifetime * 3 / 4)
	r.reconciled()
	r.reconciled()
	if r.renewed != 0 || r.secret(pki.ClientSecret).Revision != before || string(r.secret(pki.AuthoritySecret).Data[pki.BundleKey]) != "theirs" {
		t.Error("what is another's was written")
	}
	if text := r.log.String(); !strings.Contains(text, pki.ManagedLabel) {
		t.Errorf("nothing says what to do: %s", text)
	}
}

func TestCertRenewer_RejectsWrongCertificate(t *testing.T) {
	r := newRegistry(t)
	r.begin(true)
	before := r.secret(pki.ClientSecret)
	r.clock = r.clock.Add(pki.ClientLifetime * 3 / 4)
	other, err := r.hub.Client(t.Context(), "w2")
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.reconcile(t.Context(), answer{enroll.Certificate{Chain: other.Cert, Bundle: other.Bundle, Clock: r.clock}}, r.trust())
	if after := r.secret(pki.ClientSecret); err == nil || !bytes.Equal(after.Data[pki.CertKey], before.Data[pki.CertKey]) || !bytes.Equal(after.Data[pki.KeyKey], before.Data[pki.KeyKey]) {
		t.Errorf("error %v", err)
	}
}

func TestJoin_AtAnyTimeWithAToken(t *testing.T) {
	r := newRegistry(t)
	asked := 0
	r.agent.cfg.TLS = func(string) (*tls.Config, error) { asked++; return nil, errors.New("there is no certificate yet") }
	if _, err := r.tls(t.Context(), "hub:443"); err == nil || err.Error() != "there is no certificate yet" {
		t.Errorf("error %v: there is no token either", err)
	}
	token, err := r.hub.CreateToken(t.Context(), "127.0.0.1:1", pki.JoinGrant{Agent: "w1", Mode: "managed"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := (enroll.ClusterJoin{Secrets: r.secrets}).PutToken(t.Context(), token.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tls(t.Context(), "hub:443"); err == nil || !strings.Contains(err.Error(), "join the hub") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
	r.begin(true) // a user provides a certificate instead
	if _, err := r.tls(t.Context(), "hub:443"); err == nil || err.Error() != "there is no certificate yet" {
		t.Errorf("error %v: it is on its way", err)
	}
}

// answer is a hub that always answers the same.
type answer struct{ enroll.Certificate }

func (a answer) Fingerprint() string { return "" }

func (a answer) Renew(context.Context, []byte, time.Time) (enroll.Certificate, error) {
	return a.Certificate, nil
}

// If an answer is lost, or the agent crashes before it has stored it, the next request has the same key, also by another
// process. The hub would take another key for that of a thief.
func TestCertRenewer_RepeatsWithTheSameKey(t *testing.T) {
	r := newRegistry(t)
	r.begin(true)
	r.clock = r.clock.Add(pki.ClientLifetime * 3 / 4)
	r.lost = 2
	for range 2 {
		if _, err := r.reconcile(t.Context(), r, r.trust()); err == nil {
			t.Fatal("the answer was lost")
		}
	}
	failing := errors.New("the API server is down")
	// The Secret cannot be written: the agent stops after it has received the certificate.
	r.certRenewer.secrets = failingPut{r.secrets, failing}
	if _, err := r.reconcile(t.Context(), r, r.trust()); !errors.Is(err, failing) {
		t.Fatalf("error %v", err)
	}
	r.certRenewer.secrets = r.secrets
	r.reconciled()
	if len(r.keys) != 4 {
		t.Fatalf("%d requests", len(r.keys))
	}
	for _, key := range r.keys {
		if !bytes.Equal(key, r.keys[0]) {
			t.Error("a repeated request has another key")
		}
	}
	s := r.secret(pki.ClientSecret)
	if _, err := tls.X509KeyPair(s.Data[pki.CertKey], s.Data[pki.KeyKey]); err != nil || len(s.Data[pki.NextKeyKey]) > 0 {
		t.Errorf("%v, keys of the Secret: %d", err, len(s.Data))
	}
	r.clock = r.clock.Add(pki.ClientLifetime * 3 / 4)
	if r.reconciled(); bytes.Equal(r.keys[4], r.keys[0]) {
		t.Error("the next certificate has the same key")
	}
}

// failingPut are Secrets that cannot be written.
type failingPut struct {
	pki.Secrets
	err error
}

func (s failingPut) Put(context.Context, *pki.Secret) error { return s.err }

// Two replicas of an agent may renew at the same time. Both use the key that was stored first.
func TestCertRenewer_ConcurrentRenewalsUseOneKey(t *testing.T) {
	r := newRegistry(t)
	r.begin(true)
	r.clock = r.clock.Add(pki.ClientLifetime * 3 / 4)
	other := &certRenewer{agent: r.agent, secrets: r.secrets, names: r.names, now: r.now}
	r.lost = 2
	r.secrets.Before = func(*pki.Secret) {
		if _, err := other.reconcile(t.Context(), r, r.trust()); err == nil || !strings.Contains(err.Error(), "the connection broke") {
			t.Errorf("error %v", err)
		}
	}
	if _, err := r.reconcile(t.Context(), r, r.trust()); !errors.Is(err, pki.ErrBusy) {
		t.Fatalf("error %v", err)
	}
	if _, err := r.reconcile(t.Context(), r, r.trust()); err == nil {
		t.Fatal("the answer was lost")
	}
	if len(r.keys) != 2 || !bytes.Equal(r.keys[0], r.keys[1]) {
		t.Errorf("%d requests with different keys", len(r.keys))
	}
}

// The hub renews only the newest certificate of an agent. The session may have an older one.
func TestCertRenewer_ReconnectsBeforeItRenewsAgain(t *testing.T) {
	r := newRegistry(t)
	r.begin(true)
	certs, err := pki.Certificates(r.secret(pki.ClientSecret).Data[pki.CertKey])
	if err != nil {
		t.Fatal(err)
	}
	r.session = pki.Describe(certs[0]).Fingerprint
	for range 2 {
		if _, err := r.hub.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = r.reconcile(t.Context(), r, r.trust())
		if _, finish := r.hub.Finish(t.Context(), true); finish != nil {
			t.Fatal(finish)
		}
		if err != nil {
			break
		}
	}
	if !errors.Is(err, enroll.ErrReconnect) || r.renewed != 1 {
		t.Errorf("error %v, renewed %d times", err, r.renewed)
	}
}
