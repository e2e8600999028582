package redis

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestAgentKeys_ReadFromAgentRedis(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), `{"nodes":1}`)
	w.spokes["w1"].do("SET", "app|resources-tree|cart|7|1.8.3", `{"shard":7}`)
	w.spokes["w2"].do("SET", channelKey("other_far"), `[1]`)
	w.spokes["w2"].do("SET", treeKey("argocd_local"), `{"l":1}`)
	w.hub.do("SET", treeKey("shop_cart"), "not this one")
	w.hub.do("SET", treeKey("hub_own"), "the hub's")
	for _, c := range []*testClient{w.user(), w.user3()} {
		c.expect(bulkReply(`{"nodes":1}`), "GET", treeKey("shop_cart"))
		c.expect(bulkReply(`{"shard":7}`), "get", "app|resources-tree|shop_cart|7|1.8.3")
		c.expect(bulkReply(`[1]`), "GET", channelKey("other_far"))
		c.expect(bulkReply(`{"l":1}`), "GET", treeKey("local"))
		c.expect(bulkReply("the hub's"), "GET", treeKey("hub_own"))
	}
}

func TestAgentKeys_MissingValueIsNull(t *testing.T) {
	w := newWorld(t, nil)
	w.user().expect("$-1", "GET", treeKey("shop_cart"))
	w.user3().expect("_", "GET", treeKey("shop_cart"))
}

func TestReplies_KeepRequestOrder(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	c := w.user()
	var out []byte
	var want []string
	for range 50 {
		out = appendCommand(out, "SET", "k", "v")
		out = appendCommand(out, "GET", treeKey("shop_cart"))
		out = appendCommand(out, "GET", "k")
		out = appendCommand(out, "GET", treeKey("other_far"))
		out = appendCommand(out, "MGET", "k", "none")
		want = append(want, "+OK", "$4 tree", "$1 v", "$-1", "*2 $1 v $-1")
	}
	c.send(string(out))
	for i, w := range want {
		if got := c.reply(); got != w {
			t.Fatalf("reply %d is %q, want %q", i, got, w)
		}
	}
}

func TestAgentKeys_ConvertCompression(t *testing.T) {
	w := newWorld(t, nil)
	plain := `{"nodes":[` + strings.Repeat(`"x",`, 1000) + `"x"]}`
	zipped, err := zip([]byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	c := w.user()
	w.spokes["w1"].do("SET", treeKey("cart")+".gz", string(zipped), "EX", "1000")
	c.expect(bulkReply(plain), "GET", treeKey("shop_cart"))
	if got := c.raw("GET", treeKey("shop_cart")+".gz"); !bytes.Equal(got, zipped) {
		t.Error("a value whose form is right was changed")
	}
	// The agent's Argo CD now stores plain values. The compressed value has not expired yet.
	w.spokes["w1"].do("SET", treeKey("cart"), `{"new":1}`, "EX", "2000")
	w.server.Invalidate("shop", "cart")
	c.expect(bulkReply(`{"new":1}`), "GET", treeKey("shop_cart"))
	w.server.Invalidate("shop", "cart")
	again, err := unzip(c.raw("GET", treeKey("shop_cart")+".gz"), 1<<20, nil)
	if err != nil || string(again) != `{"new":1}` {
		t.Errorf("%s, %v", again, err)
	}
}

// raw sends a request and returns the string in the reply, byte for byte.
func (c *testClient) raw(args ...string) []byte {
	c.t.Helper()
	c.send(string(appendCommand(nil, args...)))
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	reply, err := c.in.next()
	if err != nil {
		c.t.Fatal(err)
	}
	parts, err := decode(reply)
	if err != nil {
		c.t.Fatal(err)
	}
	return bytes.Clone(parts[0])
}

func TestAgentKeys_RewriteForTarget(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Rewrite = func(of Target, kind Kind, hub string, json []byte, _ int) ([]byte, error) {
			return bytes.ReplaceAll(json, []byte("argocd"), []byte(of.Agent+"+"+string(kind)+"+"+hub+"+"+of.Local)), nil
		}
	})
	zipped, err := zip([]byte(`["argocd"]`))
	if err != nil {
		t.Fatal(err)
	}
	w.spokes["w1"].do("SET", treeKey("till")+".gz", string(zipped))
	w.spokes["w1"].do("SET", treeKey("cart"), `["argocd"]`)
	c := w.user()
	c.expect(bulkReply(`["w1+resources-tree+shop_till+till"]`), "GET", treeKey("shop_till"))
	c.expect(bulkReply(`["argocd"]`), "GET", treeKey("shop_cart"))

	// Managed resources have the name of the Application in their tracking IDs.
	w.spokes["w1"].do("SET", channelKey("cart"), `["argocd"]`)
	w.spokes["w2"].do("SET", channelKey("other_far"), `["argocd"]`)
	c.expect(bulkReply(`["w1+managed-resources+shop_cart+cart"]`), "GET", channelKey("shop_cart"))
	c.expect(bulkReply(`["argocd"]`), "GET", channelKey("other_far"))
}

func TestAgentKeys_DisconnectedAgentServesLastKnownValue(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.StaleAfter, c.Timeout = time.Minute, time.Minute })
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	w.spokes["w2"].do("SET", treeKey("other_far"), "far")
	c := w.user()
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	w.disconnect("w1")
	began := time.Now()
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	c.expect("-ERR agent w1 is not connected since 2026-05-04T03:02:01Z", "GET", channelKey("shop_cart"))
	c.expect("$3 far", "GET", treeKey("other_far"))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
	w.reconnect("w1")
	w.spokes["w1"].do("SET", channelKey("cart"), "resources")
	c.expect("$9 resources", "GET", channelKey("shop_cart"))
}

func TestAgentKeys_UnresponsiveAgentDelaysNoOtherRequest(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.StaleAfter, c.Timeout = 50*time.Millisecond, 3*time.Second })
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	w.spokes["w2"].do("SET", treeKey("other_far"), "far")
	c := w.user()
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	w.agents["w1"].mute.Store(true)
	w.server.Invalidate("shop", "cart")
	slow := w.user()
	slow.send(string(appendCommand(nil, "GET", channelKey("shop_cart"))))
	began := time.Now()
	c.expect("$3 far", "GET", treeKey("other_far"))
	c.expect("+PONG", "PING")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("others waited %v", took)
	}
	if got := slow.reply(); got != "-ERR agent w1 does not respond: no reply in time" {
		t.Errorf("got %q", got)
	}
	c.expect("$4 tree", "GET", treeKey("shop_cart")) // the last known value
}

func TestAgentKeys_OnlyGet(t *testing.T) {
	w := newWorld(t, nil)
	c := w.user()
	const refusal = "-ERR this key belongs to agent w1, only GET is allowed"
	c.expect(refusal, "MGET", "other", treeKey("shop_cart"))
	c.expect(refusal, "TTL", treeKey("shop_cart"))
	c.expect(refusal, "EVAL", "return 1", "1", treeKey("shop_cart"))
	c.expect(refusal, "GET", treeKey("shop_cart"), "more")
	c.expect(refusal, "SET", treeKey("shop_cart"), "x")
	c.expect(refusal, "DEL", "other", treeKey("shop_cart"))
	c.expect(refusal, "RENAME", "other", treeKey("shop_cart"))
	c.expect("+OK", "SET", treeKey("hub_own"), "x")
}

func TestForget_DropsLastKnownValues(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	c := w.user()
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	w.disconnect("w1")
	w.server.Forget("w1")
	c.expect("-ERR agent w1 is not connected since 2026-05-04T03:02:01Z", "GET", treeKey("shop_cart"))
}

func TestCache_Bounded(t *testing.T) {
	c := newCache(10_000)
	for i := range 1000 {
		c.put(entry{id: strings.Repeat("i", i%7) + string(rune('a'+i%26)), value: make([]byte, i), at: time.Unix(int64(i), 0)})
		if c.bytes > 10_000 || len(c.byID) > 40 {
			t.Fatalf("%d values with %d bytes", len(c.byID), c.bytes)
		}
	}
	c.put(entry{id: "giant", value: make([]byte, 9000)})
	if _, found := c.get("giant"); found {
		t.Error("one value displaced all others")
	}
	c.put(entry{id: "x", value: []byte("new"), at: time.Unix(2, 0)})
	c.put(entry{id: "x", value: []byte("old"), at: time.Unix(1, 0)})
	c.put(entry{id: "x", at: time.Unix(1, 0)})
	if e, found := c.get("x"); !found || string(e.value) != "new" {
		t.Error("an older value replaced a newer one")
	}
	c.put(entry{id: "x", at: time.Unix(3, 0)})
	if _, found := c.get("x"); found {
		t.Error("a missing value is cached")
	}
}

// A value that was requested before Forget can be the value of the forgotten agent.
func TestForget_LateValueNotCached(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	w.user().expect("$4 tree", "GET", treeKey("shop_cart"))
	pool := &w.server.agents
	pool.mu.Lock()
	before := pool.clients["w1"]
	pool.mu.Unlock()
	w.server.Forget("w1")
	key, target, _ := w.server.cfg.resolve([]byte(treeKey("shop_cart")))
	l := agentLookup{target, key}
	late := &inflightRead{done: make(chan struct{})}
	before.fetchAndCache(l, l.id(), late)
	pool.mu.Lock()
	defer pool.mu.Unlock()
	if _, known := pool.cache.get(l.id()); known {
		t.Error("a value of the forgotten agent is cached")
	}
}

func TestAgentKeys_AgentWithoutRedisReturnsError(t *testing.T) {
	w := newWorld(t, nil)
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	c := w.user()
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	w.spokes["w1"].Stop()
	for range 10 {
		if got := c.do("GET", channelKey("shop_cart")); !strings.Contains(got, "cannot reach the cluster's Redis: connect to Redis at ") {
			t.Fatal(got)
		}
	}
	c.expect("$4 tree", "GET", treeKey("shop_cart"))
	w.spokes["w1"].Run()
	c.expect("$-1", "GET", channelKey("shop_cart"))
}

type notYetError struct{}

func (notYetError) Error() string         { return "agent w1 is not connected" }
func (notYetError) NotYetConnected() bool { return true }

// After a start of the principal, a request waits for an agent that is about to connect.
func TestAgentKeys_WaitsForAgentsAfterStart(t *testing.T) {
	var attempts atomic.Int64
	w := newWorld(t, func(cfg *Config) {
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, agent string) (net.Conn, error) {
			if attempts.Add(1) <= 3 {
				return nil, notYetError{}
			}
			return dial(ctx, agent)
		}
	})
	w.spokes["w1"].do("SET", treeKey("cart"), "tree")
	w.user().expect("$4 tree", "GET", treeKey("shop_cart"))
}
