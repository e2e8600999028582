package redis

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestClientConn_StatefulCommandInPipeline(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	c := w.user()
	tree := treeKey("shop_cart")
	var send []byte
	var want []string
	add := func(reply string, args ...string) {
		send = appendCommand(send, args...)
		want = append(want, reply)
	}
	for range 3 {
		add("+OK", "SET", "k", "v")
		add("$1 v", "GET", "k")
		add("$4 tree", "GET", tree)
		add("$1 v", "GET", "k")
		add("*2 $1 v $-1", "MGET", "k", "none")
		add("+OK", "MULTI")
		add("+QUEUED", "GET", "k")
		add("*1 $1 v", "EXEC")
		add("$1 v", "GET", "k")
		add("-ERR this key belongs to agent w1, only GET is allowed", "SET", tree, "x")
		send = append(send, "*0\r\n"...) // without a reply
		add("+PONG", "PING")
	}
	for _, size := range []int{len(send), 1, 7, 100} {
		for piece := range pieces(send, func() int { return size }) {
			c.send(string(piece))
		}
		for i := range want {
			if got := c.reply(); got != want[i] {
				t.Fatalf("in pieces of %d, answer %d is %q, not %q", size, i, got, want[i])
			}
		}
	}
}

func pieces(b []byte, size func() int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size(), len(b))
			if !yield(b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

func TestClientConn_SlowAgentKeepsReplyOrder(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Timeout = 200 * time.Millisecond })
	c := w.user()
	w.agents["w1"].mute.Store(true)
	send := appendCommand(nil, "SET", "k", "before")
	send = appendCommand(send, "GET", treeKey("shop_cart"))
	send = appendCommand(send, "GET", "k")
	c.send(string(send))
	if got := c.reply(); got != "+OK" {
		t.Error(got)
	}
	if got := c.reply(); !strings.HasPrefix(got, "-ERR ") {
		t.Error(got)
	}
	if got := c.reply(); got != "$6 before" {
		t.Error(got)
	}
}

func TestClientConn_EndOfConnection(t *testing.T) {
	w := newWorld(t, nil)
	c := w.user()
	c.send("*1\r\n$4\r\nPING\r\n")
	if err := c.conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := c.ends(); got != "+PONG\r\n" {
		t.Errorf("a client that half-closes its connection receives %q", got)
	}
	c = w.user()
	c.close()
	eventually(t, "the client is disconnected", func() bool { return w.server.Stats().Clients == 0 })
	c = w.user()
	c.send("*1\r\n$4\r\nPING\r\n*1\r\n$-5\r\n")
	if got := c.ends(); got != "+PONG\r\n-ERR Protocol error: invalid bulk length\r\n" {
		t.Errorf("a client with an invalid request receives %q", got)
	}
}

func TestClientConn_IdleClientDisconnected(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.IdleTimeout = 2 * time.Second })
	c, busy := w.user(), w.user()
	ended := make(chan string)
	go func() { ended <- c.ends() }()
	for {
		busy.expect("+PONG", "PING")
		select {
		case <-ended:
			busy.expect("+PONG", "PING")
			return
		default:
		}
	}
}

// If a client does not read its replies, the proxy stops reading its requests. Other clients are not delayed.
func TestClientConn_UnreadRepliesBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.WriteTimeout = time.Minute })
	value := strings.Repeat("x", 10_000)
	w.hub.do("SET", "k", value)
	greedy, other := w.user(), w.user()
	const count = 3000
	request := appendCommand(nil, "GET", "k")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range count {
			_, _ = greedy.conn.Write(request)
		}
	}()
	for range 200 {
		other.expect("+PONG", "PING")
	}
	for i := range count {
		if got := greedy.reply(); got != bulkReply(value) {
			t.Fatalf("answer %d is %s", i, abbreviate(got))
		}
	}
	<-sent
}

// faultyRedis starts a server that answers every request with the result of reply. It closes the connection after an
// incomplete reply.
func faultyRedis(t testing.TB, reply func(args []string) string) Endpoint {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		tasks.Wait()
	})
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer conn.Close()
				for requests := newCommandReader(conn, testLimits); ; {
					c, err := requests.next()
					if err != nil {
						return
					}
					var args []string
					for _, arg := range c {
						args = append(args, string(arg))
					}
					answer := reply(args)
					if _, err := io.WriteString(conn, answer); err != nil || !strings.HasSuffix(answer, "\r\n") {
						return
					}
				}
			})
		}
	})
	return Endpoint{Address: listener.Addr().String()}
}

func TestClientConn_RedisFailsDuringReply(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	w := newWorld(t, func(c *Config) {
		c.Hub = faultyRedis(t, func(args []string) string {
			switch args[len(args)-1] {
			case "dies":
				return "$2000000\r\n" + large
			case "nonsense":
				return "?\r\n"
			case "large":
				return fmt.Sprintf("$%d\r\n%s\r\n", len(large), large)
			case probeKey:
				return "$-1\r\n"
			}
			return "+OK\r\n"
		})
	})
	for _, fault := range []string{"dies", "nonsense"} {
		c, idle := w.client(), w.client()
		for range 3 {
			c.expect("+OK", "PING")
			idle.expect("+OK", "PING")
		}
		c.expect(bulkReply(large), "GET", "large")
		c.send(string(appendCommand(appendCommand(nil, "PING"), "GET", fault)))
		if got := c.ends(); got != "+OK\r\n" {
			t.Errorf("%s: received %q before the end", fault, abbreviate(got))
		}
		idle.expect("+OK", "PING") // it had no pending request
		idle.close()
		eventually(t, "the clients are disconnected", func() bool { return w.server.Stats().Clients == 0 })
	}
}
