package grpc

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/wire"
)

// handshake starts TLS as an agent does.
func handshake(t testing.TB, raw net.Conn, ca *ca) net.Conn {
	t.Helper()
	cfg, err := ca.clientTLS("agent-a")()
	must(t, err)
	cfg.ServerName, cfg.NextProtos = "localhost", []string{"h2"}
	conn := tls.Client(raw, cfg)
	must(t, conn.HandshakeContext(t.Context()))
	return conn
}

// startHTTP2 sends what a client of HTTP/2 sends first.
func startHTTP2(t testing.TB, conn net.Conn) *http2.Framer {
	t.Helper()
	_, err := conn.Write([]byte(http2.ClientPreface))
	must(t, err)
	framer := http2.NewFramer(conn, conn)
	must(t, framer.WriteSettings())
	return framer
}

// startSync opens a Sync stream by hand.
func startSync(t testing.TB, framer *http2.Framer) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", "/argocdagent.v1.Sync/Sync"}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		must(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	must(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
}

// discard reads everything, so that the other end can write.
func discard(conn net.Conn) { go func() { _, _ = io.Copy(io.Discard, conn) }() }

func TestDeadlines_CloseSilentConnections(t *testing.T) {
	const (
		handshakeLimit = 10 * time.Second
		idleLimit      = maxIdle + 6*time.Second // gRPC waits for the answer to a ping
		helloLimit     = 31 * time.Second        // and one second for the peer to close its end
	)
	for name, tc := range map[string]struct {
		limit time.Duration
		send  func(t *testing.T, conn net.Conn, ca *ca)
	}{
		"nothing": {handshakeLimit, func(_ *testing.T, conn net.Conn, _ *ca) { discard(conn) }},
		"one byte of TLS": {handshakeLimit, func(t *testing.T, conn net.Conn, ca *ca) {
			t.Helper()
			_, err := conn.Write([]byte{tlsHandshake})
			must(t, err)
		}},
		"TLS without HTTP/2": {handshakeLimit, func(t *testing.T, conn net.Conn, ca *ca) {
			t.Helper()
			discard(handshake(t, conn, ca))
		}},
		"part of an HTTP request": {handshakeLimit, func(t *testing.T, conn net.Conn, _ *ca) {
			t.Helper()
			_, err := conn.Write([]byte("GET /argocd-agent HTTP/1.1\r\nHost: hub\r\n"))
			must(t, err)
		}},
		"WebSocket without TLS inside": {handshakeLimit, func(t *testing.T, conn net.Conn, _ *ca) {
			t.Helper()
			discard(conn)
			_, err := conn.Write([]byte("GET /argocd-agent HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
				"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: argocd-agent.v1\r\n\r\n"))
			must(t, err)
		}},
		"HTTP/2 without a stream": {idleLimit, func(t *testing.T, conn net.Conn, ca *ca) {
			t.Helper()
			secure := handshake(t, conn, ca)
			discard(secure)
			startHTTP2(t, secure)
		}},
		"a stream without a message": {helloLimit, func(t *testing.T, conn net.Conn, ca *ca) {
			t.Helper()
			secure := handshake(t, conn, ca)
			discard(secure)
			startSync(t, startHTTP2(t, secure))
		}},
		"part of a large message": {helloLimit, func(t *testing.T, conn net.Conn, ca *ca) {
			t.Helper()
			secure := handshake(t, conn, ca)
			discard(secure)
			framer := startHTTP2(t, secure)
			startSync(t, framer)
			part := make([]byte, 16<<10)
			binary.BigEndian.PutUint32(part[1:], wire.MaxEvent-1)
			must(t, framer.WriteData(1, false, part))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ca := newCA(t, "ca")
				c := newCable()
				h := startHubOn(t, hubConfig{TLS: ca.serverTLS(), WebSocket: true, HelloTimeout: 30 * time.Second}, c)
				conn, err := c.dial(t.Context(), "", "")
				must(t, err)
				defer conn.Close()
				tc.send(t, conn, ca)
				synctest.Wait()
				if open := h.Counters().Sockets.Load(); open != 1 {
					t.Fatalf("%d connections before the deadline", open)
				}
				time.Sleep(tc.limit + time.Millisecond)
				synctest.Wait()
				if open := h.Counters().Sockets.Load(); open != 0 {
					t.Errorf("still open after %v", tc.limit)
				}
			})
		})
	}
}

func TestHelloTimeout_DoesNotCloseSessionsWithHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS(), HelloTimeout: 30 * time.Second}, c)
		s := dial(t, spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Dial: c.dial})
		agent := s.next("connected").conn
		h.next("connected")
		time.Sleep(29 * time.Second)
		must(t, agent.Send(engine.Hello{Epoch: engine.Epoch{Incarnation: 1, Attempt: 1}}))
		h.next("received")
		time.Sleep(time.Hour)
		must(t, agent.Send(roots(1)))
		h.next("received")
	})
}
