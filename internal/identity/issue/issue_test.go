package issue

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// registrations records registrations in memory.
type registrations struct {
	granted        []pki.JoinGrant
	certificates   []string
	renewed        []string        // certificates of connections
	with           pki.RecordEntry // the last of them
	denyReason     string          // of all agents
	mode           string          // of all agents, if set
	beforeRegister func()
	err            error
}

func (g *registrations) Register(_ context.Context, grant pki.JoinGrant, tokenValid func() error) error {
	if g.beforeRegister != nil {
		g.beforeRegister()
	}
	if err := tokenValid(); err != nil {
		return err
	}
	g.granted = append(g.granted, grant)
	return g.err
}

func (g *registrations) RecordJoined(_ context.Context, _ string, entry pki.RecordEntry) error {
	g.certificates = append(g.certificates, entry.Fingerprint)
	return nil
}

func (g *registrations) RecordRenewed(_ context.Context, _ string, with, entry pki.RecordEntry) error {
	used := with.Fingerprint
	if entry.KeyStored {
		used += " stored"
	}
	g.certificates, g.renewed, g.with = append(g.certificates, entry.Fingerprint), append(g.renewed, used), with
	return nil
}

func (g *registrations) DenyReason(_ context.Context, _, mode string) (string, error) {
	if g.mode != "" && mode != "" && g.mode != mode {
		return "it is " + g.mode, nil
	}
	return g.denyReason, nil
}

// testIssuer is an Issuer with Secrets in memory and a manual clock.
type testIssuer struct {
	*Issuer
	*pki.FakeSecrets
	t      *testing.T
	agents *registrations
	clock  time.Time
	log    bytes.Buffer
}

func newTestIssuer(t *testing.T, auth string) *testIssuer {
	t.Helper()
	method, err := identity.ParseMethod(auth)
	if err != nil {
		t.Fatal(err)
	}
	b := &testIssuer{FakeSecrets: &pki.FakeSecrets{}, t: t, agents: &registrations{}, clock: time.Now()}
	cfg := Config{Servers: map[string][]string{pki.PrincipalSecret: {"hub"}, pki.ProxySecret: {"proxy"}}, Names: method.AgentFromCertificate}
	b.Issuer = New(cfg, b.FakeSecrets, b.agents, slog.New(slog.NewTextHandler(&b.log, nil)))
	b.now = func() time.Time { return b.clock }
	b.manager.Now = b.now
	return b
}

func (b *testIssuer) mustReconcile() time.Time {
	b.t.Helper()
	next, err := b.reconcile(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return next
}

func (b *testIssuer) secret(name string) *pki.Secret {
	b.t.Helper()
	s, err := b.Get(b.t.Context(), name)
	if err != nil || s == nil {
		b.t.Fatalf("no Secret %s: %v", name, err)
	}
	return s
}

// joinRequest returns a valid request.
func (b *testIssuer) joinRequest() enroll.JoinRequest {
	b.t.Helper()
	token, err := b.manager.CreateToken(b.t.Context(), "hub:443", pki.JoinGrant{Agent: "w1", Mode: "managed", Labels: map[string]string{"env": "prod"}}, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	request, _, err := pki.NewRequest("w1", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return enroll.JoinRequest{Agent: "w1", TokenID: token.ID, TokenValue: token.Secret, Request: request, Clock: b.clock, Remote: "10.0.0.1"}
}

func TestIssuer_CreatesAndRenewsServerCertificates(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	b.mustReconcile()
	first := b.secret(pki.PrincipalSecret)
	for _, name := range []string{pki.AuthoritySecret, pki.PrincipalSecret, pki.ProxySecret} {
		if !b.secret(name).Managed() {
			t.Errorf("%s is not managed", name)
		}
	}
	if b.mustReconcile(); b.secret(pki.PrincipalSecret).Revision != first.Revision {
		t.Error("renewed before it is due")
	}
	b.clock = b.clock.Add(pki.ServerLifetime * 3 / 4)
	b.mustReconcile()
	if b.secret(pki.PrincipalSecret).Revision == first.Revision {
		t.Error("not renewed")
	}
	if _, err := b.manager.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.mustReconcile()
	a, err := b.manager.Authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pki.PrincipalSecret, pki.ProxySecret} {
		if certs, _ := pki.Certificates(b.secret(name).Data[pki.CertKey]); !a.HasIssued(certs[0]) {
			t.Errorf("%s is not signed by the new CA", name)
		}
	}
	// No agent has a certificate of the old CA, so it is removed.
	if a.Rotating() {
		b.mustReconcile()
	}
	if a, _ = b.manager.Authority(t.Context()); a.Rotating() {
		t.Error("the unused old CA is still trusted")
	}
}

func TestIssuer_KeepsUnmanagedCertificates(t *testing.T) {
	made := newTestIssuer(t, "mtls:CN=([^,]+)")
	made.mustReconcile()
	for title, foreign := range map[string]*pki.Secret{
		"unlabeled":       {Name: pki.PrincipalSecret, Data: made.secret(pki.PrincipalSecret).Data},
		"by cert-manager": {Name: pki.PrincipalSecret, Labels: map[string]string{pki.ManagedLabel: pki.ManagedValue}, Annotations: map[string]string{"cert-manager.io/certificate-name": "x"}, Data: made.secret(pki.PrincipalSecret).Data},
	} {
		b := newTestIssuer(t, "mtls:CN=([^,]+)")
		if err := b.Put(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		b.mustReconcile()
		b.mustReconcile()
		if s, _ := b.Get(t.Context(), pki.AuthoritySecret); s != nil {
			t.Errorf("%s: CA created although a server certificate is not managed", title)
		}
		if b.secret(pki.PrincipalSecret).Revision != "1" {
			t.Errorf("%s: Secret was written", title)
		}
		if n := strings.Count(b.log.String(), "Certificates are not issued on this hub"); n != 1 {
			t.Errorf("%s: logged %d times: %s", title, n, b.log.String())
		}
	}
}

func TestJoin_IssuesCertificateAndRegistersAgent(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	b.mustReconcile()
	r := b.joinRequest()
	b.agents.err = errors.New("API server unavailable")
	if _, err := b.Join(t.Context(), r); err == nil || errors.As(err, new(*enroll.Error)) {
		t.Errorf("error %v", err)
	}
	// The token is redeemed, but the same key may retry.
	b.agents.err = nil
	joined, err := b.Join(t.Context(), r)
	if err != nil || joined.Mode != "managed" || !joined.Clock.Equal(b.clock) {
		t.Fatalf("%+v, %v", joined, err)
	}
	certs, err := pki.Certificates(joined.Chain)
	if err != nil || certs[0].Subject.CommonName != "w1" {
		t.Errorf("%v, %v", certs, err)
	}
	if len(b.agents.certificates) != 1 || b.agents.certificates[0] != identity.Fingerprint(certs[0]) {
		t.Errorf("recorded: %v", b.agents.certificates)
	}
	if grant := b.agents.granted[len(b.agents.granted)-1]; grant.Agent != "w1" || grant.Labels["env"] != "prod" {
		t.Errorf("%+v", grant)
	}
}

func TestJoin_ReportsRefusalReason(t *testing.T) {
	for title, test := range map[string]struct {
		auth   string
		change func(*testIssuer, *enroll.JoinRequest)
		want   string
	}{
		"clock behind":           {change: func(b *testIssuer, r *enroll.JoinRequest) { r.Clock = b.clock.Add(-10 * time.Minute) }, want: "10m0s behind the hub's"},
		"clock ahead":            {change: func(b *testIssuer, r *enroll.JoinRequest) { r.Clock = b.clock.Add(10 * time.Minute) }, want: "10m0s ahead of the hub's"},
		"expired token":          {change: func(b *testIssuer, r *enroll.JoinRequest) { b.clock = b.clock.Add(2 * time.Hour); r.Clock = b.clock }, want: "expired at"},
		"token of another agent": {change: func(_ *testIssuer, r *enroll.JoinRequest) { r.Agent = "w2" }, want: `is for agent "w1", not for "w2"`},
		"guessed token":          {change: func(_ *testIssuer, r *enroll.JoinRequest) { r.TokenValue = "x" }, want: "not known on the hub"},
		"path as name":           {change: func(_ *testIssuer, r *enroll.JoinRequest) { r.Agent = "../../namespaces/x" }, want: "invalid agent name"},
		"CSR of another agent": {change: func(_ *testIssuer, r *enroll.JoinRequest) { r.Request, _, _ = pki.NewRequest("w2", nil) },
			want: `it is for "w2", but this agent is "w1"`},
		"suspended":           {change: func(b *testIssuer, _ *enroll.JoinRequest) { b.agents.denyReason = "it is suspended" }, want: "it is suspended"},
		"another mode":        {change: func(b *testIssuer, _ *enroll.JoinRequest) { b.agents.mode = "autonomous" }, want: "it is autonomous"},
		"agent name from URI": {auth: "mtls:uri:^(.*)$", change: func(*testIssuer, *enroll.JoinRequest) {}, want: "cannot issue a certificate for w1 that it recognizes (--auth)"},
		"agent name with prefix": {auth: "mtls:^CN=agent-([^,]+)$", change: func(*testIssuer, *enroll.JoinRequest) {},
			want: "does not match the certificate's subject"},
	} {
		t.Run(title, func(t *testing.T) {
			if test.auth == "" {
				test.auth = "mtls:CN=([^,]+)"
			}
			b := newTestIssuer(t, test.auth)
			b.mustReconcile()
			r := b.joinRequest()
			good := r
			test.change(b, &r)
			_, err := b.Join(t.Context(), r)
			if refusal := new(enroll.Error); !errors.As(err, &refusal) || !strings.Contains(refusal.Message, test.want) || refusal.Temporary {
				t.Fatalf("error %v instead of one with %q", err, test.want)
			}
			if len(b.agents.granted) > 0 {
				t.Error("the agent was registered")
			}
			if s := b.secret("argocd-agent-join-" + good.TokenID); len(s.Data["used"]) > 0 {
				t.Error("the token was redeemed")
			}
		})
	}
}

// The deletion of an Agent deletes its tokens. A join that was accepted before must not register it again.
func TestJoin_TokenDeletedDuringJoin(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	b.mustReconcile()
	r := b.joinRequest()
	b.agents.beforeRegister = func() {
		if n, err := b.manager.DeleteTokens(t.Context(), "w1"); n != 1 || err != nil {
			t.Errorf("%d tokens deleted, %v", n, err)
		}
	}
	_, err := b.Join(t.Context(), r)
	if refusal := new(enroll.Error); !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "was deleted") || refusal.Temporary {
		t.Errorf("error %v", err)
	}
	if len(b.agents.granted) > 0 || len(b.agents.certificates) > 0 {
		t.Error("the agent is registered or has a certificate")
	}
}

func TestRenew_OnlyForSameAndAllowedAgent(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	b.mustReconcile()
	request, _, err := pki.NewRequest("w1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if issued, err := b.Renew(t.Context(), enroll.RenewRequest{Agent: "w1", Fingerprint: "AB", Request: request, KeyStored: true, Clock: b.clock}); err != nil || len(issued.Chain) == 0 {
		t.Fatal(err)
	}
	if _, err := b.Renew(t.Context(), enroll.RenewRequest{Agent: "w2", Fingerprint: "", Request: request, KeyStored: true, Clock: b.clock}); err == nil || !strings.Contains(err.Error(), `it is for "w1", but this agent is "w2"`) {
		t.Errorf("error %v", err)
	}
	// Renewal works with a wrong clock.
	if _, err := b.Renew(t.Context(), enroll.RenewRequest{Agent: "w1", Fingerprint: "AB", Request: request, KeyStored: true, Clock: b.clock.Add(-time.Hour)}); err != nil || !strings.Contains(b.log.String(), "Clocks of agent and hub differ") {
		t.Errorf("error %v", err)
	}
	b.agents.denyReason = "it is suspended"
	if _, err := b.Renew(t.Context(), enroll.RenewRequest{Agent: "w1", Fingerprint: "AB", Request: request, KeyStored: true, Clock: b.clock}); err == nil || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("error %v", err)
	}
}

// Whether a CA of the hub signed the certificate of a connection decides whether a promoted hub can know it.
func TestRenew_CertificateOfConnection(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	b.mustReconcile()
	certificate := func(manager *pki.Manager, agent string) *x509.Certificate {
		t.Helper()
		issued, err := manager.Client(t.Context(), agent)
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.Certificates(issued.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return certs[0]
	}
	other := &pki.Manager{Secrets: &pki.FakeSecrets{}}
	if _, _, err := other.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	own := certificate(b.manager, "w1")
	for name, test := range map[string]struct {
		certificate *x509.Certificate
		fingerprint string // if empty, that of the certificate
		known       bool
	}{
		"own":                     {own, "", true},
		"of another agent":        {certificate(b.manager, "w2"), "", false},
		"of another CA":           {certificate(other, "w1"), "", false},
		"of another connection":   {own, "AB", false},
		"without one (by a mesh)": {nil, "AB", false},
	} {
		request, _, err := pki.NewRequest("w1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := enroll.RenewRequest{Agent: "w1", Fingerprint: test.fingerprint, Certificate: test.certificate, Request: request, KeyStored: true, Clock: b.clock}
		if r.Fingerprint == "" {
			r.Fingerprint = identity.Fingerprint(test.certificate)
		}
		if _, err := b.Renew(t.Context(), r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := b.agents.with; got.Fingerprint != r.Fingerprint || got.Issued.IsZero() == test.known || test.known && (!got.Issued.Equal(pki.IssuedAt(own)) || got.Key == "" || !got.Expires.Equal(own.NotAfter)) {
			t.Errorf("%s: renewed with %+v", name, got)
		}
	}
}

func TestTrust_ChangesWithAuthority(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	b.mustReconcile()
	handlers := b.SecretHandlers(map[string]func(map[string][]byte) error{pki.AuthoritySecret: func(data map[string][]byte) error {
		if data == nil {
			return errors.New("there is none")
		}
		return nil
	}})
	load := func() (enroll.Trust, <-chan struct{}) {
		t.Helper()
		if err := handlers[pki.AuthoritySecret](b.secret(pki.AuthoritySecret).Data); err != nil {
			t.Fatal(err)
		}
		return b.Trust()
	}
	before, changed := load()
	if _, again := load(); again != changed {
		t.Error("changed is signaled without a change")
	}
	if _, err := b.manager.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, _ := load()
	select {
	case <-changed:
	default:
		t.Error("the change is not signaled")
	}
	cas, err := pki.Certificates(after.Bundle)
	if err != nil || len(cas) != 2 || bytes.Equal(before.Issuer, after.Issuer) {
		t.Errorf("%d CAs, %v", len(cas), err)
	}
	if err := handlers[pki.AuthoritySecret](nil); err != nil {
		t.Errorf("missing CA Secret: %v", err)
	}
	if same, _ := b.Trust(); !bytes.Equal(same.Bundle, after.Bundle) {
		t.Error("the trusted CA was removed with the Secret")
	}
}

func TestClusterConfig_RenewsCertificate(t *testing.T) {
	b := newTestIssuer(t, "mtls:CN=([^,]+)")
	config := b.ClusterConfig
	if got, err := config("w1", []byte("{}")); got != nil || err != nil {
		t.Errorf("%s, %v without a CA", got, err)
	}
	b.mustReconcile()
	first, err := config("w1", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := config("w1", first); err != nil || !bytes.Equal(again, first) {
		t.Errorf("changed before it is due: %v", err)
	}
	var has clusterConfig
	if err := json.Unmarshal(first, &has); err != nil {
		t.Fatal(err)
	}
	certs, err := pki.Certificates(has.TLS.Cert)
	if err != nil || certs[0].Subject.CommonName != "w1" || certs[0].ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("%v, %v", certs, err)
	}
	b.clock = b.clock.Add(pki.ClientLifetime * 3 / 4)
	if next, err := config("w1", first); err != nil || bytes.Equal(next, first) {
		t.Errorf("not renewed: %v", err)
	}
}
