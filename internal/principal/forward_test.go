package principal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// pair are two principals of one hub. Agent a is connected with the one that is called there, b with the other.
type pair struct {
	here, there *live
	tunnels     chan net.Conn // far ends of those that were opened there
	address     string        // of there
	certs       func(name string) *identity.Store
}

func newPair(t *testing.T) *pair {
	t.Helper()
	hub := newCA(t)
	q := &pair{tunnels: make(chan net.Conn, 10)}
	q.certs = func(name string) *identity.Store {
		made, err := hub.Client(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		s := identity.NewStore(name)
		if err := s.Update(made.Cert, made.Key, made.Bundle); err != nil {
			t.Fatal(err)
		}
		return s
	}
	d := newDesk(t)
	with := func(replica string) func(*v1alpha1.Agent) {
		return func(a *v1alpha1.Agent) { a.Status.Connected, a.Status.Principal = true, replica }
	}
	d.see(agent("a", 1, "managed", with("there")))
	d.see(agent("b", 2, "managed", with("here")))
	own := q.certs("resource-proxy")
	principalOf := func(self string) *live {
		p := &principal{registry: d.registry, replicas: newReplicas(nil, "argocd", self, "", alone, slog.New(slog.DiscardHandler))}
		p.cfg.Live.Replicas = &identity.ReplicaAuth{Source: own, Protocol: ForwardProtocol}
		p.cfg.Live.ResourceTLS = identity.ServerTLS(own, nil)
		p.cfg.Live.ResourceTLS.NextProtos = []string{"h2", "http/1.1"}
		p.cfg.Live.Replicas.Accept(p.cfg.Live.ResourceTLS)
		return &live{p: p, states: map[string]connectionState{}, sessionHolder: map[string]string{}}
	}
	q.here, q.there = principalOf("here"), principalOf("there")
	q.here.openLocal = func(_ context.Context, agent, _ string) (net.Conn, error) {
		return nil, &tunnel.NotConnectedError{Agent: agent}
	}
	q.there.openLocal = func(_ context.Context, agent, _ string) (net.Conn, error) {
		if agent != "a" {
			return nil, &tunnel.NotConnectedError{Agent: agent}
		}
		near, far := tcpPair(t)
		q.tunnels <- far
		return near, nil
	}
	q.there.states["a"] = connectionState{connected: true, spokeArgo: "argo"}
	q.serve(t)
	q.say(t, 1, q.address)
	return q
}

// serve has there listen.
func (q *pair) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	q.address = listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	q.there.hub = resource.NewHub(resource.HubConfig{Caller: func(*tls.ConnectionState) (string, error) { return "", errors.New("nobody is let in") }})
	q.there.p.cfg.Live.Resource = listener
	ended := make(chan error, 1)
	go func() { ended <- q.there.serveResources(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// say has here read the Lease of there.
func (q *pair) say(t *testing.T, revision int, address string) {
	t.Helper()
	lease := parsed(t, map[string]any{"metadata": map[string]any{"name": "l", "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
		"annotations": map[string]string{replicaAnnotation: "there", addressAnnotation: address}}})
	if err := q.here.p.replicas.apply(t.Context(), reconcile.List{Resource: kube.Leases, Objects: []*kind.Object{lease}}); err != nil {
		t.Fatal(err)
	}
}

// tcpPair is a connection, of which each direction can be closed.
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

func TestARequestTakesOneHopToWhoHasTheAgent(t *testing.T) {
	q := newPair(t)
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
	if !closeWrite(conn) { // one direction ends
		t.Fatal("one direction cannot be ended")
	}
	if rest, err := io.ReadAll(far); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if _, err := io.WriteString(far, "still"); err != nil { // and the other goes on
		t.Fatal(err)
	}
	_ = far.Close()
	if rest, err := io.ReadAll(conn); err != nil || string(rest) != "still" {
		t.Errorf("%q, %v", rest, err)
	}
	q.counts(t, "opened 1, refused 0, unreachable 0", "opened 1, refused 0")
	if got := q.here.states["a"].spokeArgo; got != "argo" {
		t.Errorf("Argo CD of the agent's cluster is said to be in %q", got)
	}
}

func TestWhoLeavesEndsTheTunnelOfTheOtherPrincipal(t *testing.T) {
	q := newPair(t)
	conn, err := q.here.open(t.Context(), "a", targetAPI)
	if err != nil {
		t.Fatal(err)
	}
	far := <-q.tunnels
	_ = conn.Close() // nothing is on its way in either direction
	if rest, err := io.ReadAll(far); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	for err == nil { // the far end learns that nobody reads either
		_, err = far.Write(make([]byte, 1<<10))
	}
}

func TestAHopThatCanNotBeTakenSaysWhy(t *testing.T) {
	q := newPair(t)
	refused := func(agent, target, want string) {
		t.Helper()
		_, err := q.here.open(t.Context(), agent, target)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s of %s: %v", target, agent, err)
		}
	}
	refused("b", targetAPI, "agent b is not connected") // with nobody else either
	refused("c", targetAPI, "agent c is not connected")
	refused("a", "shell", "nothing that principals ask")
	if _, err := q.here.dialReplica(t.Context(), q.address, "b", targetAPI); err == nil || !strings.Contains(err.Error(), "agent b is not connected") {
		t.Errorf("an agent that is not there: %v", err) // and it did not go on
	}
	if _, err := q.here.dialReplica(t.Context(), q.address, "c", targetAPI); err == nil || !strings.Contains(err.Error(), `no agent "c" is registered`) {
		t.Errorf("an agent that is not registered: %v", err)
	}

	q.say(t, 2, "")
	refused("a", targetAPI, "see --replica-address")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	q.say(t, 3, gone.Addr().String())
	refused("a", targetAPI, "agent a is connected with principal there, which cannot be asked: dial tcp")
	if _, err := q.here.dialAPI(t.Context(), "a"); err == nil || !strings.HasPrefix(err.Error(), "agent a is connected with principal there") {
		t.Errorf("whoever asks is told %v", err)
	}
	// Counted is who was asked on a request's way; the three before the address was gone were refused there.
	q.counts(t, "opened 0, refused 1, unreachable 2", "opened 0, refused 3")
	q.here.p.cfg.Live.Replicas = nil
	refused("a", targetAPI, "has no resource proxy")
}

// counts checks what the metrics of both say.
func (q *pair) counts(t *testing.T, here, there string) {
	t.Helper()
	said := func(of observe.Metric) string {
		var all []string
		for _, s := range of.Samples {
			all = append(all, fmt.Sprintf("%s %v", s.Labels[1], s.Value))
		}
		return strings.Join(all, ", ")
	}
	mine, theirs := q.here.forwards.metrics(), q.there.forwards.metrics()
	if got := said(mine[0]); got != here {
		t.Errorf("asked: %s; want %s", got, here)
	}
	if got := said(theirs[2]); got != there {
		t.Errorf("answered: %s; want %s", got, there)
	}
	for i, s := range mine[1].Samples {
		if (s.Value > 0) != (mine[0].Samples[i].Value > 0) {
			t.Errorf("%v took %v s", s.Labels, s.Value)
		}
	}
}

func TestNobodyButAPrincipalGetsATunnel(t *testing.T) {
	q := newPair(t)
	for _, name := range []string{"a", "argocd-server", "resource-proxy"} { // of the same CA
		q.here.p.cfg.Live.Replicas = &identity.ReplicaAuth{Source: q.certs(name), Protocol: ForwardProtocol}
		if _, err := q.here.dialReplica(t.Context(), q.address, "a", targetAPI); !errors.Is(err, identity.ErrNotReplica) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Whoever is no principal asks the resource proxy, whatever the headers say.
	config, err := identity.ClientTLS(q.certs("a"), "localhost")
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
		request.Header = http.Header{agentHeader: {"a"}, targetHeader: {targetAPI}}
		if !http2 {
			request.Header.Set("Connection", "Upgrade")
			request.Header.Set("Upgrade", forwardUpgrade)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		if (response.ProtoMajor == 2) != http2 || response.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "nobody is let in") {
			t.Errorf("%s %s: %s", response.Proto, response.Status, text)
		}
	}
	if len(q.tunnels) > 0 {
		t.Error("a tunnel was opened")
	}
}

func TestACertificateThatArgoCDHasTooIsNoPrincipals(t *testing.T) {
	q := newPair(t)
	m, err := q.there.p.cfg.Live.Replicas.Source.Material()
	if err != nil {
		t.Fatal(err)
	}
	q.there.p.cfg.Live.Access = &Access{subject: m.Certificate.Leaf.RawSubject}
	if _, err := q.here.dialReplica(t.Context(), q.address, "a", targetAPI); err == nil || !strings.Contains(err.Error(), "give it one of its own") {
		t.Errorf("%v", err)
	}
}
