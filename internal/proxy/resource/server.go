package resource

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// NewServer returns a TLS server for a Hub. The configuration must require and verify client certificates. Reuse the same
// object while the certificate is unchanged, because it has the session tickets: argocd-server opens a new connection for
// nearly every request. When ctx ends, streams and exec sessions end.
//
// Call ServeTLS(listener, "", "") on it.
func NewServer(ctx context.Context, hub *Hub, config *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // for exec sessions
	protocols.SetHTTP2(true)
	limiter := newConnLimiter(hub.config.Connections)
	return &http.Server{
		Handler:                      hub,
		TLSConfig:                    config,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnState:                    limiter.changed,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            10 * time.Second, // including the handshake
		IdleTimeout:                  20 * time.Second,
		MaxHeaderBytes:               maxHeaders,
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			// A body that an agent does not read must not block other streams of the connection.
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 16 << 20,
			SendPingTimeout:               30 * time.Second, // for callers that lost their network
			PingTimeout:                   15 * time.Second,
		},
		ErrorLog: errorLog(hub.config.Log),
	}
}

// connLimiter limits the number of connections. If there are too many, it closes the longest idle one, so that a new caller
// can connect.
type connLimiter struct {
	limit int

	mu    sync.Mutex
	conns map[net.Conn]*list.Element // nil if in use
	idle  *list.List                 // of net.Conn, longest idle first; includes new connections
}

func newConnLimiter(limit int) *connLimiter {
	return &connLimiter{limit: limit, conns: map[net.Conn]*list.Element{}, idle: list.New()}
}

func (k *connLimiter) changed(conn net.Conn, state http.ConnState) {
	victim := k.update(conn, state)
	if secure, ok := victim.(*tls.Conn); ok {
		victim = secure.NetConn() // a TLS close could block for seconds
	}
	if victim != nil {
		_ = victim.Close()
	}
}

func (k *connLimiter) update(conn net.Conn, state http.ConnState) (victim net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if element := k.conns[conn]; element != nil {
		k.idle.Remove(element)
	}
	switch state {
	case http.StateActive:
		k.conns[conn] = nil
		return nil
	case http.StateClosed:
		delete(k.conns, conn)
		return nil
	case http.StateHijacked: // the Hub counts it as a request in flight
		delete(k.conns, conn)
		return nil
	}
	k.conns[conn] = k.idle.PushBack(conn)
	if len(k.conns) <= k.limit {
		return nil
	}
	oldest := k.idle.Remove(k.idle.Front())
	victim, _ = oldest.(net.Conn)
	delete(k.conns, victim)
	return victim
}
