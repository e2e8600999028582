package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fleet implements Resolver and Dialer for a Server, with faults.
type fleet struct {
	t     testing.TB
	ctx   context.Context
	tasks sync.WaitGroup

	mu      sync.Mutex
	targets map[string]Target // by "namespace/name"
	agents  map[string]*fakeAgent
}

// fakeAgent is an agent whose tunnels are pipes to a real Relay.
type fakeAgent struct {
	relay *Relay
	away  time.Time
	gone  bool
	mute  atomic.Bool // accepts requests and does not reply
	conns map[net.Conn]bool
	dials int
}

func (f *fleet) Resolve(namespace, name string) (Target, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	target, ok := f.targets[namespace+"/"+name]
	return target, ok
}

func (f *fleet) Dial(_ context.Context, agent string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.agents[agent]
	if a.gone {
		return nil, fmt.Errorf("agent %s is not connected since %s", agent, a.away.Format(time.RFC3339))
	}
	a.dials++
	hub, spoke := tunnel(f.t)
	a.conns[hub] = true
	f.tasks.Go(func() { _ = a.relay.Serve(f.ctx, spoke) })
	return &mutable{Conn: hub, agent: a}, nil
}

// mutable is a connection that drops all replies while its agent is mute.
type mutable struct {
	net.Conn
	agent *fakeAgent
}

func (m *mutable) Read(b []byte) (int, error) {
	for {
		n, err := m.Conn.Read(b)
		if err != nil || !m.agent.mute.Load() {
			return n, err
		}
	}
}

// tunnel returns a pair of sockets. They are buffered, as tunnels are.
func tunnel(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return net.Pipe()
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Error(err)
		return net.Pipe()
	}
	b, err := l.Accept()
	if err != nil {
		t.Error(err)
	}
	return a, b
}

// disconnect closes all connections of an agent.
func (f *fleet) disconnect(agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.agents[agent]
	a.gone, a.away = true, time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for conn := range a.conns {
		_ = conn.Close()
	}
	a.conns = map[net.Conn]bool{}
}

func (f *fleet) reconnect(agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents[agent].gone = false
}

// world is a Server with a hub's Redis, and agents w1 and w2 with theirs.
type world struct {
	*fleet
	hub     *realRedis
	spokes  map[string]*realRedis
	server  *Server
	address string
}

const (
	hubPassword   = "hub's own"
	spokePassword = "spoke's own"
)

// newWorld starts a Server. Application shop/cart belongs to w1, in the agent's Argo CD namespace. Application other/far
// belongs to w2, in another namespace.
func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{hub: startRedis(t, hubPassword), spokes: map[string]*realRedis{}}
	w.fleet = &fleet{t: t, ctx: ctx, agents: map[string]*fakeAgent{}, targets: map[string]Target{
		"shop/cart": {Agent: "w1", Local: "cart"},
		"shop/till": {Agent: "w1", Local: "till", Rewrite: true},
		"other/far": {Agent: "w2", Local: "other_far"},
		"/local":    {Agent: "w2", Local: "argocd_local"},
	}}
	for _, name := range []string{"w1", "w2"} {
		spoke := startRedis(t, spokePassword)
		w.spokes[name] = spoke
		w.agents[name] = &fakeAgent{relay: &Relay{Redis: spoke.endpoint()}, conns: map[net.Conn]bool{}}
	}
	cfg := Config{Hub: Endpoint{Address: w.hub.address()}, Agents: w, Dial: w.Dial}
	if change != nil {
		change(&cfg)
	}
	w.server = New(cfg)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- w.server.Run(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.tasks.Wait()
	})
	return w
}

// withTrees gives every Application a tree.
func (w *world) withTrees() *world {
	for _, spoke := range w.spokes {
		for _, app := range []string{"cart", "till", "other_far"} {
			spoke.do("SET", treeKey(app), `{"nodes":null}`)
		}
	}
	return w
}

// client connects to the Server and sends nothing.
func (w *world) client() *testClient {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &testClient{t: w.t, conn: conn, in: newReplyReader(conn, testLimits)}
	w.t.Cleanup(c.close)
	return c
}

// user connects and authenticates.
func (w *world) user() *testClient {
	w.t.Helper()
	c := w.client()
	c.expect("+OK", "AUTH", hubPassword)
	return c
}

// user3 connects and authenticates with RESP3.
func (w *world) user3() *testClient {
	w.t.Helper()
	c := w.client()
	if got := c.do("HELLO", "3", "AUTH", "default", hubPassword); !strings.HasPrefix(got, "%") {
		w.t.Fatalf("HELLO: %s", got)
	}
	return c
}

func treeKey(app string) string    { return "app|resources-tree|" + app + "|1.8.3" }
func channelKey(app string) string { return "app|managed-resources|" + app + "|1.8.3" }
func bulkReply(s string) string    { return fmt.Sprintf("$%d %s", len(s), s) }
