package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Who knows that a refresh is done must read what it led to, whoever else reads the same key at that time, and whatever
// happens to the agent's connection.
func TestNobodyReadsATreeFromBeforeARefresh(t *testing.T) {
	w := newWorld(t, nil)
	endpoint := w.spokes["w1"].endpoint()
	conn, err := endpoint.connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	controller := &testClient{t: t, conn: conn, in: newReader(conn, testLimits)}
	defer controller.close()
	controller.expect("+OK", "SET", treeKey("cart"), "0")

	// Others keep reading, and never see time run backwards for longer than an answer is under way.
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	for range 4 {
		c := w.user3()
		readers.Go(func() {
			for ctx.Err() == nil {
				if got := c.do("GET", treeKey("shop_cart")); !strings.HasPrefix(got, "$") {
					t.Errorf("got %q", got)
					return
				}
			}
		})
	}
	defer func() {
		cancel()
		readers.Wait()
	}()

	clicker := w.user()
	listener := w.user3()
	listener.expect(confirmed('>', "subscribe", channelKey("shop_cart"), "1"), "SUBSCRIBE", channelKey("shop_cart"))
	for i := 1; i <= 200; i++ {
		controller.expect("+OK", "SET", treeKey("cart"), strconv.Itoa(i))
		if i%2 == 0 {
			controller.do("PUBLISH", channelKey("cart"), "")
		}
		if i%50 == 0 {
			w.leaves("w1")
			w.returns("w1")
		}
		w.server.Invalidate("shop", "cart")
		got := clicker.do("GET", treeKey("shop_cart"))
		if got != bulkReply(strconv.Itoa(i)) {
			t.Fatalf("after refresh %d the tree is %q", i, got)
		}
	}
}
