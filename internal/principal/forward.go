package principal

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// ForwardProtocol is what principals speak among each other, on the port of the
// resource proxy. A request to an agent whose session another replica holds takes
// one hop: this principal asks that one for a tunnel, and uses it as its own.
const ForwardProtocol = "argocd-agent-forward/1"

// forwardDialTimeout is how long another principal may take to be reached. What it then
// has to do takes as long as it may take here.
const forwardDialTimeout = 2 * time.Second

// Headers of the request for a tunnel, and of its answer.
const (
	forwardUpgrade  = "argocd-agent-tunnel"
	agentHeader     = "Argocd-Agent-Name"
	targetHeader    = "Argocd-Agent-Target"
	namespaceHeader = "Argocd-Agent-Argo-Namespace"
)

// RemoteSessionError says that an agent is connected with another principal, and
// why it cannot be reached there.
type RemoteSessionError struct {
	Agent, Replica string
	Err            error
}

func (e *RemoteSessionError) Error() string {
	return fmt.Sprintf("agent %s is connected with principal %s, which cannot be asked: %v", e.Agent, e.Replica, e.Err)
}

// Unwrap returns why.
func (e *RemoteSessionError) Unwrap() error { return e.Err }

// holder is the other principal that has an agent's session; empty: none that is
// known to live.
func (p *principal) holder(agent string) string {
	rec, known, _, _ := p.registry.object(agent)
	if !known || !rec.Status.Connected || rec.Status.Principal == p.replicas.self || !p.replicas.alive(rec.Status.Principal) {
		return ""
	}
	return rec.Status.Principal
}

// agentChanged looks whether an agent has come to another principal, or gone from it.
func (l *live) agentChanged(agent string) {
	holder := l.p.holder(agent)
	l.mu.Lock()
	changed := l.sessionHolder[agent] != holder
	if holder == "" {
		delete(l.sessionHolder, agent)
	} else {
		l.sessionHolder[agent] = holder
	}
	l.mu.Unlock()
	if changed && l.redis != nil {
		l.redis.AgentChanged(agent)
	}
}

// forward asks the principal that has an agent's session for a tunnel. It returns
// away if there is none such.
func (l *live) forward(ctx context.Context, agent, target string, away error) (net.Conn, error) {
	replica := l.p.holder(agent)
	if replica == "" {
		return nil, away
	}
	address := l.p.replicas.address(replica)
	switch {
	case l.p.cfg.Live.Replicas == nil:
		return nil, &RemoteSessionError{agent, replica, errors.New("this principal has no resource proxy, by whose certificate principals know each other")}
	case address == "":
		return nil, &RemoteSessionError{agent, replica, errors.New("it does not say where: see --replica-address")}
	}
	ctx, span := trace.StartChild(ctx, trace.KindClient, "ask the principal that has the agent")
	defer span.End()
	span.SetString(trace.Principal, replica)
	began := time.Now()
	conn, err := l.dialReplica(ctx, address, agent, target)
	l.forwards.add(began, err)
	if err != nil {
		span.Fail(err.Error())
		return nil, &RemoteSessionError{agent, replica, err}
	}
	return conn, nil
}

// dialReplica asks a principal for a tunnel. The context is for asking alone.
func (l *live) dialReplica(ctx context.Context, address, agent, target string) (net.Conn, error) {
	config, err := l.p.cfg.Live.Replicas.ClientTLS()
	if err != nil {
		return nil, err
	}
	reaching, cancel := context.WithTimeout(ctx, forwardDialTimeout)
	raw, err := (&tls.Dialer{Config: config}).DialContext(reaching, "tcp", address)
	cancel()
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*tls.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T is no connection by TLS", raw)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	c, err := l.requestTunnel(ctx, conn, agent, target)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.NetConn().Close()
		return nil, err
	}
	return c, nil
}

func (l *live) requestTunnel(ctx context.Context, conn *tls.Conn, agent, target string) (net.Conn, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://principal/", http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {forwardUpgrade}, agentHeader: {agent}, targetHeader: {target}}
	trace.FromContext(ctx).Inject(request.Header)
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		_ = response.Body.Close()
		return nil, &forwardRefusedError{cmp.Or(strings.TrimSpace(string(why)), response.Status)}
	}
	l.setSpokeNamespace(agent, response.Header.Get(namespaceHeader))
	return &forwardConn{Conn: conn, buffered: in}, nil
}

// forwardConn is a tunnel that another principal has opened.
type forwardConn struct {
	*tls.Conn
	buffered *bufio.Reader // may have some of it already
}

// Read implements net.Conn.
func (c *forwardConn) Read(b []byte) (int, error) {
	if c.buffered.Buffered() > 0 {
		return c.buffered.Read(b)
	}
	return c.Conn.Read(b)
}

// forwardHandlers serves those who have negotiated HopProtocol, and who are therefore
// principals. Everybody else never gets here.
func (l *live) forwardHandlers(ctx context.Context) map[string]func(*http.Server, *tls.Conn, http.Handler) {
	return map[string]func(*http.Server, *tls.Conn, http.Handler){ForwardProtocol: func(server *http.Server, conn *tls.Conn, _ http.Handler) {
		if server.ConnState != nil {
			server.ConnState(conn, http.StateHijacked) // it is no caller's, and not to be closed for being idle
		}
		l.serveForward(ctx, conn)
	}}
}

// maxRequestSize is how large a request for a tunnel may be, and how long it may take.
const (
	maxRequestSize = 16 << 10
	requestTimeout = 10 * time.Second
)

// serveForward opens a tunnel for another principal, and carries it until it ends. It
// never asks a third one.
func (l *live) serveForward(ctx context.Context, conn *tls.Conn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	limited := &io.LimitedReader{R: conn, N: maxRequestSize}
	in := bufio.NewReader(limited)
	request, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	state := conn.ConnectionState()
	request.TLS = &state
	agent, target := request.Header.Get(agentHeader), request.Header.Get(targetHeader)
	if code, err := l.authorizeForward(request, agent, target); err != nil {
		l.forwards.received[forwardRefused].Add(1)
		writeRefusal(conn, code, err)
		return
	}
	tunnel, err := l.openTraced(ctx, request, agent, target)
	if err != nil {
		l.forwards.received[forwardRefused].Add(1)
		writeRefusal(conn, http.StatusServiceUnavailable, err)
		return
	}
	l.forwards.received[forwardOpened].Add(1)
	stop := context.AfterFunc(ctx, func() { _ = tunnel.Close() }) // this principal ends
	defer stop()
	l.mu.RLock()
	namespace := l.states[agent].spokeArgo
	l.mu.RUnlock()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", forwardUpgrade, namespaceHeader, namespace)
	splice(conn, in, tunnel) // which finds out if nobody is there any more
}

func writeRefusal(conn net.Conn, code int, why error) {
	text := why.Error()
	_ = (&http.Response{StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Close: true, ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text))}).Write(conn)
}

// authorizeForward tells who may have a tunnel to what. Who is at the other end was found
// out by the handshake, and is looked at once more: the certificate may have
// changed since.
func (l *live) authorizeForward(r *http.Request, agent, target string) (code int, err error) {
	twin := l.p.cfg.Live.Replicas
	if twin == nil {
		return http.StatusForbidden, identity.ErrNotReplica
	}
	if err := twin.Verify(r.TLS); err != nil {
		return http.StatusForbidden, err
	}
	if l.p.cfg.Live.Access.isShared(r.TLS.PeerCertificates[0]) {
		return http.StatusForbidden, errors.New("Argo CD has been given the principal's own certificate and key, so they tell principals from nobody: give it one of its own") //nolint:staticcheck // a name begins it
	}
	if r.Method != http.MethodPost || r.Header.Get("Upgrade") != forwardUpgrade || target != targetAPI && target != targetRedis {
		return http.StatusBadRequest, fmt.Errorf("%s of %q is nothing that principals ask each other for", r.Method, target)
	}
	if _, err := l.known(agent); err != nil {
		return http.StatusForbidden, err
	}
	return 0, nil
}

// openHere opens a tunnel to an agent that is connected with this principal.
func (l *live) openHere(ctx context.Context, agent, target string) (net.Conn, error) {
	if target == targetRedis {
		if conn, here := l.p.shared.dialRedis(agent); here {
			return conn, nil
		}
	}
	server := l.p.server.Load()
	if server == nil {
		return nil, &tunnel.NotConnectedError{Agent: agent}
	}
	return server.OpenTunnel(ctx, agent, target)
}

// setSpokeNamespace notes where an agent's cluster has Argo CD: the principal that has its
// session was told so by the agent.
func (l *live) setSpokeNamespace(agent, namespace string) {
	if _, known := l.p.registry.get(agent); !known {
		return // it went meanwhile, and nobody would forget it
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if state := l.states[agent]; namespace != "" && !state.connected && state.spokeArgo != namespace {
		state.spokeArgo = namespace
		l.states[agent] = state
	}
}
