package redis

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLimits_MalformedRequests(t *testing.T) {
	w := newWorld(t, nil)
	for _, bytes := range []string{
		"*1\r\n$-1\r\n", "*1\r\n+PING\r\n", "*1\r\n$4\r\nPINGxx", "*x\r\n", "*99999999999999999999\r\n", "*2000000\r\n",
		"*1\r\n$600000000\r\n", "*2\r\n$3\r\nGET\r\n$99999999999\r\n", "\"PING\"\r\n", strings.Repeat("x", 70_000),
		"*1\r\n$\r\n", "*\r\n",
	} {
		for _, c := range []*testClient{w.client(), w.user()} {
			_, _ = c.conn.Write([]byte(bytes)) // it may be refused half way
			if got := c.ends(); !strings.HasPrefix(got, "-ERR Protocol error") {
				t.Errorf("%q: %q", abbreviate(bytes), got)
			}
		}
	}
	c := w.client()
	c.send("*1\r\n$20000\r\n") // before authentication requests are small
	if got := c.ends(); !strings.HasPrefix(got, "-ERR Protocol error") {
		t.Error(got)
	}
	w.user().expect("+PONG", "PING")
}

func TestLimits_DeclaredLengthAllocatesNothing(t *testing.T) {
	w := newWorld(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		w.user().send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nonly this")
	}
	w.user().expect("+PONG", "PING")
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 50<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

func TestLimits_SilentClientDisconnectedSubscriberNot(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.FirstRequest, c.IdleTimeout = 50*time.Millisecond, 100*time.Millisecond }).withTrees()
	listener := w.user3()
	cart := channelKey("shop_cart")
	listener.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	listener.receives(pushed("message", cart, ""))
	w.client().ends()
	w.user().ends()
	w.client().ends()
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	listener.receives(pushed("message", cart, ""))
}

func TestLimits_MaxClients(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxClients = 3 })
	first := w.user()
	w.user()
	third := w.user()
	if got := w.client().ends(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("got %q", got)
	}
	first.expect("+PONG", "PING")
	third.close()
	eventually(t, "a client has left", func() bool { return w.server.Stats().Clients == 2 })
	w.user().expect("+PONG", "PING")
}

func TestLimits_SlowClientDelaysNoOtherClient(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.WriteTimeout = time.Minute })
	w.hub.do("SET", "big", strings.Repeat("x", 1<<17))
	greedy := w.user()
	request := string(appendCommand(nil, "GET", "big"))
	go func() { // more than all buffers between hold; it stops when the connection is closed
		_, _ = greedy.conn.Write([]byte(strings.Repeat(request, 100_000)))
	}()
	c := w.user()
	for range 100 {
		c.expect("+PONG", "PING")
	}
	for range 200 {
		if got := greedy.reply(); len(got) < 1<<17 {
			t.Fatal(abbreviate(got))
		}
	}
	greedy.close()
}

func TestLimits_PipelineBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxPipeline = 8 })
	c := w.user()
	const count = 5000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.conn.Write([]byte(strings.Repeat("*1\r\n$4\r\nPING\r\n", 2*count)))
	}()
	for range 2 * count {
		if got := c.reply(); got != "+PONG" {
			t.Fatal(got)
		}
	}
	<-sent
}

func TestLimits_ManyIdleClients(t *testing.T) {
	var descriptors syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &descriptors); err != nil {
		t.Fatal(err)
	}
	count := min(4_000, int(descriptors.Cur-500)/3)                        // client, proxy and upstream side are in this process
	w := newWorld(t, func(c *Config) { c.FirstRequest = 5 * time.Minute }) // for a slow machine
	var all, arriving []*testClient
	for i := range count {
		c := w.client()
		c.send(string(appendCommand(nil, "AUTH", hubPassword)) + string(appendCommand(nil, "PING")))
		all = append(all, c)
		if arriving = append(arriving, c); len(arriving) < 100 && i < count-1 {
			continue
		}
		for _, c := range arriving {
			if got := c.reply() + c.reply(); got != "+OK+PONG" {
				t.Fatal(got)
			}
		}
		arriving = nil
	}
	eventually(t, "all clients are connected", func() bool { return w.server.Stats().Clients == int64(count) })
	began := time.Now()
	w.user().expect("+PONG", "PING")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("one more client took %v", took)
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("%d clients: heap %d MiB, stacks %d MiB, including the test's clients", count, memory.HeapInuse>>20, memory.StackInuse>>20)
	if most := uint64(count) * 100 << 10; memory.HeapInuse+memory.StackInuse > most {
		t.Errorf("%d clients use more than %d bytes", count, most)
	}
	for _, c := range all {
		c.close()
	}
	eventually(t, "their connections to Redis are closed", func() bool {
		return strings.Contains(w.hub.do("INFO", "clients"), "connected_clients:2 ")
	})
}

// Replies of agents wait behind an earlier reply of the hub's Redis that exceeds all buffers.
func TestLimits_AgentRepliesAfterLargeReply(t *testing.T) {
	w := newWorld(t, nil)
	large, tree := strings.Repeat("x", 4<<20), strings.Repeat("t", 64<<10)
	w.hub.do("SET", "large", large)
	w.spokes["w1"].do("SET", treeKey("cart"), tree)
	c := w.user()
	eventually(t, "the tree is cached", func() bool {
		c.expect(bulkReply(tree), "GET", treeKey("shop_cart"))
		return w.server.Stats().Hits > 0
	})
	for range 20 {
		c.send(string(appendCommand(appendCommand(appendCommand(nil, "GET", "large"), "GET", treeKey("shop_cart")), "GET", treeKey("shop_cart"))))
		for _, want := range []string{large, tree, tree} {
			if got := c.reply(); got != bulkReply(want) {
				t.Fatal(abbreviate(got))
			}
		}
	}
}

func TestReplyForwarder_Overdue(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		f    *replyForwarder
		want bool
	}{
		"no request":     {&replyForwarder{owedSince: now.Add(-time.Hour)}, false},
		"recent request": {&replyForwarder{owed: 1, owedSince: now.Add(-time.Second)}, false},
		"old request":    {&replyForwarder{owed: 1, owedSince: now.Add(-time.Minute)}, true},
	} {
		tc.f.timeout = 10 * time.Second
		if got := tc.f.overdue(now); got != tc.want {
			t.Errorf("%s: overdue is %v", name, got)
		}
	}
}
