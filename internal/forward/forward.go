// Package forward opens tunnels to agents whose session another principal replica holds. The replica that receives a
// request asks the holder for a tunnel, over the port of the resource proxy, and uses it like its own. The holder never
// forwards the request again. A replica can also ask when the agents of another one were last in sync.
package forward

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
)

// Protocol is the TLS application protocol between principal replicas.
const Protocol = "argocd-agent-forward/1"

// dialTimeout limits the TLS handshake with another replica.
const dialTimeout = 2 * time.Second

// Headers of the request for a tunnel, and of its response.
const (
	upgrade         = "argocd-agent-tunnel"
	agentHeader     = "Argocd-Agent-Name"
	targetHeader    = "Argocd-Agent-Target"
	namespaceHeader = "Argocd-Agent-Argo-Namespace"
)

// SessionError is returned if another replica holds the session of an agent and no tunnel could be opened there.
type SessionError struct {
	Agent, Replica string
	Err            error
}

func (e *SessionError) Error() string {
	return fmt.Sprintf("agent %s is connected to principal %s, which did not open a tunnel: %v", e.Agent, e.Replica, e.Err)
}

// Unwrap returns the cause.
func (e *SessionError) Unwrap() error { return e.Err }

// Directory finds other replicas.
type Directory interface {
	Holder(agent string) string    // the other replica that holds the agent's session; empty if none
	Address(replica string) string // host:port; empty if the replica cannot be reached
}

// Local gives access to the agents of this replica.
type Local interface {
	// OpenLocal opens a tunnel to an agent that is connected to this replica.
	OpenLocal(ctx context.Context, agent, target string) (net.Conn, error)
	// AuthorizeReplica returns an error and a status code if the certificate of a peer does not identify a replica.
	AuthorizeReplica(state *tls.ConnectionState) (code int, err error)
	// Authorize returns an error and a status code if another replica may not have a tunnel.
	Authorize(agent, target string) (code int, err error)
	// InSync returns when agents were last in sync, in seconds. It is nil if that is not known.
	InSync() map[string]int64
	// SpokeNamespace returns the Argo CD namespace of an agent's cluster.
	SpokeNamespace(agent string) string
	// SetSpokeNamespace sets the Argo CD namespace of an agent's cluster as another replica knows it.
	SetSpokeNamespace(agent, namespace string)
}

// Forwarder requests tunnels from other replicas, and opens tunnels for them.
type Forwarder struct {
	auth      *identity.ReplicaAuth // if nil, replicas cannot authenticate each other
	directory Directory
	local     Local
	tracer    *trace.Tracer
	counts    counts
}

// New returns a Forwarder.
func New(auth *identity.ReplicaAuth, directory Directory, local Local, tracer *trace.Tracer) *Forwarder {
	return &Forwarder{auth: auth, directory: directory, local: local, tracer: tracer}
}

// Open opens a tunnel through the replica that holds the agent's session. It returns notConnected if there is none.
func (f *Forwarder) Open(ctx context.Context, agent, target string, notConnected error) (net.Conn, error) {
	replica := f.directory.Holder(agent)
	if replica == "" {
		return nil, notConnected
	}
	address := f.directory.Address(replica)
	switch {
	case f.auth == nil:
		return nil, &SessionError{agent, replica, errors.New("this principal has no resource proxy, whose certificate authenticates replicas")}
	case address == "":
		return nil, &SessionError{agent, replica, errors.New("its address is unknown: set --replica-address")}
	}
	ctx, span := trace.StartChild(ctx, trace.KindClient, "ask the principal that has the agent")
	defer span.End()
	span.SetString(trace.Principal, replica)
	started := time.Now()
	conn, err := f.dial(ctx, address, agent, target)
	f.counts.addSent(started, err)
	if err != nil {
		span.Fail(err.Error())
		return nil, &SessionError{agent, replica, err}
	}
	return conn, nil
}

// dial requests a tunnel from a replica. ctx limits the request, not the tunnel.
func (f *Forwarder) dial(ctx context.Context, address, agent, target string) (net.Conn, error) {
	config, err := f.auth.ClientTLS()
	if err != nil {
		return nil, err
	}
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	raw, err := (&tls.Dialer{Config: config}).DialContext(dialing, "tcp", address)
	cancel()
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*tls.Conn)
	if !ok {
		return nil, fmt.Errorf("%T is not a TLS connection", raw)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	c, err := f.request(ctx, conn, agent, target)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.NetConn().Close()
		return nil, err
	}
	return c, nil
}

func (f *Forwarder) request(ctx context.Context, conn *tls.Conn, agent, target string) (net.Conn, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://principal/", http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgrade}, agentHeader: {agent}, targetHeader: {target}}
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
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		_ = response.Body.Close()
		return nil, &refusedError{cmp.Or(strings.TrimSpace(string(reason)), response.Status)}
	}
	f.local.SetSpokeNamespace(agent, response.Header.Get(namespaceHeader))
	return &tunnelConn{Conn: conn, buffered: in}, nil
}

// tunnelConn is a tunnel that another replica opened.
type tunnelConn struct {
	*tls.Conn
	buffered *bufio.Reader // may contain the first bytes
}

func (c *tunnelConn) Read(b []byte) (int, error) {
	if c.buffered.Buffered() > 0 {
		return c.buffered.Read(b)
	}
	return c.Conn.Read(b)
}

// NextProtos returns the handler of connections that negotiated Protocol, for http.Server.TLSNextProto.
func (f *Forwarder) NextProtos(ctx context.Context) map[string]func(*http.Server, *tls.Conn, http.Handler) {
	return map[string]func(*http.Server, *tls.Conn, http.Handler){Protocol: func(server *http.Server, conn *tls.Conn, _ http.Handler) {
		if server.ConnState != nil {
			server.ConnState(conn, http.StateHijacked) // so that it is not closed when idle
		}
		f.serve(ctx, conn)
	}}
}

const (
	maxRequestSize = 16 << 10
	requestTimeout = 10 * time.Second
)

// serve opens a tunnel for another replica and copies its bytes until it ends.
func (f *Forwarder) serve(ctx context.Context, conn *tls.Conn) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	in := bufio.NewReader(&io.LimitedReader{R: conn, N: maxRequestSize})
	request, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if request.Method == http.MethodGet && request.URL.Path == inSyncPath {
		f.serveInSync(conn)
		return
	}
	agent, target := request.Header.Get(agentHeader), request.Header.Get(targetHeader)
	if code, err := f.authorize(conn, request, agent, target); err != nil {
		f.counts.received[refused].Add(1)
		writeRefusal(conn, code, err)
		return
	}
	tunnel, err := f.openTraced(ctx, request, agent, target)
	if err != nil {
		f.counts.received[refused].Add(1)
		writeRefusal(conn, http.StatusServiceUnavailable, err)
		return
	}
	f.counts.received[opened].Add(1)
	stop := context.AfterFunc(ctx, func() { _ = tunnel.Close() })
	defer stop()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n", upgrade, namespaceHeader, f.local.SpokeNamespace(agent))
	splice(conn, in, tunnel) // finds write errors
}

func (f *Forwarder) authorize(conn *tls.Conn, r *http.Request, agent, target string) (code int, err error) {
	if code, err := f.authorizeReplica(conn); err != nil {
		return code, err
	}
	if r.Method != http.MethodPost || r.Header.Get("Upgrade") != upgrade {
		return http.StatusBadRequest, fmt.Errorf("%s is not a request of a principal replica", r.Method)
	}
	return f.local.Authorize(agent, target)
}

// openTraced opens a tunnel as part of the other replica's trace.
func (f *Forwarder) openTraced(ctx context.Context, r *http.Request, agent, target string) (net.Conn, error) {
	if header := r.Header.Get(trace.Header); f.tracer != nil && header != "" {
		_, span := f.tracer.Start(f.tracer.WithRemoteParent(ctx, header), trace.KindServer, "open a tunnel for another principal")
		defer span.End()
		span.SetString(trace.Agent, agent)
	}
	return f.local.OpenLocal(ctx, agent, target)
}

func writeRefusal(conn net.Conn, code int, reason error) {
	writeResponse(conn, code, reason.Error())
}
