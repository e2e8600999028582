package resource

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// send writes bytes to the hub as the agent's caller and returns the status line.
func (s *stage) send(t testing.TB, text string) string {
	t.Helper()
	conn := s.connect(t)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soon))
	_, _ = io.WriteString(conn, text)
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("no answer to %q: %v", text, err)
	}
	return strings.TrimSpace(status)
}

func TestHub_RejectsHostileRequests(t *testing.T) {
	s := newStage(t, fakeServer(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s arrived", r.Method, r.RequestURI)
	}), options{})
	for name, text := range map[string]string{
		"relative path":       "GET /api/v1/../../x HTTP/1.1\r\nHost: x\r\n\r\n",
		"encoded slash":       "GET /api/v1/namespaces/a%2Fpods HTTP/1.1\r\nHost: x\r\n\r\n",
		"absolute address":    "GET http://elsewhere/api HTTP/1.1\r\nHost: x\r\n\r\n",
		"two slashes":         "GET //elsewhere/api HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT":             "CONNECT elsewhere:443 HTTP/1.1\r\nHost: elsewhere:443\r\n\r\n",
		"TRACE":               "TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
		"asterisk":            "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"two lengths":         "POST /api/v1/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"strange coding":      "POST /api/v1/pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"hidden coding":       "POST /api/v1/pods HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"bare carriage":       "GET /api HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n",
		"no host":             "GET /api HTTP/1.1\r\n\r\n",
		"two hosts":           "GET /api HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
		"endless header":      "GET /api HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*maxHeaders) + "\r\n\r\n",
		"long address":        "GET /" + strings.Repeat("x", maxURI) + " HTTP/1.1\r\nHost: x\r\n\r\n",
		"not HTTP":            "\x16\x03\x01 hello\r\n\r\n",
		"a control character": "GET /api/v1/pods/%0d%0aX HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		if status := s.send(t, text); !strings.Contains(status, " 40") && !strings.Contains(status, " 41") && !strings.Contains(status, " 43") && !strings.Contains(status, " 501") {
			t.Errorf("%s: %q", name, status)
		}
	}
}

func TestHub_AuthenticatesCallers(t *testing.T) {
	s := newStage(t, fakeServer(t, answer), options{})
	stranger := newAuthority(t)
	for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "a stranger's": {stranger.issue(t, "w1")}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.ca.pool, Certificates: certificates}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/version", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := transport.RoundTrip(request); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s: %s", name, response.Status)
		}
	}
	shared := s.clientAs(t, "shared")
	for _, test := range []struct {
		header string
		code   int
	}{
		{"", http.StatusUnauthorized}, {"Basic dG9rZW4=", http.StatusUnauthorized}, {"Bearer ", http.StatusUnauthorized},
		{"Bearer wrong", http.StatusForbidden}, {"Bearer token-of-w1", http.StatusOK}, {"bearer token-of-w1", http.StatusOK},
	} {
		response, body := s.ask(t, shared, http.MethodGet, "/version", nil, "Authorization", test.header)
		if response.StatusCode != test.code {
			t.Errorf("%q: %s", test.header, response.Status)
		}
		if test.code != http.StatusOK {
			statusOf(t, response, body)
		}
	}
}

func TestRecheck_CancelsRequestsInFlight(t *testing.T) {
	begun := make(chan struct{})
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), options{})
	ended := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "https://"+s.address+"/api/v1/pods?watch=1", http.NoBody)
		if err != nil {
			ended <- err
			return
		}
		response, err := s.client.Do(request)
		if err == nil {
			close(begun)
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		ended <- err
	}()
	await(t, "watch", begun)
	s.hub.Recheck()
	select {
	case err := <-ended:
		t.Fatalf("it ended without a reason: %v", err)
	default:
	}
	s.mu.Lock()
	s.revoked["w1"] = true
	s.mu.Unlock()
	s.hub.Recheck()
	if err := await(t, "end of the watch", ended); err == nil {
		t.Error("it ended as if it were complete")
	}
	response, body := s.ask(t, s.client, http.MethodGet, "/version", nil)
	if status := statusOf(t, response, body); status.Code != http.StatusForbidden || !strings.Contains(status.Message, "revoked") {
		t.Errorf("on the connection that is still open: %s", body)
	}
}

func TestRequestTracker_LimitsRequests(t *testing.T) {
	begun := make(chan struct{}, 10)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	}), options{hub: func(c *HubConfig) { c.PerAgent = 2 }})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for range 2 {
		wait.Go(func() {
			request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/api/v1/pods?watch=1", http.NoBody)
			if response, err := s.client.Do(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
		await(t, "watch", begun)
	}
	response, body := s.ask(t, s.client, http.MethodGet, "/api/v1/pods?watch=1", nil)
	if status := statusOf(t, response, body); status.Code != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" {
		t.Errorf("the third: %s", body)
	}
	cancel()
	wait.Wait()
}

func TestConnLimiter_ClosesTheLongestIdle(t *testing.T) {
	const limit = 50
	s := newStage(t, fakeServer(t, answer), options{hub: func(c *HubConfig) { c.Connections = limit }})
	certificate := s.ca.issue(t, "w1")
	var conns []net.Conn
	t.Cleanup(func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	for i := range 1000 {
		// Every tenth has shaken hands, the others only wait.
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			secure := tls.Client(conn, &tls.Config{RootCAs: s.ca.pool, ServerName: "127.0.0.1", Certificates: []tls.Certificate{certificate}})
			if err := secure.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			conn = secure
		}
		conns = append(conns, conn)
	}
	if response, _ := s.ask(t, s.client, http.MethodGet, "/version", nil); response.StatusCode != http.StatusOK {
		t.Errorf("a request is refused: %s", response.Status)
	}
	// All but the limit are closed, sooner or later; those that are not time out, and are asked again.
	open := conns
	for deadline := time.Now().Add(time.Minute); len(open) > limit && time.Now().Before(deadline); {
		open = slices.DeleteFunc(slices.Clone(open), func(conn net.Conn) bool {
			_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			var timeout net.Error
			_, err := io.Copy(io.Discard, conn)
			return !errors.As(err, &timeout) || !timeout.Timeout()
		})
	}
	if len(open) > limit {
		t.Errorf("%d of %d idle connections stay open, more than %d", len(open), len(conns), limit)
	}
}

func TestHub_LimitsIdleTunnels(t *testing.T) {
	hold := make(chan struct{})
	var wait sync.WaitGroup
	wait.Add(20)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		wait.Done()
		<-hold
		_, _ = io.WriteString(w, "{}")
	}), options{hub: func(c *HubConfig) { c.IdlePerAgent = 3 }})
	var callers sync.WaitGroup
	for range 20 {
		callers.Go(func() { s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil) })
	}
	wait.Wait() // all are under way at once
	close(hold)
	callers.Wait()
	open := 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.tunnels {
		if _, err := conn.Write(nil); err == nil && conn.SetDeadline(time.Time{}) == nil {
			open++
		}
	}
	if s.dials < 4 || open > 3 {
		t.Errorf("of %d tunnels %d are still open", s.dials, open)
	}
}

func TestAgent_RejectsHostileRequests(t *testing.T) {
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Impersonate-") || name == "Authorization" {
				t.Errorf("%s arrived", name)
			}
		}
		answer(w, r)
	}), options{agent: func(c *AgentConfig) { c.Policy = Policy{} }})
	s.index.Set("shop", []Node{{Kind: "Pod", Namespace: "a", Name: "p"}})
	for text, want := range map[string]string{
		"GET /api/v1/namespaces/a/pods/p HTTP/1.1\r\nHost: x\r\nImpersonate-User: admin\r\nAuthorization: Bearer x\r\n\r\n": "200",
		"GET /api/v1/namespaces/a/pods/q HTTP/1.1\r\nHost: x\r\n\r\n":                                                       "403",
		"GET /api/v1/namespaces/a/pods/p/../q HTTP/1.1\r\nHost: x\r\n\r\n":                                                  "400",
		"GET http://elsewhere/api/v1/namespaces/a/pods/p HTTP/1.1\r\nHost: x\r\n\r\n":                                       "400",
	} {
		near, far, err := tcpPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.agent.Serve(far)
		_, _ = io.WriteString(near, text)
		line, err := bufio.NewReader(near).ReadString('\n')
		if err != nil || !strings.Contains(line, " "+want+" ") {
			t.Errorf("%q: %q, %v", text, line, err)
		}
		_ = near.Close()
	}
}

func TestAgent_MapsHubNames(t *testing.T) {
	seen := make(chan string, 2)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.URL.Path
		answer(w, r)
	}), options{agent: func(c *AgentConfig) {
		c.LocalName = func(group, _, namespace, name string) (string, string) {
			if group == "argoproj.io" && namespace == "w1" {
				return "argocd", name
			}
			return namespace, name
		}
	}})
	for path, want := range map[string]string{
		"/apis/argoproj.io/v1alpha1/namespaces/w1/applications/child":        "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/child",
		"/apis/argoproj.io/v1alpha1/namespaces/w1/applications/child/status": "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/child/status",
		"/api/v1/namespaces/w1/pods/p":                                       "/api/v1/namespaces/w1/pods/p",
	} {
		s.ask(t, s.client, http.MethodGet, path, nil)
		if got := await(t, "request", seen); got != want {
			t.Errorf("%s became %s", path, got)
		}
	}
}

func TestRecheck_CancelsRequestsThatJustBegin(t *testing.T) {
	var s *stage
	revoked, carriedOut := false, false
	s = newStage(t, fakeServer(t, func(http.ResponseWriter, *http.Request) { carriedOut = true }), options{hub: func(c *HubConfig) {
		c.Caller = func(*tls.ConnectionState) (string, error) {
			if revoked {
				return "", errors.New("the certificate is revoked")
			}
			revoked = true // right after this request was found good, and before it is in flight
			s.hub.Recheck()
			return "w1", nil
		}
	}})
	response, body := s.ask(t, s.client, http.MethodGet, "/api/v1/pods?watch=true", nil)
	if status := statusOf(t, response, body); status.Code != http.StatusForbidden || carriedOut {
		t.Errorf("carried out: %v; %s", carriedOut, body)
	}
}
