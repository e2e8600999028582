package grpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// middleman ends TLS with a certificate that no agent knows, and speaks HTTP/1.1 to
// the hub, in the clear or by TLS, as load balancers do.
func middleman(t testing.TB, scheme, to string) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: scheme, Host: to})
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}}
	server := httptest.NewTLSServer(proxy)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestWebSocket_CarriesSessionsEndToEnd(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), WebSocket: true})
	for name, address := range map[string]string{
		"directly":                       h.address,
		"TLS ends on the way":            middleman(t, "http", h.address),
		"TLS ends, and begins once more": middleman(t, "https", h.address),
	} {
		t.Run(name, func(t *testing.T) {
			cert := ca.issue("agent-a", time.Hour)
			s := dial(t, spokeConfig{Address: address, TLS: ca.clientWith(cert), WebSocket: true})
			agent, hub := s.next("connected").conn, h.next("connected").conn
			if hub.Agent != "agent-a" || hub.Fingerprint != fingerprint(cert) {
				t.Errorf("the hub sees %+v", hub)
			}
			if agent.RemoteAddr != address {
				t.Errorf("the agent is connected to %s", agent.RemoteAddr)
			}
			for i := range 300 {
				must(t, agent.Send(roots(i)))
				must(t, hub.Send(roots(-i)))
			}
			for i := range 300 {
				if got := numberOf(t, h.next("received").message); got != i {
					t.Fatalf("the hub got %d instead of %d", got, i)
				}
				if got := numberOf(t, s.next("received").message); got != -i {
					t.Fatalf("the agent got %d instead of %d", got, -i)
				}
			}
			s.stop()
			_ = h.bye()
		})
	}
	// Agents without WebSocket use the same port.
	dial(t, spokeConfig{Address: h.address, TLS: ca.clientTLS("agent-b")}).next("connected")
	h.next("connected")
}

func TestWebSocket_CarriesTunnels(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), WebSocket: true})
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	echo := func(_ context.Context, conn net.Conn) { _, _ = io.Copy(conn, conn) }
	dial(t, spokeConfig{Address: middleman(t, "http", h.address), TLS: ca.clientTLS("agent-a"), WebSocket: true, Tunnels: map[string]tunnel.Handler{"echo": echo}})
	h.welcome("agent-a")
	tunnel, err := h.OpenTunnel(t.Context(), "agent-a", "echo")
	must(t, err)
	go func() { _, _ = tunnel.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(tunnel, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("not all came back: %v", err)
	}
	must(t, tunnel.Close())
}

func TestWebSocket_CarriesJoins(t *testing.T) {
	leakCheck(t)
	a, err := pki.NewAuthority(time.Now())
	must(t, err)
	reg := newRegistrar()
	reg.join = func(_ context.Context, r enroll.JoinRequest) (enroll.Joined, error) {
		return enroll.Joined{Certificate: enroll.Certificate{Chain: []byte("for " + r.Agent)}, Mode: "managed"}, nil
	}
	h := startHub(t, hubConfig{TLS: joinable(t, a), Enroll: reg, WebSocket: true})
	direct, through := joinConfig(h, a.Pin()), joinConfig(h, a.Pin())
	through.WebSocket, through.Address = true, middleman(t, "http", h.address)
	for name, cfg := range map[string]spokeConfig{"directly": direct, "through what ends TLS": through} {
		joined, err := join(t.Context(), cfg.client(), enroll.JoinRequest{Agent: "w1", TokenID: "id", TokenValue: "secret", Request: []byte("request"), Clock: time.Now()})
		if err != nil || string(joined.Chain) != "for w1" {
			t.Errorf("%s: %+v, %v", name, joined, err)
		}
	}
	// What stands between cannot answer in the hub's stead: it has not the CA of the pin.
	stranger, err := pki.NewAuthority(time.Now())
	must(t, err)
	through.TLS = joinConfig(h, stranger.Pin()).TLS
	if joined, err := join(t.Context(), through.client(), enroll.JoinRequest{Agent: "w1", Clock: time.Now()}); err == nil {
		t.Errorf("a wrong hub was trusted: %+v", joined)
	}
}

func TestWebSocket_ExplainsFailures(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	closed := startHub(t, hubConfig{TLS: ca.serverTLS()})
	stranger := startHub(t, hubConfig{TLS: newCA(t, "another ca").serverTLS(), WebSocket: true})
	page := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(page.Close)
	gate := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(gate.Close)
	chat := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			_ = ws.CloseNow()
		}
	}))
	t.Cleanup(chat.Close)
	for name, c := range map[string]struct{ address, says string }{
		"disabled on the hub":    {closed.address, "set its --enable-websocket"},
		"another web server":     {page.Listener.Addr().String(), "must pass /argocd-agent to it"},
		"a proxy that refuses":   {gate.Listener.Addr().String(), "a proxy refuses it (403"},
		"another application":    {chat.Listener.Addr().String(), "is not a principal"},
		"an impostor of the hub": {stranger.address, "certificate signed by unknown authority"}, // by the TLS inside
		"no server":              {"127.0.0.1:1", "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := dial(t, spokeConfig{Address: c.address, TLS: ca.clientTLS("agent-a"), WebSocket: true})
			err := s.failure()
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says: %v", err)
			}
			s.stop()
		})
	}
}

func TestWebSocket_NeedsACertificateInside(t *testing.T) {
	leakCheck(t)
	ca := newCA(t, "ca")
	h := startHub(t, hubConfig{TLS: ca.serverTLS(), WebSocket: true})
	upgrade := "GET " + "/argocd-agent" + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	protocol := "Sec-WebSocket-Protocol: " + "argocd-agent.v1" + "\r\n"
	for name, c := range map[string]struct{ send, answer string }{
		"a look at the port":    {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found"},
		"no upgrade":            {"GET " + "/argocd-agent" + " HTTP/1.1\r\nHost: x\r\n\r\n", "426 Upgrade Required"},
		"another protocol":      {upgrade + "\r\n", "101 Switching Protocols"}, // and then nothing
		"no TLS inside":         {upgrade + protocol + "\r\n\x82\x84\x00\x00\x00\x00PRI ", "101 Switching Protocols"},
		"text inside":           {upgrade + protocol + "\r\n\x81\x84\x00\x00\x00\x00PRI ", "101 Switching Protocols"},
		"an upgrade inside":     {upgrade + protocol + "\r\n\x82\x84\x00\x00\x00\x00GET ", "101 Switching Protocols"},
		"a frame without end":   {upgrade + protocol + "\r\n\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00xxxx", "101 Switching Protocols"},
		"headers without end":   {"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 100_000), ""},
		"HTTP/2 in the clear":   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "404 Not Found"},
		"neither this nor that": {"\x00\x01\x02\x03\r\n\r\n", ""},
	} {
		for _, encrypted := range []bool{false, true} {
			if got := exchange(t, h.address, c.send, encrypted); !strings.HasPrefix(got, strings.TrimSpace("HTTP/1.1 "+c.answer)) && (c.answer != "" || got != "") {
				t.Errorf("%s (TLS outside: %v): %q", name, encrypted, got)
			}
		}
	}
	// Inside, a client without a certificate is refused.
	s := dial(t, spokeConfig{Address: h.address, WebSocket: true, TLS: func() (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool()}, nil
	}})
	if err := s.failure(); !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("it says: %v", err)
	}
	s.stop()
	eventually(t, "all are gone", func() bool { return h.Counters().Sockets.Load() == 0 })
	if n := h.Counters().Connects.Load(); n != 0 {
		t.Errorf("%d got in", n)
	}
}

// exchange says something to a port and returns all that comes back.
func exchange(t testing.TB, address, send string, encrypted bool) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	must(t, err)
	defer conn.Close()
	if encrypted {
		secure := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		must(t, secure.Handshake())
		conn = secure
	}
	_, _ = conn.Write([]byte(send))
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	got, _ := io.ReadAll(conn)
	return string(got)
}
