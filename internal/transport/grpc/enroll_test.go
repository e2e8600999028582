package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// maxEnrolling is the number of requests that the hub processes at the same time.
const maxEnrolling = 16

// registrar is an Enroller that a test can read and change.
type registrar struct {
	mu      sync.Mutex
	trust   enroll.Trust
	changed chan struct{}
	join    func(context.Context, enroll.JoinRequest) (enroll.Joined, error)
	renew   func(enroll.RenewRequest) (enroll.Certificate, error)
}

func newRegistrar() *registrar {
	return &registrar{trust: enroll.Trust{Bundle: []byte("first")}, changed: make(chan struct{})}
}

func (r *registrar) Join(ctx context.Context, request enroll.JoinRequest) (enroll.Joined, error) {
	return r.join(ctx, request)
}

func (r *registrar) Renew(_ context.Context, request enroll.RenewRequest) (enroll.Certificate, error) {
	return r.renew(request)
}

func (r *registrar) Trust() (enroll.Trust, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trust, r.changed
}

func (r *registrar) set(bundle string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trust = enroll.Trust{Bundle: []byte(bundle), Issuer: []byte("issuer")}
	close(r.changed)
	r.changed = make(chan struct{})
}

// joinable is the server configuration of a real CA that accepts clients without a certificate to join.
func joinable(t testing.TB, a *pki.Authority) *tls.Config {
	t.Helper()
	pair, err := a.Server([]string{"127.0.0.1"}, time.Hour, time.Now())
	must(t, err)
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	must(t, err)
	c := &ca{t: t, cert: a.Cert}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: c.pool(), NextProtos: []string{"h2"}}
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now := cfg.Clone()
		now.GetConfigForClient = nil
		for _, p := range hello.SupportedProtos {
			if p == pki.JoinProtocol {
				now.ClientAuth = tls.NoClientCert
			}
		}
		return now, nil
	}
	return cfg
}

func joinConfig(h *hub, pin pki.Pin) spokeConfig {
	return spokeConfig{Address: h.address, Log: h.log.logger(), TLS: func() (*tls.Config, error) { return pin.ClientTLS("127.0.0.1", time.Now), nil }}
}

func TestJoin_ExchangesTheToken(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	var got enroll.JoinRequest
	reg.join = func(_ context.Context, r enroll.JoinRequest) (enroll.Joined, error) {
		got = r
		return enroll.Joined{Certificate: enroll.Certificate{Chain: []byte("chain"), Bundle: []byte("bundle"), Clock: time.UnixMilli(42)}, Mode: "managed"}, nil
	}
	h := startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg})
	joined, err := join(t.Context(), joinConfig(h, a.Pin()).client(), enroll.JoinRequest{Agent: "w1", TokenID: "id", TokenValue: "secret", Request: []byte("request"), Clock: time.UnixMilli(7)})
	must(t, err)
	if string(joined.Chain) != "chain" || string(joined.Bundle) != "bundle" || joined.Mode != "managed" || joined.Clock.UnixMilli() != 42 {
		t.Errorf("%+v", joined)
	}
	if got.Agent != "w1" || got.TokenID != "id" || got.TokenValue != "secret" || string(got.Request) != "request" || got.Clock.UnixMilli() != 7 || got.Remote != "127.0.0.1" {
		t.Errorf("%+v", got)
	}
}

func TestJoin_ReturnsTheReasonOfARefusal(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	stranger, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	var answer error
	reg.join = func(context.Context, enroll.JoinRequest) (enroll.Joined, error) { return enroll.Joined{}, answer }
	h := startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg})
	joinWith := func(pin pki.Pin) error {
		_, err := join(t.Context(), joinConfig(h, pin).client(), enroll.JoinRequest{Agent: "w1"})
		return err
	}
	answer = &enroll.Error{Message: "this token was used"}
	if refused := new(enroll.Error); !errors.As(joinWith(a.Pin()), &refused) || refused.Temporary || refused.Message != "this token was used" {
		t.Errorf("error %v", joinWith(a.Pin()))
	}
	answer = errors.New("the API server is on fire")
	if refused := new(enroll.Error); !errors.As(joinWith(a.Pin()), &refused) || !refused.Temporary || strings.Contains(refused.Message, "fire") {
		t.Errorf("error %v", refused)
	}
	if err := joinWith(stranger.Pin()); err == nil || !strings.Contains(err.Error(), "load balancer terminates TLS") || !strings.Contains(err.Error(), `subject "CN=127.0.0.1"`) {
		t.Errorf("error %v", err)
	}
	h.stop()
	silent := startHub(t, hubConfig{TLS: joinable(t, a)})
	if _, err := join(t.Context(), joinConfig(silent, a.Pin()).client(), enroll.JoinRequest{Agent: "w1"}); err == nil || !strings.Contains(err.Error(), "does not issue certificates") {
		t.Errorf("error %v", err)
	}
}

func TestServer_AllowsOnlyJoinWithoutCertificate(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	h := startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg})
	client, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentials.NewTLS(a.Pin().ClientTLS("127.0.0.1", time.Now))))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	calls := map[string]func() error{
		"Sync": func() error {
			s, err := api.NewSyncClient(client).Sync(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"tunnel.Tunnel": func() error {
			s, err := api.NewTunnelClient(client).Open(ctx)
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"Renew": func() error {
			s, err := api.NewEnrollClient(client).Renew(ctx, &api.RenewRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"enroll.Trust": func() error {
			s, err := api.NewEnrollClient(client).Trust(ctx, &api.TrustRequest{})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
	}
	for name, call := range calls {
		if err := call(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPolicy_ListsEveryMethodOfEnroll(t *testing.T) {
	for _, stream := range api.Enroll_ServiceDesc.Streams {
		if methods["/"+api.Enroll_ServiceDesc.ServiceName+"/"+stream.StreamName] == 0 {
			t.Errorf("%s is not", stream.StreamName)
		}
	}
	if len(api.Enroll_ServiceDesc.Methods) > 0 {
		t.Error("the request of a method that does not stream is read before the caller is authorized")
	}
}

func TestServer_LimitsConcurrentJoins(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	hold, entered := make(chan struct{}), make(chan struct{}, 100)
	reg.join = func(ctx context.Context, _ enroll.JoinRequest) (enroll.Joined, error) {
		entered <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return enroll.Joined{}, nil
	}
	h := startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg})
	var wg sync.WaitGroup
	for range maxEnrolling {
		wg.Go(func() { _, _ = join(t.Context(), joinConfig(h, a.Pin()).client(), enroll.JoinRequest{Agent: "w1"}) })
	}
	for range maxEnrolling {
		<-entered
	}
	_, err = join(t.Context(), joinConfig(h, a.Pin()).client(), enroll.JoinRequest{Agent: "w1"})
	if refused := new(enroll.Error); !errors.As(err, &refused) || !refused.Temporary || refused.RetryAfter == 0 {
		t.Errorf("error %v", err)
	}
	close(hold)
	wg.Wait()
}

func TestServer_EndsJoinsWithoutARequest(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	reg.join = func(context.Context, enroll.JoinRequest) (enroll.Joined, error) { return enroll.Joined{}, nil }
	h := startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg})
	client, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentials.NewTLS(a.Pin().ClientTLS("127.0.0.1", time.Now))))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	silent := make([]grpc.ClientStream, maxEnrolling)
	for i := range silent { // a call without a request
		silent[i], err = client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, api.Enroll_Join_FullMethodName)
		must(t, err)
	}
	for _, stream := range silent {
		err := stream.RecvMsg(&api.JoinResponse{})
		if code := status.Code(err); code != codes.DeadlineExceeded || ctx.Err() != nil {
			t.Errorf("a silent client was not disconnected: %v", err)
		}
	}
	if _, err := join(t.Context(), joinConfig(h, a.Pin()).client(), enroll.JoinRequest{Agent: "w1"}); err != nil {
		t.Errorf("a cluster cannot join: %v", err)
	}
}

func TestDialer_RenewsTheCertificateDuringTheSession(t *testing.T) {
	leakCheck(t)
	authority := newCA(t, "ca")
	reg := newRegistrar()
	var got enroll.RenewRequest
	reg.renew = func(r enroll.RenewRequest) (enroll.Certificate, error) {
		if string(r.Request) == "bad" {
			return enroll.Certificate{}, &enroll.Error{Message: "suspended"}
		}
		got = r
		return enroll.Certificate{Chain: fmt.Appendf(nil, "%s for %s", r.Request, r.Agent), Bundle: []byte("bundle"), Clock: time.UnixMilli(9)}, nil
	}
	h := startHub(t, hubConfig{TLS: authority.serverTLS(), Enroll: reg})
	bundles, problems := make(chan string, 10), make(chan error, 10)
	dial(t, spokeConfig{Address: h.address, TLS: authority.clientTLS("agent-a"), RenewCertificate: func(ctx context.Context, o enroll.Client) error {
		issued, err := o.Renew(ctx, []byte("request"), time.UnixMilli(5))
		if err != nil || string(issued.Chain) != "request for agent-a" || issued.Clock.UnixMilli() != 9 {
			t.Errorf("%+v, %v", issued, err)
		}
		if got.Fingerprint == "" || got.Fingerprint != o.Fingerprint() || !got.KeyStored || got.Certificate == nil || pki.Describe(got.Certificate).Fingerprint != got.Fingerprint {
			t.Errorf("%+v, the session has %q", got, o.Fingerprint())
		}
		_, err = o.Renew(ctx, []byte("bad"), time.UnixMilli(5))
		problems <- err
		return o.WatchTrust(ctx, func(now enroll.Trust) { bundles <- string(now.Bundle) + string(now.Issuer) })
	}})
	if refused := new(enroll.Error); !errors.As(<-problems, &refused) || refused.Message != "suspended" {
		t.Errorf("error %v", refused)
	}
	if got := <-bundles; got != "first" {
		t.Errorf("trusts %s", got)
	}
	reg.set("second")
	if got := <-bundles; got != "secondissuer" {
		t.Errorf("trusts %s", got)
	}
}

// The hub renews only the newest certificate, so an agent with a newer one than its session opens another.
func TestDialer_ReconnectsWithTheRenewedCertificate(t *testing.T) {
	leakCheck(t)
	authority := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: authority.serverTLS(), Enroll: newRegistrar()})
	certs := make(chan string, 2)
	var once sync.Once
	dial(t, spokeConfig{Address: h.address, TLS: func() (*tls.Config, error) { return authority.clientTLS("agent-a")() }, RenewCertificate: func(ctx context.Context, o enroll.Client) (err error) {
		certs <- o.Fingerprint()
		once.Do(func() { err = enroll.ErrReconnect })
		return err
	}})
	if first, second := <-certs, <-certs; first == "" || second == "" || first == second {
		t.Errorf("sessions with %q and %q", first, second)
	}
}
