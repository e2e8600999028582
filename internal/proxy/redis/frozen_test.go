package redis

import "testing"

// For a frozen Application, the value in the hub's Redis is the reply. If there is none, the reply is an error, because
// Argo CD would wait for a refresh.
func TestFrozenApplication_NotReadFromAgent(t *testing.T) {
	w := newWorld(t, nil)
	w.mu.Lock()
	w.targets["shop/astray"] = Target{Frozen: "it is frozen"}
	w.targets["shop/hybrid"] = Target{Frozen: "it is frozen"}
	w.mu.Unlock()
	for _, spoke := range w.spokes {
		spoke.do("SET", treeKey("astray"), "of an agent")
		spoke.do("SET", treeKey("shop_astray"), "of an agent")
	}
	w.hub.do("SET", treeKey("shop_hybrid"), "of the hub's controller")
	for _, c := range []*testClient{w.user(), w.user3()} {
		for range 2 {
			c.expect("-ERR argocd-agent: it is frozen", "GET", treeKey("shop_astray"))
			c.expect("-ERR argocd-agent: it is frozen", "GET", treeKey("shop_astray")+".gz")
			c.expect("-ERR argocd-agent: it is frozen", "GET", channelKey("shop_astray"))
			c.expect("-ERR argocd-agent: it is frozen", "GET", "app|resources-tree|shop_astray|3|1.8.3")
			c.expect(bulkReply("of the hub's controller"), "GET", treeKey("shop_hybrid"))
			c.expect(":0", "EXISTS", treeKey("shop_astray"))
		}
	}
	// The hub's controller can use the proxy, too.
	c := w.user()
	c.expect("+OK", "SET", treeKey("shop_astray"), "of the hub's controller")
	c.expect(bulkReply("of the hub's controller"), "GET", treeKey("shop_astray"))
	c.expect(":1", "DEL", treeKey("shop_astray"))
	// The same in a pipeline.
	c.send(string(appendCommand(appendCommand(appendCommand(nil, "SET", "k", "v"), "GET", treeKey("shop_astray")), "GET", "k")))
	for _, want := range []string{"+OK", "-ERR argocd-agent: it is frozen", "$1 v"} {
		if got := c.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	w.client().expect("-NOAUTH Authentication required.", "GET", treeKey("shop_astray"))
	w.server.Invalidate("shop", "astray")
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, a := range w.agents {
		if a.dials > 0 {
			t.Errorf("agent %s was contacted", name)
		}
	}
}
