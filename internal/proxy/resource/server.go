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

// NewServer puts a Hub behind TLS. The configuration has to ask for client certificates and to verify them; it should
// stay the same object as long as the hub's certificate does, because session tickets, which make handshakes cheap,
// belong to it: argocd-server makes a new connection for nearly every request. Contexts of requests descend from ctx: when
// it ends, streams and terminals end.
//
// Call ServeTLS(listener, "", "") on it.
func NewServer(ctx context.Context, hub *Hub, config *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // terminals need it
	protocols.SetHTTP2(true)
	keeper := newKeeper(hub.config.Connections)
	return &http.Server{
		Handler:                      hub,
		TLSConfig:                    config,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnState:                    keeper.changed,
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            10 * time.Second, // handshake included
		IdleTimeout:                  hub.config.ConnectionIdle,
		MaxHeaderBytes:               maxHeaders,
		Protocols:                    protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 1000,
			// One body that an agent does not take in must not hold up the others of its connection.
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 16 << 20,
			SendPingTimeout:               30 * time.Second, // callers that are gone without a word
			PingTimeout:                   15 * time.Second,
		},
		ErrorLog: errorLog(hub.config.Log),
	}
}

// connLimiter bounds the number of connections. When there are too many, the one on which nothing has happened for longest is
// closed, so that whoever hoards connections loses his own and a new caller gets in.
type connLimiter struct {
	limit int

	mu    sync.Mutex
	conns map[net.Conn]*list.Element // nil: in use
	idle  *list.List                 // of net.Conn, longest first; new ones are idle until they ask for something
}

func newKeeper(limit int) *connLimiter {
	return &connLimiter{limit: limit, conns: map[net.Conn]*list.Element{}, idle: list.New()}
}

func (k *connLimiter) changed(conn net.Conn, state http.ConnState) {
	victim := k.note(conn, state)
	if secure, ok := victim.(*tls.Conn); ok {
		victim = secure.NetConn() // to say goodbye could take seconds, and nobody else would be let in meanwhile
	}
	if victim != nil {
		_ = victim.Close()
	}
}

func (k *connLimiter) note(conn net.Conn, state http.ConnState) (victim net.Conn) {
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
	case http.StateHijacked: // a terminal: the Hub counts it as a request under way
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
