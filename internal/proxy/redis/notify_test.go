package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// assign changes the agent of an Application.
func (f *fleet) assign(app string, to Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets[app] = to
}

func TestSubscriptions_FollowApplicationToAnotherAgent(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.CacheIdle = 40 * time.Millisecond }).withTrees()
	cart, late := channelKey("shop_cart"), channelKey("shop_late")
	c := w.user3()
	c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	c.receives(pushed("message", cart, ""))
	w.assign("shop/cart", Target{Agent: "w2", Local: "other_far"})
	c.receives(pushed("message", cart, "")) // the client reads the tree of the other agent
	w.spokes["w2"].do("PUBLISH", channelKey("other_far"), "")
	c.receives(pushed("message", cart, ""))
	eventually(t, "the subscription at the first agent is released", func() bool {
		return strings.HasSuffix(w.spokes["w1"].do("PUBSUB", "NUMSUB", channelKey("cart")), ":0")
	})
	// An Application without an agent gets one later.
	c.expect(confirmed('>', "subscribe", late, "2"), "SUBSCRIBE", late)
	w.hub.do("PUBLISH", late, "the hub's")
	c.receives(pushed("message", late, "the hub's"))
	w.assign("shop/late", Target{Agent: "w1", Local: "till"})
	c.receives(pushed("message", late, ""))
	w.spokes["w1"].do("PUBLISH", channelKey("till"), "")
	c.receives(pushed("message", late, ""))
	c.expect(confirmed('>', "unsubscribe", late, "1"), "UNSUBSCRIBE", late)
	c.expect("+PONG", "PING")
}

// The number of subscribed Applications exceeds the number of requests in one packet.
func TestNotify_AllSubscribersAfterReconnect(t *testing.T) {
	const many = 6*channelsPerPacket + 100
	w := newWorld(t, nil)
	app := func(i int) string { return fmt.Sprintf("a%d", i) }
	names := []string{"SUBSCRIBE"}
	set := []string{"MSET"}
	for i := range many {
		w.assign("shop/"+app(i), Target{Agent: "w1", Local: app(i)})
		names = append(names, channelKey("shop_"+app(i)))
		if i%10 > 0 { // some have no tree
			set = append(set, treeKey(app(i)), `{"nodes":null}`)
		}
	}
	w.spokes["w1"].do(set...)
	c := w.user3()
	all := func(why string) {
		t.Helper()
		heard := map[string]int{}
		for len(heard) < many-(many+9)/10 {
			if got := c.reply(); strings.Contains(got, "message") {
				heard[got]++
			}
		}
		for i := range many {
			if n := heard[pushed("message", channelKey("shop_"+app(i)), "")]; (n > 0) != (i%10 > 0) {
				t.Fatalf("%s: Application %d was heard of %d times", why, i, n)
			}
		}
	}
	c.send(string(appendCommand(nil, names...)))
	all("subscribed")
	w.disconnect("w1")
	w.reconnect("w1")
	w.server.AgentChanged("w1")
	all("reconnected")
	// Requests to a busy agent are retried.
	pool := &w.server.agents
	pool.mu.Lock()
	p := pool.clients["w1"]
	pool.mu.Unlock()
	for range maxAgentConns {
		p.places <- struct{}{}
	}
	w.disconnect("w1")
	w.reconnect("w1")
	w.server.AgentChanged("w1")
	dueNow := func() (due, unconfirmed int) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		for _, ch := range p.channels {
			if !ch.confirmed {
				unconfirmed++
			}
			for s := range ch.subscribers {
				if s.due {
					due++
				}
			}
		}
		return due, unconfirmed
	}
	eventually(t, "all subscribers are due", func() bool {
		due, unconfirmed := dueNow()
		return due >= many-channelsPerPacket && unconfirmed == 0
	})
	for range maxAgentConns {
		<-p.places
	}
	all("after the agent was busy")
	eventually(t, "all subscribers are notified", func() bool {
		due, _ := dueNow()
		return due == 0
	})
}

// A hostile agent confirms every subscription and replies to other requests with an empty array.
func TestNotify_EmptyReplyIsAnError(t *testing.T) {
	exists := make(chan struct{}, 100)
	w := newWorld(t, nil)
	w.server.cfg.Dial = func(context.Context, string) (net.Conn, error) {
		near, far := tunnel(t)
		w.tasks.Go(func() {
			defer far.Close()
			for requests := newCommandReader(far, testLimits); ; {
				args, err := requests.next()
				if err != nil {
					return
				}
				reply := []byte("*0\r\n")
				if string(args[0]) == "SUBSCRIBE" {
					reply = messageReply(2, "subscribe", string(args[1]), "1")
				} else {
					exists <- struct{}{}
				}
				_, _ = far.Write(reply)
			}
		})
		return near, nil
	}
	c := w.user3()
	cart := channelKey("shop_cart")
	c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	<-exists
	<-exists // it is retried
	c.expect("+PONG", "PING")
}
