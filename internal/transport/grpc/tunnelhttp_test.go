package grpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// These tests have net/http at both ends, as the resource proxy has.

// serveHTTP serves an agent's end until the test ends.
func (l *line) serveHTTP(t testing.TB, handler http.Handler) *http.Client {
	t.Helper()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	served := make(chan error)
	go func() { served <- server.Serve(l.accepted) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 10, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return l.OpenTunnel(ctx, "agent-a", "api")
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
	return &http.Client{Transport: transport}
}

func get(ctx context.Context, t testing.TB, client *http.Client, path string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	must(t, err)
	return client.Do(r)
}

func TestTunnel_CarriesHTTP(t *testing.T) {
	leakCheck(t)
	l := connect(t, tunnel.Limits{}, nil)
	cancelled := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/follow", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil { // faster than anybody reads
			_, _ = w.Write(make([]byte, 4096))
		}
		close(cancelled)
	})
	mux.HandleFunc("/exec", func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(conn, rw)
		_ = conn.Close()
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	client := l.serveHTTP(t, mux)

	for range 10 { // over one tunnel
		response, err := get(t.Context(), t, client, "/version")
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if string(body) != "/version" {
			t.Errorf("%q", body)
		}
	}
	if n := l.Counters().Tunnels.Opened.Load(); n != 1 {
		t.Errorf("%d tunnels", n)
	}
	// One who leaves ends the work for him at once.
	ctx, cancel := context.WithCancel(t.Context())
	response, err := get(ctx, t, client, "/follow")
	must(t, err)
	_, err = io.ReadFull(response.Body, make([]byte, 1<<20))
	must(t, err)
	cancel()
	<-cancelled
	_ = response.Body.Close()

	// A connection that is no longer HTTP.
	conn, err := l.OpenTunnel(t.Context(), "agent-a", "api")
	must(t, err)
	_, err = io.WriteString(conn, "GET /exec HTTP/1.1\r\nHost: agent\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	must(t, err)
	reader := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(reader, nil)
	must(t, err)
	_ = upgraded.Body.Close()
	for _, word := range []string{"one\n", "two\n"} {
		_, err = io.WriteString(conn, word)
		must(t, err)
		if got, err := reader.ReadString('\n'); err != nil || got != word {
			t.Errorf("%q, %v", got, err)
		}
	}
	must(t, conn.(*tunnel.Tunnel).CloseWrite())
	if rest, err := io.ReadAll(reader); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	must(t, conn.Close())
}

func TestTunnelService_AuthenticatesLikeSync(t *testing.T) {
	leakCheck(t)
	// A service mesh authenticates the agent, and Sync is compressed.
	h := startHub(t, hubConfig{Authenticate: func(c transport.Credentials) (transport.Peer, error) {
		if name := c.Header("x-agent"); len(name) == 1 {
			return transport.Peer{Agent: name[0]}, nil
		}
		return transport.Peer{}, errors.New("no header x-agent")
	}})
	l := &line{hub: h, accepted: tunnel.NewListener()}
	l.spoke = dial(t, spokeConfig{Address: h.address, Compress: true, Metadata: []string{"x-agent", "agent-a"},
		Tunnels: map[string]tunnel.Handler{"api": l.accepted.Handle}})
	l.conn = l.welcome("agent-a")
	hub, agent := l.open(t)
	_, err := hub.Write([]byte("x"))
	must(t, err)
	_, err = agent.Read(make([]byte, 1))
	must(t, err)
	if got := hub.RemoteAddr().String(); got != "agent-a/api" {
		t.Errorf("the hub sees %s", got)
	}
	if got := agent.RemoteAddr(); got.String() != "hub" || got.Network() != "tunnel" || !strings.HasSuffix(agent.LocalAddr().String(), "/api") {
		t.Errorf("the agent sees %s", got)
	}
}

// BenchmarkTunnelGET is a small request over a tunnel that is open already.
func BenchmarkTunnelGET(b *testing.B) {
	l := connect(b, tunnel.Limits{}, nil)
	client := l.serveHTTP(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2000)) }))
	var worst time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begin := time.Now()
		response, err := get(b.Context(), b, client, "/")
		must(b, err)
		_, err = io.Copy(io.Discard, response.Body)
		must(b, err)
		must(b, response.Body.Close())
		worst = max(worst, time.Since(begin))
	}
	b.ReportMetric(float64(worst.Microseconds()), "µs/worst")
}
