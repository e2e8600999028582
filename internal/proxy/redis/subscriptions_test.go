package redis

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// receives reads the next reply or message.
func (c *testClient) receives(want string) {
	c.t.Helper()
	if got := c.reply(); got != want {
		c.t.Fatalf("heard %q, want %q", got, want)
	}
}

func pushed(kind, channel, payload string) string {
	return strings.TrimSpace(strings.ReplaceAll(string(messageReply(3, kind, channel, payload)), "\r\n", " "))
}

func old(kind, channel, payload string) string {
	return strings.TrimSpace(strings.ReplaceAll(string(messageReply(2, kind, channel, payload)), "\r\n", " "))
}

func confirmed(frame byte, kind, channel string, count string) string {
	return strings.TrimSpace(string(frame) + "3 " + bulkReply(kind) + " " + bulkReply(channel) + " :" + count)
}

func TestSubscriptions_HubAndAgentsOnOneConnection(t *testing.T) {
	w := newWorld(t, nil).withTrees()
	c := w.user3()
	cart, far := channelKey("shop_cart"), channelKey("other_far")
	c.send(string(appendCommand(nil, "SUBSCRIBE", "news", cart, far)))
	c.receives(confirmed('>', "subscribe", "news", "1"))
	heard := map[string]int{}
	for range 4 { // two confirmations, and a notification for each channel
		heard[c.reply()]++
	}
	for _, want := range []string{
		confirmed('>', "subscribe", cart, "2"), confirmed('>', "subscribe", far, "3"),
		pushed("message", cart, ""), pushed("message", far, ""),
	} {
		if heard[want] != 1 {
			t.Errorf("%q came %d times", want, heard[want])
		}
	}
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	c.receives(pushed("message", cart, ""))
	w.hub.do("PUBLISH", "news", "extra")
	c.receives(pushed("message", "news", "extra"))
	w.spokes["w2"].do("PUBLISH", channelKey("other_far"), "")
	c.receives(pushed("message", far, ""))
	c.expect("+PONG", "PING")
	w.hub.do("SET", "k", "v")
	c.expect("$1 v", "GET", "k")
	c.expect(`$14 {"nodes":null}`, "GET", treeKey("shop_cart"))

	c.send(string(appendCommand(nil, "UNSUBSCRIBE")))
	for range 3 {
		if got := c.reply(); !strings.HasPrefix(got, ">3 $11 unsubscribe") {
			t.Errorf("got %q", got)
		}
	}
	c.expect("+PONG", "PING")
}

func TestSubscriptions_RESP2(t *testing.T) {
	w := newWorld(t, nil).withTrees()
	c := w.user()
	cart := channelKey("shop_cart")
	c.expect(confirmed('*', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	c.receives(old("message", cart, ""))
	c.expect("*2 $4 pong $0", "PING")
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	c.receives(old("message", cart, ""))
	c.expect(confirmed('*', "unsubscribe", cart, "0"), "UNSUBSCRIBE", cart)
	c.expect("+PONG", "PING")
	c.expect("+OK", "SET", "k", "v")
}

func TestSubscriptions_SharedAndReleased(t *testing.T) {
	w := newWorld(t, nil).withTrees()
	cart, till := channelKey("shop_cart"), channelKey("shop_till")
	var clients []*testClient
	for range 20 {
		c := w.user3()
		c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
		c.receives(pushed("message", cart, ""))
		c.expect(confirmed('>', "subscribe", till, "2"), "SUBSCRIBE", till)
		c.receives(pushed("message", till, ""))
		clients = append(clients, c)
	}
	if got := w.spokes["w1"].do("PUBSUB", "NUMSUB", channelKey("cart")); !strings.HasSuffix(got, ":1") {
		t.Errorf("subscriptions at the agent: %s", got)
	}
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	for _, c := range clients {
		c.receives(pushed("message", cart, ""))
	}
	for _, c := range clients[1:] {
		c.close()
	}
	clients[0].expect(confirmed('>', "unsubscribe", cart, "1"), "UNSUBSCRIBE", cart)
	eventually(t, "one channel is released", func() bool {
		return w.spokes["w1"].do("PUBSUB", "CHANNELS") == "*1 "+bulkReply(channelKey("till"))
	})
	clients[0].close()
	eventually(t, "the other and the connection are released", func() bool {
		return w.spokes["w1"].do("PUBSUB", "CHANNELS") == "*0" && w.server.Stats().Subscriptions == 0
	})
}

func TestSubscriptions_Recover(t *testing.T) {
	w := newWorld(t, nil).withTrees()
	cart := channelKey("shop_cart")
	c := w.user3()
	c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	c.receives(pushed("message", cart, ""))

	w.disconnect("w1")
	w.reconnect("w1")
	w.server.AgentChanged("w1")
	c.receives(pushed("message", cart, "")) // a change can have been missed
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	c.receives(pushed("message", cart, ""))

	// An empty Redis has no tree, so clients are not notified.
	w.spokes["w1"].Stop()
	w.spokes["w1"].Run()
	eventually(t, "the subscription is back", func() bool { return strings.HasSuffix(w.spokes["w1"].do("PUBSUB", "NUMSUB", channelKey("cart")), ":1") })
	c.expect("_", "GET", treeKey("shop_cart"))
	w.spokes["w1"].do("SET", treeKey("cart"), "{}")
	w.spokes["w1"].do("PUBLISH", channelKey("cart"), "")
	c.receives(pushed("message", cart, ""))

	// If the hub's Redis restarts, clients reconnect as they do with Redis.
	w.hub.Stop()
	c.ends()
	w.hub.Run()
	c = w.user3()
	c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	c.receives(pushed("message", cart, ""))
}

func TestCache_TreeReadOnceUntilChanged(t *testing.T) {
	w := newWorld(t, nil)
	spoke := w.spokes["w1"]
	spoke.do("SET", treeKey("cart"), "one")
	c := w.user()
	c.expect("$3 one", "GET", treeKey("shop_cart"))
	eventually(t, "the subscription is confirmed", func() bool {
		asked := w.server.Stats().Asked
		c.expect("$3 one", "GET", treeKey("shop_cart"))
		return asked == w.server.Stats().Asked
	})
	asked := w.server.Stats().Asked
	for range 100 {
		c.expect("$3 one", "GET", treeKey("shop_cart"))
	}
	if now := w.server.Stats().Asked; now != asked {
		t.Errorf("the agent received %d more requests", now-asked)
	}

	// As Argo CD does: write, then publish.
	spoke.do("SET", treeKey("cart"), "two")
	messages := w.server.Stats().Messages
	spoke.do("PUBLISH", channelKey("cart"), "")
	eventually(t, "the message arrives", func() bool { return w.server.Stats().Messages > messages })
	c.expect("$3 two", "GET", treeKey("shop_cart"))

	// A refresh completes before the message arrives.
	spoke.do("SET", treeKey("cart"), "six")
	w.server.Invalidate("shop", "cart")
	c.expect("$3 six", "GET", treeKey("shop_cart"))

	// Argo CD writes managed resources after the message.
	spoke.do("SET", channelKey("cart"), "a")
	c.expect("$1 a", "GET", channelKey("shop_cart"))
	spoke.do("SET", channelKey("cart"), "b")
	c.expect("$1 b", "GET", channelKey("shop_cart"))

	// The tree can change while the agent is disconnected, so it is read again.
	w.disconnect("w1")
	w.server.AgentChanged("w1")
	c.expect("$3 six", "GET", treeKey("shop_cart"))
	spoke.do("SET", treeKey("cart"), "ten")
	w.reconnect("w1")
	c.expect("$3 ten", "GET", treeKey("shop_cart"))
	spoke.do("DEL", treeKey("cart"))
	w.server.Invalidate("shop", "cart")
	c.expect("$-1", "GET", treeKey("shop_cart"))
}

func TestCache_UnusedValueNotKeptFresh(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.CacheIdle = 50 * time.Millisecond })
	w.spokes["w1"].do("SET", treeKey("cart"), "one")
	c := w.user()
	c.expect("$3 one", "GET", treeKey("shop_cart"))
	eventually(t, "the subscription was there", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.agents["w1"].dials >= 2
	})
	eventually(t, "the subscription is released", func() bool { return w.server.Stats().Subscriptions == 0 })
	w.disconnect("w1")
	c.expect("$3 one", "GET", treeKey("shop_cart"))
}

func TestCache_ChangeWithoutSubscriptionIsNoticed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.CacheIdle = 50 * time.Millisecond })
	spoke, cart := w.spokes["w1"], channelKey("shop_cart")
	for _, tree := range []string{"one", "two", "six"} {
		spoke.do("SET", treeKey("cart"), tree)
		spoke.do("PUBLISH", channelKey("cart"), "")
		// As Argo CD does for a user who opens the page of an Application and closes it.
		c := w.user3()
		c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
		c.receives(pushed("message", cart, ""))
		c.expect("$3 "+tree, "GET", treeKey("shop_cart"))
		c.close()
		eventually(t, "the channel is released", func() bool { return strings.HasSuffix(spoke.do("PUBSUB", "NUMSUB", channelKey("cart")), ":0") })
	}
}

func TestCache_StaleValueRefreshedInBackground(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.StaleAfter, c.Timeout = time.Millisecond, 10*time.Second })
	w.spokes["w1"].do("SET", treeKey("cart"), "one")
	c := w.user()
	c.expect("$3 one", "GET", treeKey("shop_cart"))
	w.spokes["w1"].do("SET", treeKey("cart"), "two")
	process := w.spokes["w1"].Process()
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.server.Invalidate("shop", "cart")
	c.expect("$3 one", "GET", treeKey("shop_cart"))
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new value is there", func() bool { return c.do("GET", treeKey("shop_cart")) == "$3 two" })
}
