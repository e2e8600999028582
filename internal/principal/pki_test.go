package principal

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
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// guestbook is registrations that a test can read and change.
type guestbook struct {
	guests       []pki.JoinGrant
	certificates []string
	why          string // all are barred
	mode         string // of all, if any
	meanwhile    func() // before somebody is invited
	err          error
}

func (g *guestbook) register(_ context.Context, who pki.JoinGrant, still func() error) error {
	if g.meanwhile != nil {
		g.meanwhile()
	}
	if err := still(); err != nil {
		return err
	}
	g.guests = append(g.guests, who)
	return g.err
}

func (g *guestbook) recordIssued(_ context.Context, _, fingerprint string, _ time.Time) error {
	g.certificates = append(g.certificates, fingerprint)
	return nil
}

func (g *guestbook) denyReason(_ context.Context, _, mode string) (string, error) {
	if g.mode != "" && mode != "" && g.mode != mode {
		return "it is " + g.mode, nil
	}
	return g.why, nil
}

// bureau is an issuer over Secrets in memory, with a clock that somebody moves.
type bureau struct {
	*issuer
	*pki.FakeSecrets
	t      *testing.T
	guests *guestbook
	clock  time.Time
	log    bytes.Buffer
}

func newBureau(t *testing.T, auth string) *bureau {
	t.Helper()
	method, err := identity.ParseMethod(auth)
	if err != nil {
		t.Fatal(err)
	}
	b := &bureau{FakeSecrets: &pki.FakeSecrets{}, t: t, guests: &guestbook{}, clock: time.Now()}
	cfg := Issue{Servers: map[string][]string{pki.PrincipalSecret: {"hub"}, pki.ProxySecret: {"proxy"}}, Names: method.AgentFromCertificate}
	b.issuer = newIssuer(cfg, b.FakeSecrets, b.guests, slog.New(slog.NewTextHandler(&b.log, nil)))
	b.now = func() time.Time { return b.clock }
	b.manager.Now = b.now
	return b
}

func (b *bureau) tended() time.Time {
	b.t.Helper()
	next, err := b.reconcile(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return next
}

func (b *bureau) secret(name string) *pki.Secret {
	b.t.Helper()
	s, err := b.Get(b.t.Context(), name)
	if err != nil || s == nil {
		b.t.Fatalf("there is no Secret %s: %v", name, err)
	}
	return s
}

// guest is a cluster that wants to join, with everything right.
func (b *bureau) guest() transport.JoinRequest {
	b.t.Helper()
	token, err := b.manager.CreateToken(b.t.Context(), "hub:443", pki.JoinGrant{Agent: "w1", Mode: "managed", Labels: map[string]string{"env": "prod"}}, time.Hour)
	if err != nil {
		b.t.Fatal(err)
	}
	request, _, err := pki.NewRequest("w1", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return transport.JoinRequest{Agent: "w1", TokenID: token.ID, TokenValue: token.Secret, Request: request, Clock: b.clock, Remote: "10.0.0.1"}
}

func TestPrincipalMakesAndRenewsItsOwnCertificates(t *testing.T) {
	b := newBureau(t, "mtls:CN=([^,]+)")
	b.tended()
	first := b.secret(pki.PrincipalSecret)
	for _, name := range []string{pki.AuthoritySecret, pki.PrincipalSecret, pki.ProxySecret} {
		if !b.secret(name).Managed() {
			t.Errorf("%s is not marked as ours", name)
		}
	}
	if b.tended(); b.secret(pki.PrincipalSecret).Revision != first.Revision {
		t.Error("it is written though nothing is due")
	}
	b.clock = b.clock.Add(pki.ServerLife * 3 / 4)
	b.tended()
	if b.secret(pki.PrincipalSecret).Revision == first.Revision {
		t.Error("it is not renewed")
	}
	if _, err := b.manager.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.tended()
	a, err := b.manager.Authority(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pki.PrincipalSecret, pki.ProxySecret} {
		if certs, _ := pki.Certificates(b.secret(name).Data[pki.CertKey]); !a.Issued(certs[0]) {
			t.Errorf("%s is not of the new CA", name)
		}
	}
	// Nothing of the old CA was given to agents: it can go at once, and does.
	if a.Replaces() {
		b.tended()
	}
	if a, _ = b.manager.Authority(t.Context()); a.Replaces() {
		t.Error("the old CA is believed though nobody needs it")
	}
}

func TestCertificatesOfOthersAreLeftAlone(t *testing.T) {
	made := newBureau(t, "mtls:CN=([^,]+)")
	made.tended()
	for title, foreign := range map[string]*pki.Secret{
		"by hand":         {Name: pki.PrincipalSecret, Data: made.secret(pki.PrincipalSecret).Data},
		"by cert-manager": {Name: pki.PrincipalSecret, Labels: map[string]string{pki.ManagedLabel: pki.KeptValue}, Annotations: map[string]string{"cert-manager.io/certificate-name": "x"}, Data: made.secret(pki.PrincipalSecret).Data},
	} {
		b := newBureau(t, "mtls:CN=([^,]+)")
		if _, err := b.Put(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		b.tended()
		b.tended()
		if s, _ := b.Get(t.Context(), pki.AuthoritySecret); s != nil {
			t.Errorf("%s: a CA was made beside a certificate of another's", title)
		}
		if b.secret(pki.PrincipalSecret).Revision != "1" {
			t.Errorf("%s: it was written", title)
		}
		if n := strings.Count(b.log.String(), "certificates are not issued here"); n != 1 {
			t.Errorf("%s: said %d times: %s", title, n, b.log.String())
		}
	}
}

func TestClusterGetsACertificateAndIsRegistered(t *testing.T) {
	b := newBureau(t, "mtls:CN=([^,]+)")
	b.tended()
	r := b.guest()
	b.guests.err = errors.New("the API server is away")
	if _, err := b.Join(t.Context(), r); err == nil || errors.As(err, new(*transport.EnrollError)) {
		t.Errorf("error %v", err)
	}
	// The token is used up, but the same cluster may come again.
	b.guests.err = nil
	joined, err := b.Join(t.Context(), r)
	if err != nil || joined.Mode != "managed" || !joined.Clock.Equal(b.clock) {
		t.Fatalf("%+v, %v", joined, err)
	}
	certs, err := pki.Certificates(joined.Chain)
	if err != nil || certs[0].Subject.CommonName != "w1" {
		t.Errorf("%v, %v", certs, err)
	}
	if len(b.guests.certificates) != 1 || b.guests.certificates[0] != identity.Fingerprint(certs[0]) {
		t.Errorf("noted: %v", b.guests.certificates)
	}
	if who := b.guests.guests[len(b.guests.guests)-1]; who.Agent != "w1" || who.Labels["env"] != "prod" {
		t.Errorf("%+v", who)
	}
}

func TestWhoMayNotJoinLearnsWhy(t *testing.T) {
	for title, test := range map[string]struct {
		auth   string
		change func(*bureau, *transport.JoinRequest)
		want   string
	}{
		"clock behind":    {change: func(b *bureau, r *transport.JoinRequest) { r.Clock = b.clock.Add(-10 * time.Minute) }, want: "10m0s behind the hub's"},
		"clock ahead":     {change: func(b *bureau, r *transport.JoinRequest) { r.Clock = b.clock.Add(10 * time.Minute) }, want: "10m0s ahead of the hub's"},
		"expired":         {change: func(b *bureau, r *transport.JoinRequest) { b.clock = b.clock.Add(2 * time.Hour); r.Clock = b.clock }, want: "expired at"},
		"foreign":         {change: func(_ *bureau, r *transport.JoinRequest) { r.Agent = "w2" }, want: `is for the agent "w1", not for "w2"`},
		"guessed":         {change: func(_ *bureau, r *transport.JoinRequest) { r.TokenValue = "x" }, want: "not known on the hub"},
		"a path for name": {change: func(_ *bureau, r *transport.JoinRequest) { r.Agent = "../../namespaces/x" }, want: "no agent's name"},
		"another's CSR": {change: func(_ *bureau, r *transport.JoinRequest) { r.Request, _, _ = pki.NewRequest("w2", nil) },
			want: `it is for "w2", but this agent is "w1"`},
		"suspended":      {change: func(b *bureau, _ *transport.JoinRequest) { b.guests.why = "it is suspended" }, want: "it is suspended"},
		"another mode":   {change: func(b *bureau, _ *transport.JoinRequest) { b.guests.mode = "autonomous" }, want: "it is autonomous"},
		"named by a URI": {auth: "mtls:uri:(.*)", change: func(*bureau, *transport.JoinRequest) {}, want: "cannot issue a certificate for w1 that it recognises (--auth)"},
		"named otherwise": {auth: "mtls:CN=agent-([^,]+)", change: func(*bureau, *transport.JoinRequest) {},
			want: "does not match the certificate's subject"},
	} {
		t.Run(title, func(t *testing.T) {
			if test.auth == "" {
				test.auth = "mtls:CN=([^,]+)"
			}
			b := newBureau(t, test.auth)
			b.tended()
			r := b.guest()
			good := r
			test.change(b, &r)
			_, err := b.Join(t.Context(), r)
			if told := new(transport.EnrollError); !errors.As(err, &told) || !strings.Contains(told.Message, test.want) || told.Temporary {
				t.Fatalf("error %v instead of one with %q", err, test.want)
			}
			if len(b.guests.guests) > 0 {
				t.Error("it was registered")
			}
			if s := b.secret("argocd-agent-join-" + good.TokenID); len(s.Data["used"]) > 0 {
				t.Error("the token is used up")
			}
		})
	}
}

// Its end withdraws an agent's tokens: who was let in with one before that is not
// registered after it.
func TestWhoseTokenWasWithdrawnMeanwhileDoesNotJoin(t *testing.T) {
	b := newBureau(t, "mtls:CN=([^,]+)")
	b.tended()
	r := b.guest()
	b.guests.meanwhile = func() {
		if n, err := b.manager.DeleteTokens(t.Context(), "w1"); n != 1 || err != nil {
			t.Errorf("%d were withdrawn, %v", n, err)
		}
	}
	_, err := b.Join(t.Context(), r)
	if told := new(transport.EnrollError); !errors.As(err, &told) || !strings.Contains(told.Message, "was withdrawn") || told.Temporary {
		t.Errorf("error %v", err)
	}
	if len(b.guests.guests) > 0 || len(b.guests.certificates) > 0 {
		t.Error("it is registered, or has a certificate")
	}
}

func TestRenewalIsForOneselfAndNotForTheSuspended(t *testing.T) {
	b := newBureau(t, "mtls:CN=([^,]+)")
	b.tended()
	request, _, err := pki.NewRequest("w1", nil)
	if err != nil {
		t.Fatal(err)
	}
	me := transport.Peer{Agent: "w1", Fingerprint: "AB"}
	if issued, err := b.Renew(t.Context(), me, request, b.clock); err != nil || len(issued.Chain) == 0 {
		t.Fatal(err)
	}
	if _, err := b.Renew(t.Context(), transport.Peer{Agent: "w2"}, request, b.clock); err == nil || !strings.Contains(err.Error(), `it is for "w1", but this agent is "w2"`) {
		t.Errorf("error %v", err)
	}
	// A clock that is wrong is no reason to let the certificate of an agent expire.
	if _, err := b.Renew(t.Context(), me, request, b.clock.Add(-time.Hour)); err != nil || !strings.Contains(b.log.String(), "the clock of an agent is wrong") {
		t.Errorf("error %v", err)
	}
	b.guests.why = "it is suspended"
	if _, err := b.Renew(t.Context(), me, request, b.clock); err == nil || !strings.Contains(err.Error(), "suspended") {
		t.Errorf("error %v", err)
	}
}

func TestAgentsLearnOfANewAuthorityAtOnce(t *testing.T) {
	b := newBureau(t, "mtls:CN=([^,]+)")
	replaced := 0
	b.authorityChanged = func() { replaced++ }
	b.tended()
	feeds := b.secretHandlers(map[string]func(map[string][]byte) error{pki.AuthoritySecret: func(data map[string][]byte) error {
		if data == nil {
			return errors.New("there is none")
		}
		return nil
	}})
	learn := func() (transport.Trust, <-chan struct{}) {
		t.Helper()
		if err := feeds[pki.AuthoritySecret](b.secret(pki.AuthoritySecret).Data); err != nil {
			t.Fatal(err)
		}
		return b.Trust()
	}
	before, changed := learn()
	if _, again := learn(); again != changed || replaced != 1 {
		t.Error("nothing has changed, but agents are told")
	}
	if _, err := b.manager.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, _ := learn()
	select {
	case <-changed:
	default:
		t.Error("nobody is told")
	}
	cas, err := pki.Certificates(after.Bundle)
	if err != nil || len(cas) != 2 || bytes.Equal(before.Issuer, after.Issuer) || replaced != 2 {
		t.Errorf("%d CAs, %v", len(cas), err)
	}
	if err := feeds[pki.AuthoritySecret](nil); err != nil {
		t.Errorf("that it is about to be made is no failure: %v", err)
	}
	if same, _ := b.Trust(); !bytes.Equal(same.Bundle, after.Bundle) {
		t.Error("what is believed went with the Secret")
	}
}

func TestArgoCDsCertificateForAnAgentIsRenewed(t *testing.T) {
	b := newBureau(t, "mtls:CN=([^,]+)")
	config := b.clusterConfig()
	if got, err := config("w1", []byte("{}")); got != nil || err != nil {
		t.Errorf("%s, %v: there is no CA", got, err)
	}
	b.tended()
	first, err := config("w1", []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := config("w1", first); err != nil || !bytes.Equal(again, first) {
		t.Errorf("it changes for nothing: %v", err)
	}
	var has clusterAccess
	if err := json.Unmarshal(first, &has); err != nil {
		t.Fatal(err)
	}
	certs, err := pki.Certificates(has.TLS.Cert)
	if err != nil || certs[0].Subject.CommonName != "w1" || certs[0].ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("%v, %v", certs, err)
	}
	b.clock = b.clock.Add(pki.ClientLife * 3 / 4)
	if next, err := config("w1", first); err != nil || bytes.Equal(next, first) {
		t.Errorf("it is not renewed: %v", err)
	}
}
