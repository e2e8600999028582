package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// Where something between agent and hub lets nothing but HTTP/1.1 through, or
// ends TLS itself, the connection runs inside a WebSocket: all of it, with the
// mutual TLS of agent and principal inside. What is between them sees bytes that
// it can neither read nor change, and identity stays end to end.

const (
	// webSocketPath is where the principal can be upgraded. What stands before it
	// has to lead there.
	webSocketPath = "/argocd-agent"

	// webSocketProtocol is what both ends call the bytes inside.
	webSocketProtocol = "argocd-agent.v1"
)

// openWebSocket connects to the hub by HTTP/1.1 and upgrades that. The outer TLS
// is only for who ends it: whom we speak to is found out inside, so a
// certificate of whatever stands between, which we may not know, does not matter.
func (a *attempt) openWebSocket(ctx context.Context, address string) (net.Conn, error) {
	var below net.Conn
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			conn, err := a.connect(ctx, address)
			below = conn
			return conn, err
		},
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			InsecureSkipVerify: true, //nolint:gosec // see above: nothing is said on it but the inner handshake
		},
		DisableKeepAlives: true,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	where := url.URL{Scheme: "https", Host: address, Path: webSocketPath}
	ws, resp, err := websocket.Dial(ctx, where.String(), &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{webSocketProtocol}}) //nolint:bodyclose // the package says that one need not
	if err != nil {
		return nil, explainUpgrade(err, resp)
	}
	if ws.Subprotocol() != webSocketProtocol {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("whoever answers at %s opens WebSockets, but is no principal", address)
	}
	return newWebSocket(ws, below), nil
}

// explainUpgrade says what stands in the way of a WebSocket.
func explainUpgrade(err error, resp *http.Response) error {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		if strings.Contains(err.Error(), "certificate required") {
			return fmt.Errorf("opening a WebSocket: the principal has none: set its --enable-websocket (%w)", err)
		}
		return fmt.Errorf("opening a WebSocket: %w", err)
	}
	if resp.StatusCode == http.StatusProxyAuthRequired || resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("opening a WebSocket: something on the way refuses it (%s)", resp.Status)
	}
	return fmt.Errorf("opening a WebSocket: the answer is %s: what stands before the principal has to pass %s on to it, upgrades included", resp.Status, webSocketPath)
}

// webSocket is a connection inside a WebSocket.
type webSocket struct {
	net.Conn
	ws    *websocket.Conn
	below net.Conn
}

func newWebSocket(ws *websocket.Conn, below net.Conn) *webSocket {
	return &webSocket{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws, below}
}

// Close implements net.Conn. It does not wait for the peer, as that of a WebSocket
// would: TLS inside has said goodbye.
func (w *webSocket) Close() error {
	err := w.ws.CloseNow()
	_ = w.Conn.Close() // its timers; it finds the WebSocket closed
	return err
}

// LocalAddr implements net.Conn.
func (w *webSocket) LocalAddr() net.Addr { return w.below.LocalAddr() }

// RemoteAddr implements net.Conn.
func (w *webSocket) RemoteAddr() net.Addr { return w.below.RemoteAddr() }

// verdict is how long the first byte of a hub is waited for: a deadline that
// passes ends a WebSocket.
func (cfg *DialerConfig) verdict() time.Duration {
	if cfg.WebSocket {
		return cfg.OpenTimeout
	}
	return firstByteTimeout
}
