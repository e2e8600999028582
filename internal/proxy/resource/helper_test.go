package resource

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// authority issues the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert: cert, key: key, pool: pool}
}

var serial atomic.Int64

func (a *authority) issue(t testing.TB, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(100 + serial.Add(1)), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func keyPair(t testing.TB, c tls.Certificate) (cert, key []byte) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
}

// stage is a Hub and an Agent with a tunnel between them, in one process.
type stage struct {
	ca      *authority
	hub     *Hub
	agent   *Agent
	address string // of the hub
	index   *Index
	client  *http.Client // with the certificate of agent w1

	mu       sync.Mutex
	away     error // what Dial answers, if not nil
	tunnels  map[net.Conn]struct{}
	dials    int
	outcomes []RequestResult
	revoked  map[string]bool
}

type options struct {
	hub   func(*HubConfig)
	agent func(*AgentConfig)
}

// newStage starts both halves in front of an API server.
func newStage(t testing.TB, server APIServer, o options) *stage {
	t.Helper()
	s := &stage{ca: newAuthority(t), index: &Index{}, tunnels: map[net.Conn]struct{}{}, revoked: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var wait sync.WaitGroup
	t.Cleanup(wait.Wait)
	t.Cleanup(cancel)

	agentConfig := AgentConfig{Name: "w1", Server: server, Apps: s.index, Policy: Policy{Level: LevelAll}}
	if o.agent != nil {
		o.agent(&agentConfig)
	}
	agent, err := NewAgent(agentConfig)
	if err != nil {
		t.Fatal(err)
	}
	s.agent = agent
	wait.Go(func() {
		if err := agent.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	s.startHub(ctx, t, &wait, o)
	s.client = s.clientAs(t, "w1")
	return s
}

func (s *stage) startHub(ctx context.Context, t testing.TB, wait *sync.WaitGroup, o options) {
	t.Helper()
	config := HubConfig{
		Dial: s.dial,
		Caller: func(state *tls.ConnectionState) (string, error) {
			name := state.PeerCertificates[0].Subject.CommonName
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.revoked[name] {
				return "", errors.New("the certificate is revoked")
			}
			if name == "shared" {
				return "", nil
			}
			return name, nil
		},
		Token: func(_ *tls.ConnectionState, token string) (string, error) {
			if token == "token-of-w1" {
				return "w1", nil
			}
			return "", errors.New("the token is unknown")
		},
		Observe: func(o RequestResult) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.outcomes = append(s.outcomes, o)
		},
	}
	if o.hub != nil {
		o.hub(&config)
	}
	s.hub = NewHub(config)
	t.Cleanup(s.hub.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	server := NewServer(ctx, s.hub, &tls.Config{
		Certificates: []tls.Certificate{s.ca.issue(t, "resource-proxy")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: s.ca.pool, MinVersion: tls.VersionTLS12,
	})
	wait.Go(func() { _ = server.ServeTLS(listener, "", "") })
	t.Cleanup(func() { _ = server.Close() })
}

// dial is a tunnel: a TCP connection of which the Agent gets the other end.
func (s *stage) dial(ctx context.Context, agent string) (net.Conn, error) {
	s.mu.Lock()
	away := s.away
	s.dials++
	s.mu.Unlock()
	if away != nil {
		return nil, away
	}
	if agent != "w1" {
		return nil, &UnknownAgentError{Agent: agent}
	}
	near, far, err := tcpPipe(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.tunnels[near] = struct{}{}
	s.mu.Unlock()
	s.agent.Serve(far)
	return near, nil
}

func tcpPipe(ctx context.Context) (near, far net.Conn, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	if near, err = new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String()); err != nil {
		return nil, nil, err
	}
	far, err = listener.Accept()
	return near, far, err
}

// leave makes the agent go away: tunnels break and none can be opened.
func (s *stage) leave(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
	for conn := range s.tunnels {
		_ = conn.Close()
	}
	clear(s.tunnels)
}

func (s *stage) clientAs(t testing.TB, name string) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: s.ca.pool, Certificates: []tls.Certificate{s.ca.issue(t, name)}},
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// connect opens a connection as the agent's caller.
func (s *stage) connect(t testing.TB) *tls.Conn {
	t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: s.ca.pool, Certificates: []tls.Certificate{s.ca.issue(t, "w1")}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	secure, _ := conn.(*tls.Conn)
	return secure
}

// terminal opens an upgraded connection, and sends some bytes before it has seen the answer.
func (s *stage) terminal(t testing.TB, early string) (*tls.Conn, *bufio.Reader) {
	t.Helper()
	conn := s.connect(t)
	_, _ = io.WriteString(conn, "POST /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"+early)
	reader := bufio.NewReader(conn)
	status, err := reader.ReadString('\n')
	if err != nil || !strings.Contains(status, " 101 ") {
		t.Fatalf("%q, %v", status, err)
	}
	for line := status; line != "\r\n" && err == nil; {
		line, err = reader.ReadString('\n')
	}
	return conn, reader
}

// reply is an answer without its body, which has been read.
type reply struct {
	Status     string
	StatusCode int
	Header     http.Header
}

// ask sends a request to the hub and returns the answer with its body.
func (s *stage) ask(t testing.TB, client *http.Client, method, path string, body io.Reader, headers ...string) (*reply, []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+s.address+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("read the answer to %s %s: %v", method, path, err)
	}
	return &reply{Status: response.Status, StatusCode: response.StatusCode, Header: response.Header}, content
}

// statusOf reads a Status and checks that it is a real one.
func statusOf(t testing.TB, response *reply, body []byte) Status {
	t.Helper()
	var s Status
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatalf("no Status but %q: %v", body, err)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Outcome != "Failure" || s.Code != response.StatusCode ||
		response.Header.Get("Content-Type") != "application/json" || s.Message == "" {
		t.Fatalf("not a proper Status with %d: %s", response.StatusCode, body)
	}
	return s
}

// fakeServer is an API server that is a function.
func fakeServer(t testing.TB, handle http.HandlerFunc) APIServer {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	address, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return APIServer{URL: address, Common: transport, Upgrades: transport}
}

// answer is an API server that knows a few kinds and answers everything else with an empty object.
func answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/api/v1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":[{"name":"pods","kind":"Pod"},{"name":"pods/log","kind":"Pod"},{"name":"secrets","kind":"Secret"},{"name":"services","kind":"Service"}]}`)
	case "/apis/apps/v1":
		_, _ = io.WriteString(w, `{"kind":"APIResourceList","resources":[{"name":"deployments","kind":"Deployment"}]}`)
	default:
		_, _ = io.WriteString(w, "{}")
	}
}

func contains(t testing.TB, got []byte, want string) {
	t.Helper()
	if !bytes.Contains(got, []byte(want)) {
		t.Errorf("%q is not in %q", want, got)
	}
}
