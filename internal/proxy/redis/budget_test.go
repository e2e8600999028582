package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
)

func TestBudget_AgentCannotUseTotal(t *testing.T) {
	total := semaphore.NewWeighted(30)
	agents := make([]budget, 4)
	for i := range agents {
		agents[i] = budget{semaphore.NewWeighted(10), total}
	}
	for i, b := range agents[:3] {
		if !b.tryAcquire(10) || b.tryAcquire(1) {
			t.Errorf("agent %d does not have exactly its own part", i)
		}
	}
	if agents[3].tryAcquire(1) {
		t.Error("more than the total is in use")
	}
	agents[0].release(10)
	if !agents[3].tryAcquire(10) { // an attempt that failed has kept nothing
		t.Error("a released part cannot be used")
	}
}

func TestTenantQuota_LimitsMemoryOfAllAgents(t *testing.T) {
	limits := TenantLimits{Value: 4 << 20, Passing: 4 << 20}
	l := newTenants(t, startRedis(t, hubPassword), limits)
	for i := range tenantShares {
		if !l.quota(fmt.Sprint("hostile", i), l.Limits.withDefaults()).passing.tryAcquire(limits.Passing) {
			t.Fatal("an agent cannot use its part")
		}
	}
	c := l.client("w1")
	c.expect("+OK", "SET", "small", "x", "EX", "100")
	go func() {
		_, _ = c.conn.Write(appendCommand(nil, "SET", "large", strings.Repeat("x", 2<<20), "EX", "100"))
	}()
	own := l.quota("w1", l.Limits.withDefaults()).passing.own
	eventually(t, "the large request waits for the total", func() bool {
		if own.TryAcquire(4 << 20) {
			own.Release(4 << 20)
			return false
		}
		return true
	})
	l.client("w2").expect("+OK", "SET", "small", "x", "EX", "100") // small requests need no reservation
	l.quota("hostile0", l.Limits.withDefaults()).passing.release(limits.Passing)
	if got := c.reply(); got != "+OK" {
		t.Error(abbreviate(got))
	}
}

func TestTenantQuota_LimitsChannelsOfAgentAndOfAllAgents(t *testing.T) {
	l := newTenants(t, startRedis(t, hubPassword), TenantLimits{Channels: 4})
	subscribe := func(c *testClient, names ...string) string {
		t.Helper()
		got := c.do(append([]string{"SUBSCRIBE"}, names...)...)
		if !strings.HasPrefix(got, "-") {
			for range names[1:] {
				c.reply()
			}
		}
		return got
	}
	a, again := l.client("w1"), l.client("w1")
	for range 3 { // the same channels count once
		if got := subscribe(a, "a", "b", "c"); strings.HasPrefix(got, "-") {
			t.Fatal(got)
		}
	}
	a.do("UNSUBSCRIBE", "x") // not subscribed
	a.do("PUNSUBSCRIBE")
	for _, c := range []*testClient{a, again} {
		if got := subscribe(c, "d", "e"); got != "-NOPERM an agent is limited to 4 channels" {
			t.Error(got)
		}
	}
	if got := subscribe(again, "a"); strings.HasPrefix(got, "-") { // what was refused is not counted
		t.Error(got)
	}
	for _, agent := range []string{"w2", "w3"} {
		if got := subscribe(l.client(agent), "a", "b", "c", "d"); strings.HasPrefix(got, "-") {
			t.Error(got)
		}
	}
	c := l.client("w4")
	if got := subscribe(c, "a"); got != "-NOPERM all agents together are limited to 12 channels" {
		t.Error(got)
	}
	if got := subscribe(c, strings.Repeat("x", maxName+1)); !strings.HasPrefix(got, "-NOPERM a channel of 4097 bytes") {
		t.Error(got)
	}
	a.do("UNSUBSCRIBE", "a")
	if got := subscribe(c, "a"); strings.HasPrefix(got, "-") {
		t.Error(got)
	}
	again.close()
	eventually(t, "the channels of a closed connection are released", func() bool { return l.channels.Load() == 11 })
}

func TestLimits_LargeValuesOfAllAgents(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ValueBytes, c.Timeout, c.StaleAfter = 8<<20, time.Minute, time.Minute })
	bomb, err := zip(make([]byte, 4<<20))
	if err != nil {
		t.Fatal(err)
	}
	w.spokes["w1"].do("SET", treeKey("cart"), strings.Repeat("x", 2<<20))
	w.spokes["w2"].do("SET", treeKey("other_far")+".gz", string(bomb))
	w.spokes["w2"].do("SET", treeKey("argocd_local"), "small")
	total := w.server.agents.values
	if !total.TryAcquire(8 << 20) {
		t.Fatal("the memory is in use")
	}
	large, zipped := w.user(), w.user()
	large.send(string(appendCommand(nil, "GET", treeKey("shop_cart"))))
	zipped.send(string(appendCommand(nil, "GET", treeKey("other_far"))))
	w.user().expect(bulkReply("small"), "GET", treeKey("local"))
	for _, agent := range []string{"w1", "w2"} {
		eventually(t, "the value of "+agent+" waits for memory", func() bool {
			w.server.agents.mu.Lock()
			defer w.server.agents.mu.Unlock()
			p := w.server.agents.clients[agent]
			if p == nil || p.values.TryAcquire(2<<20) {
				if p != nil {
					p.values.Release(2 << 20)
				}
				return false
			}
			return true
		})
	}
	total.Release(8 << 20)
	if got := large.reply(); len(got) < 2<<20 {
		t.Error(abbreviate(got))
	}
	if got := zipped.reply(); len(got) < 4<<20 {
		t.Error(abbreviate(got))
	}
	eventually(t, "all memory is released", func() bool {
		if !total.TryAcquire(8 << 20) {
			return false
		}
		total.Release(8 << 20)
		return true
	})
}

func TestLimits_ReadsOfOneAgent(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Timeout = time.Minute })
	w.spokes["w2"].do("SET", treeKey("other_far"), "far")
	a := &w.server.agents
	w.user().expect(bulkReply("far"), "GET", treeKey("other_far"))
	a.mu.Lock()
	a.client("w1").reading = maxAgentReads
	a.mu.Unlock()
	c := w.user()
	if got := c.do("GET", treeKey("shop_cart")); got != "-ERR agent w1 does not respond: 512 requests wait for it" {
		t.Error(got)
	}
	c.expect(bulkReply("far"), "GET", treeKey("other_far"))
}

func TestConvert_ValueIsWithinLimitAfterRewrite(t *testing.T) {
	reserve := func(int) error { return nil }
	double := func(b []byte) ([]byte, error) { return append(b, b...), nil }
	if got, err := convert([]byte("12345"), false, false, 10, double, reserve); string(got) != "1234512345" || err != nil {
		t.Error(string(got), err)
	}
	if got, err := convert([]byte("123456"), false, false, 10, double, reserve); got != nil || err == nil {
		t.Error(string(got), err)
	}
	refuse := errors.New("no memory")
	if _, err := convert(make([]byte, largeFrame), false, false, 4*largeFrame, double, func(int) error { return refuse }); !errors.Is(err, refuse) {
		t.Error(err)
	}
}

func TestUnzip_ReservesMemoryBeforeItGrows(t *testing.T) {
	zipped, err := zip(make([]byte, 5<<20))
	if err != nil {
		t.Fatal(err)
	}
	var reserved int
	plain, err := unzip(zipped, 5<<20, func(n int) error { reserved = n; return nil })
	if err != nil || len(plain) != 5<<20 || reserved < 5<<20 || cap(plain) > reserved {
		t.Errorf("%d bytes of %d, %d reserved, %v", len(plain), cap(plain), reserved, err)
	}
	if _, err := unzip(zipped, 5<<20-1, nil); !errors.Is(err, errCompression) {
		t.Error(err)
	}
	refuse := errors.New("no memory")
	if _, err := unzip(zipped, 5<<20, func(int) error { return refuse }); !errors.Is(err, refuse) {
		t.Error(err)
	}
	for _, broken := range [][]byte{nil, []byte("x"), zipped[:len(zipped)/2]} {
		if _, err := unzip(broken, 5<<20, nil); !errors.Is(err, errCompression) {
			t.Error(err)
		}
	}
}

// An agent can publish any number of messages of any size.
func TestClientConn_UnreadMessagesOfOneChannelAreOne(t *testing.T) {
	w := newWorld(t, nil).withTrees()
	c := w.user3()
	cart := channelKey("shop_cart")
	c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	c.receives(pushed("message", cart, ""))
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "chosen by the agent")
	c.receives(pushed("message", cart, ""))
	unread := &clientConn{pushing: true}
	for range 1000 {
		unread.push(cart)
		unread.push("other")
	}
	if len(unread.pushed) != 2 {
		t.Errorf("%d messages", len(unread.pushed))
	}
}
