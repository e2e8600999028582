package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/forward"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// pair is two principal replicas of one hub. Agent a is connected to replica "there", agent b to replica "here".
type pair struct {
	here, there *Live
	registry    *fleet.Registry
	replicas    *fleet.Replicas // of here
	tunnels     chan net.Conn   // far ends of the tunnels that were opened there
	address     string          // of there
	own         *identity.Store // certificate of the replicas
	certs       func(name string) *identity.Store
}

func newPair(t *testing.T, hereTracer, thereTracer *trace.Tracer) *pair {
	t.Helper()
	hub := newCA(t)
	q := &pair{tunnels: make(chan net.Conn, 10)}
	q.certs = func(name string) *identity.Store {
		issued, err := hub.Client(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		s := identity.NewStore(name)
		if err := s.Update(issued.Cert, issued.Key, issued.Bundle); err != nil {
			t.Fatal(err)
		}
		return s
	}
	connectedTo := func(replica string) func(*v1alpha1.Agent) {
		return func(a *v1alpha1.Agent) { a.Status.Connected, a.Status.Principal = true, replica }
	}
	q.registry = fleettest.NewRegistry(t, fleettest.Agent("a", 1, connectedTo("there")), fleettest.Agent("b", 2, connectedTo("here")))
	q.own = q.certs("resource-proxy")
	newReplica := func(self string, tracer *trace.Tracer, listener net.Listener, open func(ctx context.Context, agent, target string) (net.Conn, error)) (*Live, *fleet.Replicas) {
		replicas := fleet.NewReplicas(nil, q.registry, "argocd", self, "", slog.New(slog.DiscardHandler))
		settings := Settings{ReplicaAuth: q.auth(q.own), ResourceTLS: identity.ServerTLS(q.own, nil), Resource: listener, Access: &Access{subject: []byte("none")}}
		settings.ResourceTLS.NextProtos = []string{"h2", "http/1.1"}
		settings.ReplicaAuth.Accept(settings.ResourceTLS)
		return New(Config{Settings: settings, Namespace: "argocd", Registry: q.registry, Replicas: replicas, OpenTunnel: open, Log: slog.New(slog.DiscardHandler), Trace: tracer,
			Watch: func(kube.Watch, kube.Sink) *kube.Watcher { return nil }, DialSharedRedis: func(string) (net.Conn, bool) { return nil, false }}), replicas
	}
	q.here, q.replicas = newReplica("here", hereTracer, nil, func(_ context.Context, agent, _ string) (net.Conn, error) {
		return nil, &tunnel.NotConnectedError{Agent: agent}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q.address = listener.Addr().String()
	q.there, _ = newReplica("there", thereTracer, listener, func(_ context.Context, agent, _ string) (net.Conn, error) {
		if agent != "a" {
			return nil, &tunnel.NotConnectedError{Agent: agent}
		}
		near, far := tcpPair(t)
		q.tunnels <- far
		return near, nil
	})
	q.there.states["a"] = connectionState{connected: true, spokeArgo: "argo"}
	q.serve(t)
	q.renewLease(t, 1, q.address)
	return q
}

func (q *pair) auth(store *identity.Store) *identity.ReplicaAuth {
	return &identity.ReplicaAuth{Source: store, Protocol: forward.Protocol}
}

// serve runs the resource proxy of there.
func (q *pair) serve(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.there.serveResources(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// renewLease lets here read a Lease of there.
func (q *pair) renewLease(t *testing.T, revision int, address string) {
	t.Helper()
	lease := fleettest.Object(t, map[string]any{"metadata": map[string]any{"name": "l", "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
		"annotations": map[string]string{kind.Prefix + "replica-name": "there", kind.Prefix + "replica-address": address}}})
	if err := q.replicas.Apply(t.Context(), reconcile.List{Resource: kube.Leases, Objects: []*kind.Object{lease}}); err != nil {
		t.Fatal(err)
	}
}

// request requests a tunnel from there for any agent, with a certificate.
func (q *pair) request(t *testing.T, store *identity.Store, agent, target string) error {
	t.Helper()
	conn, err := forward.New(q.auth(store), directory(q.address), q.here, nil).Open(t.Context(), agent, target, nil)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// directory says that one address holds all sessions.
type directory string

func (directory) Holder(string) string    { return "there" }
func (d directory) Address(string) string { return string(d) }

// tcpPair returns a connection of which each direction can be closed.
func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = near.Close()
		_ = far.Close()
	})
	return near, far
}

func TestForward_OpensTunnelThroughSessionHolder(t *testing.T) {
	q := newPair(t, nil, nil)
	conn, err := q.here.open(t.Context(), "a", targetAPI)
	if err != nil {
		t.Fatal(err)
	}
	far := <-q.tunnels
	for _, way := range [][2]net.Conn{{conn, far}, {far, conn}} {
		if _, err := io.WriteString(way[0], "hello"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(way[1], got); err != nil || string(got) != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(far); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if _, err := io.WriteString(far, "still"); err != nil { // the other direction still works
		t.Fatal(err)
	}
	_ = far.Close()
	if rest, err := io.ReadAll(conn); err != nil || string(rest) != "still" {
		t.Errorf("%q, %v", rest, err)
	}
	q.counts(t, "opened 1, refused 0, unreachable 0", "opened 1, refused 0")
	if got := q.here.states["a"].spokeArgo; got != "argo" {
		t.Errorf("Argo CD of the agent's cluster has namespace %q", got)
	}
}

func TestForward_ClientCloseEndsTunnel(t *testing.T) {
	q := newPair(t, nil, nil)
	conn, err := q.here.open(t.Context(), "a", targetAPI)
	if err != nil {
		t.Fatal(err)
	}
	far := <-q.tunnels
	_ = conn.Close()
	if rest, err := io.ReadAll(far); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	for err == nil { // until the far end notices that nothing reads
		_, err = far.Write(make([]byte, 1<<10))
	}
}

func TestForward_ReportsFailureReason(t *testing.T) {
	q := newPair(t, nil, nil)
	refused := func(agent, target, want string) {
		t.Helper()
		_, err := q.here.open(t.Context(), agent, target)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s of %s: %v", target, agent, err)
		}
	}
	refused("b", targetAPI, "agent b is not connected") // to no replica
	refused("c", targetAPI, "agent c is not connected")
	refused("a", "shell", "unknown tunnel target")
	if err := q.request(t, q.own, "b", targetAPI); err == nil || !strings.Contains(err.Error(), "agent b is not connected") {
		t.Errorf("disconnected agent: %v", err) // and the request was not forwarded again
	}
	if err := q.request(t, q.own, "c", targetAPI); err == nil || !strings.Contains(err.Error(), `no agent "c" is registered`) {
		t.Errorf("unregistered agent: %v", err)
	}

	q.renewLease(t, 2, "")
	refused("a", targetAPI, "set --replica-address")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	q.renewLease(t, 3, gone.Addr().String())
	refused("a", targetAPI, "agent a is connected to principal there, which did not open a tunnel: dial tcp")
	if _, err := q.here.dialAPI(t.Context(), "a"); err == nil || !strings.HasPrefix(err.Error(), "agent a is connected to principal there") {
		t.Errorf("error %v", err)
	}
	// Requests of the test itself are not counted here.
	q.counts(t, "opened 0, refused 1, unreachable 2", "opened 0, refused 3")
	q.here.forwarder = forward.New(nil, q.replicas, q.here, nil)
	refused("a", targetAPI, "has no resource proxy")
}

// counts checks the metrics of both replicas.
func (q *pair) counts(t *testing.T, here, there string) {
	t.Helper()
	text := func(of observe.Metric) string {
		var all []string
		for _, s := range of.Samples {
			all = append(all, fmt.Sprintf("%s %v", s.Labels[1], s.Value))
		}
		return strings.Join(all, ", ")
	}
	mine, theirs := q.here.forwarder.Metrics(), q.there.forwarder.Metrics()
	if got := text(mine[0]); got != here {
		t.Errorf("sent: %s; want %s", got, here)
	}
	if got := text(theirs[2]); got != there {
		t.Errorf("received: %s; want %s", got, there)
	}
	for i, s := range mine[1].Samples {
		if (s.Value > 0) != (mine[0].Samples[i].Value > 0) {
			t.Errorf("%v took %v s", s.Labels, s.Value)
		}
	}
}

func TestForward_OnlyForPrincipalReplicas(t *testing.T) {
	q := newPair(t, nil, nil)
	for _, name := range []string{"a", "argocd-server", "resource-proxy"} { // of the same CA
		if err := q.request(t, q.certs(name), "a", targetAPI); !errors.Is(err, identity.ErrNotReplica) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another client reaches the resource proxy, even with the headers of a replica.
	config, err := identity.ClientTLS(q.certs("stranger"), "localhost")
	if err != nil {
		t.Fatal(err)
	}
	config.InsecureSkipVerify = true
	for _, http2 := range []bool{true, false} {
		transport := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: http2}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+q.address+"/tunnel", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"Argocd-Agent-Name": {"a"}, "Argocd-Agent-Target": {targetAPI}}
		if !http2 {
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", "argocd-agent-tunnel")
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		if (response.ProtoMajor == 2) != http2 || response.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "is registered") {
			t.Errorf("%s %s: %s", response.Proto, response.Status, body)
		}
	}
	if len(q.tunnels) > 0 {
		t.Error("a tunnel was opened")
	}
}

func TestForward_RefusesCertificateSharedWithArgoCD(t *testing.T) {
	q := newPair(t, nil, nil)
	m, err := q.own.Material()
	if err != nil {
		t.Fatal(err)
	}
	q.there.cfg.Access.subject = m.Certificate.Leaf.RawSubject
	if err := q.request(t, q.own, "a", targetAPI); err == nil || !strings.Contains(err.Error(), "give argocd-server its own certificate") {
		t.Errorf("%v", err)
	}
}
