package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tenants are agents that use the hub's Redis.
type tenants struct {
	*Tenants
	t *testing.T
}

func newTenants(t *testing.T, hub *realRedis, limits TenantLimits) *tenants {
	t.Helper()
	return &tenants{&Tenants{Redis: hub.endpoint(), Limits: limits}, t}
}

// client connects as the controller of an agent's cluster does.
func (l *tenants) client(agent string) *testClient {
	l.t.Helper()
	near, far := tunnel(l.t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Serve(context.Background(), agent, far)
	}()
	c := &testClient{t: l.t, conn: near, in: newReplyReader(near, testLimits)}
	l.t.Cleanup(func() {
		c.close()
		<-ended
	})
	return c
}

func TestTenants_KeysAreSeparate(t *testing.T) {
	hub := startRedis(t, hubPassword)
	hub.do("SET", "session|x", "the hub's own")
	l := newTenants(t, hub, TenantLimits{})
	a, b := l.client("w1"), l.client("w2")
	tree := treeKey("cart")
	a.expect("+OK", "SET", tree, "of w1", "EX", "100")
	b.expect("+OK", "SET", tree, "of w2!", "ex", "100", "nx")
	a.expect("$5 of w1", "GET", tree)
	b.expect("$6 of w2!", "GET", tree)
	if got := hub.do("GET", TenantPrefix("w1", "")+tree); got != "$5 of w1" {
		t.Errorf("on the hub it is %s", got)
	}
	for _, name := range []string{TenantPrefix("w1", "") + tree, "session|x", "|" + TenantPrefix("w1", "") + tree} {
		b.expect("$-1", "GET", name)
		b.expect(":0", "EXISTS", name)
		b.expect("*1 $-1", "MGET", name)
	}
	b.expect("+OK", "SET", "session|x", "forged", "EX", "10")
	b.expect(":1", "DEL", tree, "w1|"+tree)
	b.expect("-ERR no such key", "RENAME", TenantPrefix("w1", "")+tree, "x")
	a.expect("$5 of w1", "GET", tree)
	a.expect("+OK", "RENAME", tree, "other")
	a.expect(":100", "TTL", "other")
	if got := hub.do("GET", "session|x"); got != "$13 the hub's own" {
		t.Errorf("the hub's own is %s", got)
	}
}

func TestTenants_ChannelsAreSeparate(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{})
	channel := channelKey("cart")
	for _, proto := range []string{"2", "3"} {
		kind := byte('*')
		if proto == "3" {
			kind = '>'
		}
		message := func(parts ...string) string {
			n := 2
			if proto == "3" {
				n = 3
			}
			return strings.TrimSpace(strings.ReplaceAll(string(messageReply(n, parts...)), "\r\n", " "))
		}
		a, b, teller := l.client("w1-"+proto), l.client("w2-"+proto), l.client("w1-"+proto)
		for _, c := range []*testClient{a, b} {
			if got := c.do("HELLO", proto, "AUTH", "default", "whatever", "SETNAME", "x"); strings.HasPrefix(got, "-") {
				t.Fatal(got)
			}
			c.expect(confirmed(kind, "subscribe", channel, "1"), "SUBSCRIBE", channel)
			c.expect(confirmed(kind, "psubscribe", "app|*", "2"), "PSUBSCRIBE", "app|*")
		}
		teller.expect(":2", "PUBLISH", channel, "x")
		for _, want := range []string{message("message", channel, "x"), message("pmessage", "app|*", channel, "x")} {
			if got := a.reply(); got != want {
				t.Errorf("RESP%s: got %q, want %q", proto, got, want)
			}
		}
		l.client("w2-"+proto).expect(":2", "PUBLISH", channel, "y") // w1 does not receive it
		if got, want := b.reply(), message("message", channel, "y"); got != want {
			t.Errorf("RESP%s: got %q, want %q", proto, got, want)
		}
		b.reply()
		pong := "+PONG"
		if proto == "2" {
			pong = "*2 $4 pong $0"
		}
		a.expect(pong, "PING")
		a.expect(confirmed(kind, "unsubscribe", channel, "1"), "UNSUBSCRIBE", channel)
		a.expect(confirmed(kind, "punsubscribe", "app|*", "0"), "PUNSUBSCRIBE")
		a.expect("+PONG", "PING")
	}
}

func TestTenants_AllowedCommands(t *testing.T) {
	hub := startRedis(t, hubPassword)
	hub.do("SET", "secret", "of the hub", "EX", "1000")
	l := newTenants(t, hub, TenantLimits{})
	for _, request := range [][]string{
		{"SCAN", "0"}, {"KEYS", "*"}, {"FLUSHALL"}, {"FLUSHDB"}, {"EVAL", "return 1", "0"}, {"EVALSHA", "x", "0"},
		{"CONFIG", "GET", "*"}, {"INFO"}, {"MONITOR"}, {"CLIENT", "LIST"}, {"CLIENT", "KILL", "x"}, {"CLIENT", "TRACKING", "on"},
		{"ACL", "WHOAMI"}, {"DEBUG", "SLEEP", "10"}, {"SHUTDOWN"}, {"REPLICAOF", "x", "1"}, {"MULTI"}, {"DBSIZE"},
		{"RANDOMKEY"}, {"COPY", "secret", "mine"}, {"MIGRATE"}, {"DUMP", "secret"}, {"OBJECT", "HELP"}, {"SORT", "x"},
		{"SSUBSCRIBE", "x"}, {"PUBSUB", "CHANNELS"}, {"SET", "x", "y"}, {"SET", "x", "y", "NX"}, {"SET", "x", "y", "EX", "0"},
		{"SET", "x", "y", "KEEPTTL"}, {"SET", "x", "y", "EX", "9999999"}, {"SET", "x", "y", "EX", "10", "GET"},
		{"SET", "x", "y", "EX", "-1"}, {"SET", "x", "y", "EX", "1", "PX", "1"}, {"SETNX", "x", "y"}, {"SETEX", "x", "10", "y"}, {"PSETEX", "x", "10000", "y"}, {"APPEND", "x", "y"},
		{"GET"}, {"GET", "a", "b"}, {"DEL"}, {"PUBLISH", "x"}, {"GET", strings.Repeat("x", 5000)}, {"LPUSH", "x", "y"}, {"WAIT", "1", "0"},
		{"MGET"}, append([]string{"MGET"}, make([]string, maxReads+1)...), {"MGET", "x", strings.Repeat("x", 5000)}, {"PING", strings.Repeat("x", 5000)},
		{"SUBSCRIBE"}, {"HELLO", "4"}, {"HELLO", "x"}, {"XADD", "s", "*", "a", "b"}, {"BLPOP", "x", "0"}, {"EXPIRE", "x", "0"},
	} {
		c := l.client("w1")
		got := c.do(request...)
		if !strings.HasPrefix(got, "-NOPERM ") && !strings.HasPrefix(got, "-NOPROTO") && !strings.HasPrefix(got, "-ERR wrong number") {
			t.Errorf("%v: %s", request, abbreviate(got))
		}
		c.expect("+PONG", "PING") // the connection stays open
	}
	c := l.client("w1")
	for _, accepted := range [][]string{
		{"AUTH", "anything"}, {"CLIENT", "SETINFO", "LIB-NAME", "go-redis"}, {"SELECT", "3"}, {"CLIENT", "SETNAME", "x"},
		{"SET", "x", "y", "EX", "10"}, {"SET", "x", "y", "PX", "5000", "XX"},
	} {
		c.expect("+OK", accepted...)
	}
	c.expect("+OK", "QUIT")
	if rest := c.ends(); rest != "" {
		t.Errorf("after QUIT came %q", rest)
	}
}

func TestTenants_RepliesKeepRequestOrder(t *testing.T) {
	hub := startRedis(t, hubPassword)
	c := newTenants(t, hub, TenantLimits{}).client("w1")
	var send []byte
	var want []string
	for i := range 2000 {
		n := fmt.Sprint(i)
		send = appendCommand(send, "SET", "k", n, "EX", "100")
		send = appendCommand(send, "KEYS", "*")
		send = appendCommand(send, "GET", "k")
		send = appendCommand(send, "AUTH", "x")
		want = append(want, "+OK", "-NOPERM", fmt.Sprintf("$%d %s", len(n), n), "+OK")
	}
	go c.send(string(send))
	for i, w := range want {
		if got := c.reply(); !strings.HasPrefix(got, w) {
			t.Fatalf("answer %d is %s instead of %s", i, got, w)
		}
	}
	c.send("not RESP at all\x00\r\n")
	if rest := c.ends(); !strings.Contains(rest, "-ERR Protocol error") {
		t.Errorf("malformed: %q", rest)
	}
}

func TestTenantQuota_LimitsStoredValues(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{Bytes: 10_000, Keys: 3, Value: 5000})
	a := l.client("w1")
	value := strings.Repeat("x", 4000)
	a.expect("+OK", "SET", "1", value, "EX", "100")
	a.expect("+OK", "SET", "2", value, "EX", "100")
	if got := a.do("SET", "3", value, "EX", "100"); !strings.HasPrefix(got, "-NOPERM agent w1 stores 2 values with 8002 bytes") {
		t.Errorf("too much: %s", got)
	}
	a.expect("+OK", "SET", "2", value, "EX", "100") // replaces the value
	l.client("w2").expect("+OK", "SET", "3", value, "EX", "100")
	a.expect(":1", "DEL", "1")
	a.expect("+OK", "SET", "3", "x", "PX", "1")
	a.expect("+OK", "SET", "4", "x", "EX", "100")
	eventually(t, "what has expired makes room", func() bool { return a.do("SET", "5", "x", "EX", "100") == "+OK" })
	if got := a.do("SET", "6", "x", "EX", "100"); !strings.HasPrefix(got, "-NOPERM agent w1 stores 3 values") {
		t.Errorf("too many: %s", got)
	}
	a.send("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$100000\r\n")
	if rest := a.ends(); !strings.Contains(rest, "-ERR Protocol error: invalid bulk length") {
		t.Errorf("a large value: %q", rest)
	}
}

func TestTenantQuota_LimitsLargeValuesInMemory(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{Passing: 3 << 20})
	value := strings.Repeat("x", 2<<20)
	done := make(chan string)
	for i := range 8 {
		c := l.client("w1")
		go func() {
			key := fmt.Sprint(i)
			_, _ = c.conn.Write(appendCommand(appendCommand(nil, "SET", key, value, "EX", "100"), "GET", key))
			_, err := c.in.next()
			if err == nil {
				var b []byte
				if b, err = c.in.next(); err == nil && len(b) < len(value) {
					err = fmt.Errorf("%s", b)
				}
			}
			done <- fmt.Sprint(err)
		}()
	}
	for range 8 {
		if err := <-done; err != "<nil>" {
			t.Error(err)
		}
	}
}

func TestTenants_AllowedIsCheckedForEachRequest(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{})
	var refused atomic.Pointer[error]
	l.Allowed = func(string) error {
		if why := refused.Load(); why != nil {
			return *why
		}
		return nil
	}
	c := l.client("w1")
	c.expect("+PONG", "PING")
	why := errors.New("agent w1 may not use the hub's Redis")
	refused.Store(&why)
	c.expect("-NOPERM agent w1 may not use the hub's Redis", "GET", "x")
	hub.Stop()
	if rest := c.ends(); rest != "" {
		t.Errorf("when Redis is gone: %q", rest)
	}
	refused.Store(nil)
	if got := l.client("w1").reply(); !strings.HasPrefix(got, "-ERR the hub's Redis cannot be reached") {
		t.Error(got)
	}
	hub.Run()
	l.client("w1").expect("+PONG", "PING")
}

func TestTenants_SlowAgentDisconnected(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{Stall: 200 * time.Millisecond})
	slow, other := l.client("w1"), l.client("w1")
	slow.expect("+OK", "SET", "k", strings.Repeat("x", 1<<20), "EX", "100")
	var send []byte
	for range 100 {
		send = appendCommand(send, "GET", "k")
	}
	slow.send(string(send))
	other.expect("+PONG", "PING")
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		for { // until the other end closes
			if _, err := slow.conn.Write(appendCommand(nil, "PING")); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	select {
	case <-cut:
	case <-time.After(20 * time.Second):
		t.Error("the connection stays open")
	}
	other.expect("+PONG", "PING")
}

// An agent does not see the keys and channels of an earlier agent with the same name.
func TestTenants_IncarnationSeparatesKeys(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{})
	var incarnation atomic.Value
	incarnation.Store("1a2b3c4d")
	l.Incarnation = func(string) string { return incarnation.Load().(string) }
	before := l.client("w1")
	before.expect("+OK", "SET", "k", "old", "EX", "100")
	incarnation.Store("5e6f7a8b")
	l.Forget("w1")
	after := l.client("w1")
	after.expect("$-1", "GET", "k")
	after.expect("+OK", "SET", "k", "new", "EX", "100")
	if got := hub.do("GET", TenantPrefix("w1", "5e6f7a8b")+"k"); got != "$3 new" {
		t.Errorf("on the hub it is %s", got)
	}
	before.expect("$3 old", "GET", "k")
}

func TestTenantsPurge_DeletesKeysOfRemovedAgents(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{})
	set := func(prefix string, n int) {
		args := []string{"MSET"}
		for i := range n {
			args = append(args, fmt.Sprintf("%s%d", prefix, i), "v")
		}
		hub.do(args...)
	}
	gone, also, stays, next := TenantPrefix("w1", "1a2b3c4d"), TenantPrefix("w2", "5e6f7a8b"), TenantPrefix("w3", "9c0d1e2f"), TenantPrefix("w1", "3a4b5c6d")
	for _, prefix := range []string{gone, also, stays, next, "app|x|"} {
		set(prefix, 3000)
	}
	hub.do("SET", "argocd-agent|", "of no agent")
	if err := l.Purge(t.Context(), map[string]bool{gone: true, also: true}); err != nil {
		t.Fatal(err)
	}
	if got := hub.do("DBSIZE"); got != ":9001" {
		t.Errorf("%s are left", got)
	}
	if got := hub.do("EXISTS", gone+"7", also+"7", stays+"7", next+"7", "app|x|7"); got != ":3" {
		t.Errorf("of one each, %s are left", got)
	}
	l.Redis.Credentials = Fixed("", "wrong")
	if err := l.Purge(t.Context(), map[string]bool{stays: true}); err == nil {
		t.Error("Purge with a wrong password succeeds")
	}
}
