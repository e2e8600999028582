// Package websocket carries a connection between agent and hub inside a WebSocket, where a proxy or load balancer only
// passes HTTP/1.1 or terminates TLS. The mutual TLS of agent and principal runs inside the WebSocket. What is between
// them cannot read or change the traffic, and identity stays end to end.
package websocket

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"
)

const (
	// path is where the principal accepts WebSockets. Proxies in front of it must route the path to it.
	path = "/argocd-agent"

	// protocol is the subprotocol of the WebSocket.
	protocol = "argocd-agent.v1"
)

// Dial opens a WebSocket to the hub, on a connection that connect opens. The outer TLS is only for a proxy that
// terminates it. The TLS inside verifies the hub, so the outer certificate is not verified.
func Dial(ctx context.Context, address string, connect func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, error) {
	var below net.Conn
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			var err error
			below, err = connect(ctx, address)
			return below, err
		},
		TLSClientConfig: &tls.Config{
			MinVersion:         tls.VersionTLS12,
			NextProtos:         []string{"http/1.1"},
			InsecureSkipVerify: true, //nolint:gosec // see above
		},
		DisableKeepAlives: true,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	where := url.URL{Scheme: "https", Host: address, Path: path}
	ws, resp, err := websocket.Dial(ctx, where.String(), &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{protocol}}) //nolint:bodyclose // not needed, by its documentation
	if err != nil {
		return nil, explainUpgrade(err, resp)
	}
	if ws.Subprotocol() != protocol {
		_ = ws.CloseNow()
		return nil, fmt.Errorf("%s accepts WebSocket connections but is not a principal", address)
	}
	return newConn(ws, below), nil
}

// explainUpgrade explains why there is no WebSocket.
func explainUpgrade(err error, resp *http.Response) error {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		if strings.Contains(err.Error(), "certificate required") {
			if alert, ok := errors.AsType[*net.OpError](err); ok { // without the state of the HTTP client
				err = alert
			}
			return fmt.Errorf("open WebSocket: the principal does not accept WebSockets: set its --enable-websocket (%w)", err)
		}
		return fmt.Errorf("open WebSocket: %w", err)
	}
	if resp.StatusCode == http.StatusProxyAuthRequired || resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("open WebSocket: a proxy refuses it (%s)", resp.Status)
	}
	return fmt.Errorf("open WebSocket: the response is %s: proxies in front of the principal must pass %s to it, including upgrades", resp.Status, path)
}

// conn is a connection inside a WebSocket.
type conn struct {
	net.Conn
	ws    *websocket.Conn
	below net.Conn
}

func newConn(ws *websocket.Conn, below net.Conn) *conn {
	return &conn{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws, below}
}

// Close implements net.Conn. It does not wait for the peer, because the TLS inside has ended already.
func (c *conn) Close() error {
	err := c.ws.CloseNow()
	_ = c.Conn.Close() // stops its timers
	return err
}

func (c *conn) LocalAddr() net.Addr  { return c.below.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr { return c.below.RemoteAddr() }
