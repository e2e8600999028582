package redis

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestForward_OtherCommands(t *testing.T) {
	w := newWorld(t, nil)
	c := w.user()
	c.expect("+OK", "CLIENT", "SETNAME", "test")
	c.expect("+OK", "SET", "k", "v", "EX", "100")
	c.expect(":0", "SETNX", "k", "w")
	c.expect("$1 v", "GET", "k")
	c.expect("+OK", "RENAME", "k", "l")
	c.expect("-ERR no such key", "RENAME", "k", "l")
	c.expect("*2 $1 0 *1 $1 l", "SCAN", "0", "MATCH", "l*", "COUNT", "10000")
	c.expect("+OK", "MULTI")
	c.expect("+QUEUED", "SET", "m", "1")
	c.expect("+QUEUED", "GET", "m")
	c.expect("*2 +OK $1 1", "EXEC")
	c.expect(":2", "DEL", "l", "m")
	c.expect("+OK", "SELECT", "3")
	c.expect("+OK", "SET", "k", "in 3")
	other := w.user()
	other.expect("$-1", "GET", "k")
	other.expect("+OK", "SELECT", "3")
	other.expect("$4 in 3", "GET", "k")
	other.expect("-ERR unknown command 'NONSENSE', with args beginning with:", "NONSENSE")
}

func TestForward_ProtocolPerClient(t *testing.T) {
	w := newWorld(t, nil)
	w.hub.do("HSET", "h", "f", "v")
	old, modern := w.user(), w.user3()
	old.expect("*2 $1 f $1 v", "HGETALL", "h")
	modern.expect("%1 $1 f $1 v", "HGETALL", "h")
	if got := modern.do("HELLO", "2"); !strings.HasPrefix(got, "*") {
		t.Fatal(got)
	}
	modern.expect("*2 $1 f $1 v", "HGETALL", "h")
}

func TestForward_LargeValueAndFragmentedRequest(t *testing.T) {
	w := newWorld(t, nil)
	c := w.user()
	value := strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB
	c.expect("+OK", "SET", "big", value)
	c.expect(bulkReply(value), "GET", "big")
	for _, b := range appendCommand(nil, "GET", "big") {
		c.send(string(b))
	}
	if got := c.reply(); got != bulkReply(value) {
		t.Errorf("got %s", abbreviate(got))
	}
	c.expect("+PONG", "PING")
}

func TestForward_RefusesInlineRequests(t *testing.T) {
	w := newWorld(t, nil)
	for _, request := range []string{"PING\r\n", "POST / HTTP/1.1\r\nHost: hub\r\n\r\n"} { // the second one comes from a browser
		c := w.client()
		c.send(request)
		if got := c.ends(); got != "-ERR Protocol error: expected '*', got 'P'\r\n" {
			t.Errorf("%q: %q", request, got)
		}
	}
}

func TestAuthentication_Required(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "secret")
	const needs = "-NOAUTH Authentication required."
	c := w.client()
	for range 2 {
		c.expect(needs, "GET", treeKey("shop_cart"))
		c.expect(needs, "MGET", treeKey("shop_cart"))
		c.expect(needs, "TTL", treeKey("shop_cart"))
		c.expect(needs, "GET", "k")
		c.expect(needs, "SUBSCRIBE", channelKey("shop_cart"))
		c.expect("-WRONGPASS invalid username-password pair or user is disabled.", "AUTH", "wrong")
	}
	w.mu.Lock()
	if w.agents["w1"].dials != 0 {
		t.Error("an agent was contacted")
	}
	w.mu.Unlock()
	c.expect("+OK", "AUTH", hubPassword)
	c.expect("$6 secret", "GET", treeKey("shop_cart"))
	// A failed attempt does not change the identity, as in Redis.
	c.expect("-WRONGPASS invalid username-password pair or user is disabled.", "AUTH", "wrong")
	c.expect("$6 secret", "GET", treeKey("shop_cart"))
}

func TestAuthentication_RedisACLAppliesToAgentKeys(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "secret")
	w.hub.do("ACL", "SETUSER", "narrow", "on", ">pw", "~mine|*", "+@all")
	c := w.client()
	c.expect("+OK", "AUTH", "narrow", "pw")
	c.expect("+OK", "SET", "mine|k", "v")
	if got := c.do("GET", treeKey("shop_cart")); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("got %q", got)
	}
	if got := c.do("SUBSCRIBE", channelKey("shop_cart")); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("got %q", got)
	}
}

func TestAuthentication_NotRequiredWithoutPassword(t *testing.T) {
	w := newWorld(t, nil)
	w.hub.do("CONFIG", "SET", "requirepass", "")
	w.hub.as = Credentials{}
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	c := w.client()
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	c = w.client()
	c.expect("+OK", "SET", "k", strings.Repeat("x", 100_000))
}

func TestForward_RefusesCommandsThatBreakReplyOrder(t *testing.T) {
	w := newWorld(t, nil)
	c := w.user()
	c.expect("-ERR CLIENT REPLY is not supported by the argocd-agent Redis proxy", "CLIENT", "REPLY", "OFF")
	c.expect("+PONG", "PING")
	c.expect("-ERR MONITOR is not supported by the argocd-agent Redis proxy", "MONITOR")
	if rest := c.ends(); rest != "" {
		t.Errorf("received %q after the error", rest)
	}
	c = w.user()
	c.expect("+OK", "QUIT")
	c.ends()
}

func TestForward_HubRedisRestart(t *testing.T) {
	w := newWorld(t, nil)
	c := w.user()
	c.expect("+OK", "SET", "k", "v")
	w.hub.Stop()
	late := w.client()
	if got := late.do("AUTH", hubPassword); !strings.HasPrefix(got, "-ERR argocd-agent: connect to Redis at ") {
		t.Errorf("got %q", got)
	}
	w.hub.Run()
	c = w.user()
	c.expect("$-1", "GET", "k")
}

func TestForward_UnresponsiveRedis(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReplyTimeout = 200 * time.Millisecond })
	c, other := w.user(), w.user()
	c.expect("+OK", "SET", "k", "v")
	other.expect("+PONG", "PING")
	if err := w.hub.Process().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.send(string(appendCommand(nil, "GET", "k")))
	c.ends()
	late := w.client()
	late.send(string(appendCommand(nil, "AUTH", hubPassword)))
	late.ends()
	if err := w.hub.Process().Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.user().expect("$1 v", "GET", "k")
	other.expect("$1 v", "GET", "k") // it had no pending request
}
