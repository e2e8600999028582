package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// moves gives an Application to another agent, or to one at all.
func (f *fleet) moves(app string, to Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets[app] = to
}

func TestASubscriptionFollowsItsApplicationToAnotherAgent(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.CacheIdle = 40 * time.Millisecond }).withTrees()
	cart, late := channelKey("shop_cart"), channelKey("shop_late")
	c := w.user3()
	c.expect(confirmed('>', "subscribe", cart, "1"), "SUBSCRIBE", cart)
	c.hears(pushed("message", cart, ""))
	w.moves("shop/cart", Target{Agent: "w2", Local: "other_far"})
	c.hears(pushed("message", cart, "")) // whoever looks at it reads the other agent's tree
	w.spokes["w2"].do("PUBLISH", channelKey("other_far"), "")
	c.hears(pushed("message", cart, ""))
	eventually(t, "the first agent is not listened to any more", func() bool {
		return strings.HasSuffix(w.spokes["w1"].do("PUBSUB", "NUMSUB", channelKey("cart")), ":0")
	})
	// One that was nobody's, because nothing was known of it yet.
	c.expect(confirmed('>', "subscribe", late, "2"), "SUBSCRIBE", late)
	w.hub.do("PUBLISH", late, "the hub's")
	c.hears(pushed("message", late, "the hub's"))
	w.moves("shop/late", Target{Agent: "w1", Local: "till"})
	c.hears(pushed("message", late, ""))
	w.spokes["w1"].do("PUBLISH", channelKey("till"), "")
	c.hears(pushed("message", late, ""))
	c.expect(confirmed('>', "unsubscribe", late, "1"), "UNSUBSCRIBE", late)
	c.expect("+PONG", "PING")
}

// An agent may have more Applications that people look at than requests at a time.
func TestEveryClientIsRemindedWhenAnAgentComesBack(t *testing.T) {
	const many = 3*maxAsking + 100
	w := newWorld(t, nil)
	app := func(i int) string { return fmt.Sprintf("a%d", i) }
	names := []string{"SUBSCRIBE"}
	set := []string{"MSET"}
	for i := range many {
		w.moves("shop/"+app(i), Target{Agent: "w1", Local: app(i)})
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
	w.leaves("w1")
	w.returns("w1")
	w.server.AgentChanged("w1")
	all("the agent is back")
	// An agent that is too busy to be asked is asked again.
	p := w.server.agents.find("w1")
	p.asking.Add(maxAsking)
	w.leaves("w1")
	w.returns("w1")
	w.server.AgentChanged("w1")
	eventually(t, "many are waited for", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.reminders == parallelReminders
	})
	p.asking.Add(-maxAsking)
	all("when it is not busy any more")
	eventually(t, "nobody reminds any more", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.reminders == 0 && len(p.due) == 0
	})
}
