package redis

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// realRedis is a Redis of its own for one test.
type realRedis struct {
	t       testing.TB
	dir     string
	args    []string
	process *exec.Cmd
	as      Credentials
}

// startRedis starts a Redis that listens on a socket, with a password if one is given.
func startRedis(t testing.TB, password string, args ...string) *realRedis {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if testing.Short() {
			t.Skip("needs redis-server")
		}
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	r := &realRedis{t: t, dir: dir, as: Credentials{Password: password}}
	r.args = append([]string{
		program, "--port", "0", "--unixsocket", r.address(), "--save", "", "--appendonly", "no", "--dir", dir,
	}, args...)
	if password != "" {
		r.args = append(r.args, "--requirepass", password)
	}
	r.start()
	t.Cleanup(func() {
		r.stop()
		_ = os.RemoveAll(dir)
	})
	return r
}

func (r *realRedis) address() string { return filepath.Join(r.dir, "s") }

func (r *realRedis) endpoint() Endpoint {
	return Endpoint{Address: r.address(), Credentials: Fixed(r.as.Username, r.as.Password)}
}

func (r *realRedis) start() {
	r.t.Helper()
	r.process = exec.CommandContext(context.Background(), r.args[0], r.args[1:]...)
	if err := r.process.Start(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "Redis answers", func() bool {
		endpoint := r.endpoint()
		conn, err := endpoint.connect(context.Background())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func (r *realRedis) stop() {
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
	_ = os.Remove(r.address())
}

// do sends one request to the Redis itself.
func (r *realRedis) do(args ...string) string {
	r.t.Helper()
	endpoint := r.endpoint()
	conn, err := endpoint.connect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	c := &testClient{t: r.t, conn: conn, in: newReader(conn, testLimits)}
	defer c.close()
	return c.do(args...)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("does not come true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

var testLimits = limits{bulk: 1 << 30, elements: 1 << 20, total: 1 << 30}

// testClient is a client that sees every byte.
type testClient struct {
	t    testing.TB
	conn net.Conn
	in   *reader
}

func (c *testClient) send(raw string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(raw)); err != nil {
		c.t.Fatal(err)
	}
}

// reply reads one reply, with line ends as spaces.
func (c *testClient) reply() string {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	b, err := c.in.next()
	if err != nil {
		c.t.Fatalf("read a reply: %v", err)
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", " "))
}

func (c *testClient) do(args ...string) string {
	c.t.Helper()
	c.send(string(appendCommand(nil, args...)))
	return c.reply()
}

func (c *testClient) expect(want string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); got != want {
		c.t.Fatalf("%s: got %q, want %q", strings.Join(args, " "), abbreviate(got), want)
	}
}

func abbreviate(s string) string { return s[:min(len(s), 300)] }

// ends reads until the connection ends and returns what came before.
func (c *testClient) ends() string {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var rest bytes.Buffer
	_, _ = rest.Write(c.in.buf.unread())
	if _, err := rest.ReadFrom(c.conn); os.IsTimeout(err) {
		c.t.Fatal("the connection stays open")
	}
	return rest.String()
}

func (c *testClient) close() { _ = c.conn.Close() }

// fleet is a hub with agents, for a Server: Resolver and Dialer, with faults.
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
	mute  atomic.Bool // takes requests and does not answer
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
	if a == nil || a.gone {
		missing := &NotConnectedError{Agent: agent}
		if a != nil {
			missing.Since = a.away
		}
		return nil, missing
	}
	a.dials++
	hub, spoke := tunnel(f.t)
	a.conns[hub] = true
	f.tasks.Go(func() { _ = a.relay.Serve(f.ctx, spoke) })
	return &mutable{Conn: hub, agent: a}, nil
}

// mutable is a connection on which nothing arrives while its agent is mute.
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

// tunnel is a pair of sockets: buffered, as tunnels are.
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

// leaves cuts an agent off.
func (f *fleet) leaves(agent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.agents[agent]
	a.gone, a.away = true, time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	for conn := range a.conns {
		_ = conn.Close()
	}
	a.conns = map[net.Conn]bool{}
}

func (f *fleet) returns(agent string) {
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

// newWorld: Application shop/cart is w1's, in the agent's Argo CD namespace; other/far is w2's, in a namespace of its own.
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
	cfg := Config{Hub: Endpoint{Address: w.hub.address()}, Agents: w, Tunnels: w}
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

// client connects to the Server without a word.
func (w *world) client() *testClient {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	c := &testClient{t: w.t, conn: conn, in: newReader(conn, testLimits)}
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

// user3 is a user that speaks RESP3.
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
