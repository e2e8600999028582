package redis

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMalformedRequestsAreRefused(t *testing.T) {
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
	c = w.client()
	c.send("POST / HTTP/1.1\r\nHost: hub\r\n\r\n")
	if got := c.ends(); !strings.HasPrefix(got, "-ERR POST is not possible") {
		t.Error(got)
	}
	w.user().expect("+PONG", "PING")
}

func TestAClaimedLengthAllocatesNothing(t *testing.T) {
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

func TestSilentClientsAreCutAndSubscribersStay(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.FirstRequest, c.Idle = 50*time.Millisecond, 100*time.Millisecond }).withTrees()
	listener := w.user3()
	cart := channelKey("shop_cart")
	listener.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	listener.hears(pushed("message", cart, ""))
	w.client().ends()
	w.user().ends()
	w.client().ends()
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	listener.hears(pushed("message", cart, ""))
}

func TestTooManyClientsAreRefusedAndOthersServed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxClients = 3 })
	first := w.user()
	w.user()
	third := w.user()
	if got := w.client().ends(); got != "-ERR max number of clients reached\r\n" {
		t.Errorf("got %q", got)
	}
	first.expect("+PONG", "PING")
	third.close()
	eventually(t, "a place is free", func() bool { return w.server.Stats().Clients == 2 })
	w.user().expect("+PONG", "PING")
}

func TestAClientThatDoesNotReadHoldsUpNobody(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxOutput, c.Stall = 1<<20, time.Minute })
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

func TestPipelinesAreBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxPipeline = 8 })
	c := w.user()
	const count = 5000
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.conn.Write([]byte(strings.Repeat("PING\r\n", count) + strings.Repeat("*1\r\n$4\r\nPING\r\n", count)))
	}()
	for range 2 * count {
		if got := c.reply(); got != "+PONG" {
			t.Fatal(got)
		}
	}
	<-sent
}

func TestTenThousandIdleClients(t *testing.T) {
	var descriptors syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &descriptors); err != nil {
		t.Fatal(err)
	}
	count := min(10_000, int(descriptors.Cur-500)/2)                       // both ends are in this process
	w := newWorld(t, func(c *Config) { c.FirstRequest = 5 * time.Minute }) // a busy machine takes its time
	var arriving []*testClient
	for i := range count {
		c := w.client()
		c.send(string(appendCommand(nil, "AUTH", hubPassword)) + string(appendCommand(nil, "PING")))
		if arriving = append(arriving, c); len(arriving) < 100 && i < count-1 {
			continue
		}
		for _, c := range arriving { // until it is known, each has a connection to Redis too, and descriptors are few
			if got := c.reply() + c.reply(); got != "+OK+PONG" {
				t.Fatal(got)
			}
		}
		arriving = nil
	}
	eventually(t, "all are there", func() bool { return w.server.Stats().Clients == int64(count) })
	began := time.Now()
	c := w.user()
	c.expect("+PONG", "PING")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("one more took %v", took)
	}
	eventually(t, "Redis does not carry them", func() bool {
		return strings.Contains(w.hub.do("INFO", "clients"), "connected_clients:2 ")
	})
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("%d clients: heap %d MiB, stacks %d MiB, with the clients of the test", count, memory.HeapInuse>>20, memory.StackInuse>>20)
}
