package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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
)

// registrar is an Enroller that a test can read and change.
type registrar struct {
	mu      sync.Mutex
	trust   Trust
	changed chan struct{}
	join    func(context.Context, JoinRequest) (Joined, error)
	renew   func(Peer, []byte) (Certificate, error)
}

func newRegistrar() *registrar {
	return &registrar{trust: Trust{Bundle: []byte("first")}, changed: make(chan struct{})}
}

func (r *registrar) Join(ctx context.Context, request JoinRequest) (Joined, error) {
	return r.join(ctx, request)
}

func (r *registrar) Renew(_ context.Context, p Peer, request []byte, _ time.Time) (Certificate, error) {
	return r.renew(p, request)
}

func (r *registrar) Trust() (Trust, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trust, r.changed
}

func (r *registrar) set(bundle string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trust = Trust{Bundle: []byte(bundle), Issuer: []byte("issuer")}
	close(r.changed)
	r.changed = make(chan struct{})
}

// joinable is a port of a real authority that lets in who wants to join.
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

func joinConfig(h *hub, pin pki.Pin) DialerConfig {
	return DialerConfig{Address: h.address, Log: h.log.logger(), TLS: func() (*tls.Config, error) { return pin.ClientTLS("127.0.0.1", time.Now), nil }}
}

func TestClusterJoinsByItsToken(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	var got JoinRequest
	reg.join = func(_ context.Context, r JoinRequest) (Joined, error) {
		got = r
		return Joined{Certificate: Certificate{Chain: []byte("chain"), Bundle: []byte("bundle"), Clock: time.UnixMilli(42)}, Mode: "managed"}, nil
	}
	h := startHub(t, ServerConfig{TLS: joinable(t, a), Enroll: reg})
	joined, err := Join(t.Context(), joinConfig(h, a.Pin()), JoinRequest{Agent: "w1", TokenID: "id", TokenValue: "secret", Request: []byte("request"), Clock: time.UnixMilli(7)})
	must(t, err)
	if string(joined.Chain) != "chain" || string(joined.Bundle) != "bundle" || joined.Mode != "managed" || joined.Clock.UnixMilli() != 42 {
		t.Errorf("%+v", joined)
	}
	if got.Agent != "w1" || got.TokenID != "id" || got.TokenValue != "secret" || string(got.Request) != "request" || got.Clock.UnixMilli() != 7 || got.Remote != "127.0.0.1" {
		t.Errorf("%+v", got)
	}
}

func TestWhoCanNotJoinLearnsWhy(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	stranger, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	var answer error
	reg.join = func(context.Context, JoinRequest) (Joined, error) { return Joined{}, answer }
	h := startHub(t, ServerConfig{TLS: joinable(t, a), Enroll: reg})
	join := func(pin pki.Pin) error {
		_, err := Join(t.Context(), joinConfig(h, pin), JoinRequest{Agent: "w1"})
		return err
	}
	answer = &EnrollError{Message: "this token was used"}
	if told := new(EnrollError); !errors.As(join(a.Pin()), &told) || told.Temporary || told.Message != "this token was used" {
		t.Errorf("error %v", join(a.Pin()))
	}
	answer = errors.New("the API server is on fire")
	if told := new(EnrollError); !errors.As(join(a.Pin()), &told) || !told.Temporary || strings.Contains(told.Message, "fire") {
		t.Errorf("error %v", told)
	}
	if err := join(stranger.Pin()); err == nil || !strings.Contains(err.Error(), "load balancer terminates TLS") || !strings.Contains(err.Error(), `subject "CN=127.0.0.1"`) {
		t.Errorf("error %v", err)
	}
	h.stop()
	silent := startHub(t, ServerConfig{TLS: joinable(t, a)})
	if _, err := Join(t.Context(), joinConfig(silent, a.Pin()), JoinRequest{Agent: "w1"}); err == nil || !strings.Contains(err.Error(), "does not issue certificates") {
		t.Errorf("error %v", err)
	}
}

func TestConnectionWithoutCertificateMayDoNothingElse(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	h := startHub(t, ServerConfig{TLS: joinable(t, a), Enroll: reg})
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
		"Tunnel": func() error {
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
		"Trust": func() error {
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

func TestEveryMethodOfEnrollIsInThePolicyTable(t *testing.T) {
	for _, stream := range api.Enroll_ServiceDesc.Streams {
		if methods["/"+api.Enroll_ServiceDesc.ServiceName+"/"+stream.StreamName] == 0 {
			t.Errorf("%s is not", stream.StreamName)
		}
	}
	if len(api.Enroll_ServiceDesc.Methods) > 0 {
		t.Error("a request of a method that does not stream is read before it is known who asks")
	}
}

func TestTooManyWhoWantCertificatesAreSentAway(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	hold, entered := make(chan struct{}), make(chan struct{}, 100)
	reg.join = func(ctx context.Context, _ JoinRequest) (Joined, error) {
		entered <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return Joined{}, nil
	}
	h := startHub(t, ServerConfig{TLS: joinable(t, a), Enroll: reg})
	var wg sync.WaitGroup
	for range enrolling {
		wg.Go(func() { _, _ = Join(t.Context(), joinConfig(h, a.Pin()), JoinRequest{Agent: "w1"}) })
	}
	for range enrolling {
		<-entered
	}
	_, err = Join(t.Context(), joinConfig(h, a.Pin()), JoinRequest{Agent: "w1"})
	if told := new(EnrollError); !errors.As(err, &told) || !told.Temporary || told.RetryAfter == 0 {
		t.Errorf("error %v", err)
	}
	close(hold)
	wg.Wait()
}

func TestWhoSaysNothingKeepsNobodyFromCertificates(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	reg.join = func(context.Context, JoinRequest) (Joined, error) { return Joined{}, nil }
	h := startHub(t, ServerConfig{TLS: joinable(t, a), Enroll: reg})
	client, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(credentials.NewTLS(a.Pin().ClientTLS("127.0.0.1", time.Now))))
	must(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	silent := make([]grpc.ClientStream, enrolling)
	for i := range silent { // it asks, and does not say for what
		silent[i], err = client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, api.Enroll_Join_FullMethodName)
		must(t, err)
	}
	for _, stream := range silent {
		err := stream.RecvMsg(&api.JoinResponse{})
		if code := status.Code(err); code != codes.DeadlineExceeded || ctx.Err() != nil {
			t.Errorf("who says nothing is waited for: %v", err)
		}
	}
	if _, err := Join(t.Context(), joinConfig(h, a.Pin()), JoinRequest{Agent: "w1"}); err != nil {
		t.Errorf("there is no place for who wants to join: %v", err)
	}
}

func TestStrangersTakeNoPlaceFromAgents(t *testing.T) {
	s := NewServer(ServerConfig{Log: slog.New(slog.DiscardHandler)})
	for i := range enrolling {
		if _, err := s.gate(api.Enroll_Join_FullMethodName, strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.gate(api.Enroll_Join_FullMethodName, "one more"); err == nil {
		t.Error("there is no end to it")
	}
	leave, err := s.gate(api.Enroll_Renew_FullMethodName, "w1")
	if err != nil {
		t.Fatalf("an agent cannot renew: %v", err)
	}
	leave()
}

func TestPaceComesBack(t *testing.T) {
	now := time.Unix(0, 0)
	p := newPace(func() time.Time { return now })
	n := 0
	for p.take("a") == 0 {
		n++
	}
	if n != paceBurst {
		t.Errorf("%d at once", n)
	}
	if wait := p.take("a"); wait <= 0 || wait > paceEvery {
		t.Errorf("wait %s", wait)
	}
	now = now.Add(paceEvery)
	if p.take("a") != 0 || p.take("a") == 0 {
		t.Error("not one more after a while")
	}
}

func TestAgentKeepsUpItsCertificateOnItsSession(t *testing.T) {
	leakCheck(t)
	authority := newCA(t, "ca")
	reg := newRegistrar()
	reg.renew = func(p Peer, request []byte) (Certificate, error) {
		if string(request) == "bad" {
			return Certificate{}, &EnrollError{Message: "suspended"}
		}
		return Certificate{Chain: fmt.Appendf(nil, "%s for %s", request, p.Agent), Bundle: []byte("bundle"), Clock: time.UnixMilli(9)}, nil
	}
	h := startHub(t, ServerConfig{TLS: authority.serverTLS(), Enroll: reg})
	bundles, problems := make(chan string, 10), make(chan error, 10)
	dial(t, DialerConfig{Address: h.address, TLS: authority.clientTLS("agent-a"), RenewCertificate: func(ctx context.Context, o *CertificateClient) error {
		got, err := o.Renew(ctx, []byte("request"), time.UnixMilli(5))
		if err != nil || string(got.Chain) != "request for agent-a" || got.Clock.UnixMilli() != 9 {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = o.Renew(ctx, []byte("bad"), time.UnixMilli(5))
		problems <- err
		return o.WatchTrust(ctx, func(now Trust) { bundles <- string(now.Bundle) + string(now.Issuer) })
	}})
	if told := new(EnrollError); !errors.As(<-problems, &told) || told.Message != "suspended" {
		t.Errorf("error %v", told)
	}
	if got := <-bundles; got != "first" {
		t.Errorf("believes %s", got)
	}
	reg.set("second")
	if got := <-bundles; got != "secondissuer" {
		t.Errorf("believes %s", got)
	}
}
