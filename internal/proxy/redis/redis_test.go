package redis

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/redistest"
)

// realRedis is a Redis server for one test.
type realRedis struct {
	*redistest.Redis
	t  testing.TB
	as Credentials
}

// startRedis starts a Redis that listens on a socket, with a password if one is given.
func startRedis(t testing.TB, password string, args ...string) *realRedis {
	t.Helper()
	return &realRedis{redistest.Start(t, password, args...), t, Credentials{Password: password}}
}

func (r *realRedis) address() string { return r.Address }

func (r *realRedis) endpoint() Endpoint {
	return Endpoint{Address: r.address(), Credentials: Fixed(r.as.Username, r.as.Password)}
}

// do sends one request to the Redis server.
func (r *realRedis) do(args ...string) string {
	r.t.Helper()
	endpoint := r.endpoint()
	conn, err := endpoint.connect(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	c := &testClient{t: r.t, conn: conn, in: newReplyReader(conn, testLimits)}
	defer c.close()
	return c.do(args...)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

var testLimits = limits{bulk: 1 << 30, elements: 1 << 20, total: 1 << 30}

// testClient is a client that receives raw replies.
type testClient struct {
	t    testing.TB
	conn net.Conn
	in   *replyReader
}

func (c *testClient) send(raw string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(raw)); err != nil {
		c.t.Fatal(err)
	}
}

// reply reads one reply and replaces line ends by spaces.
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

// ends reads until the connection ends, and returns the bytes.
func (c *testClient) ends() string {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(c.in.r); os.IsTimeout(err) {
		c.t.Fatal("the connection stays open")
	}
	return rest.String()
}

func (c *testClient) close() { _ = c.conn.Close() }
