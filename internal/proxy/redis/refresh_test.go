package redis

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// After Invalidate, a client reads the current tree, even if other clients read the same key at the same time and the
// agent reconnects.
func TestInvalidate_NoStaleTreeAfterRefresh(t *testing.T) {
	w := newWorld(t, nil)
	endpoint := w.spokes["w1"].endpoint()
	conn, err := endpoint.connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	controller := &testClient{t: t, conn: conn, in: newReplyReader(conn, testLimits)}
	defer controller.close()
	controller.expect("+OK", "SET", treeKey("cart"), "0")

	// Other clients read all the time.
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

	refresher := w.user()
	listener := w.user3()
	listener.expect(confirmed('>', "subscribe", channelKey("shop_cart"), "1"), "SUBSCRIBE", channelKey("shop_cart"))
	for i := 1; i <= 200; i++ {
		controller.expect("+OK", "SET", treeKey("cart"), strconv.Itoa(i))
		if i%2 == 0 {
			controller.do("PUBLISH", channelKey("cart"), "")
		}
		if i%50 == 0 {
			w.disconnect("w1")
			w.reconnect("w1")
		}
		w.server.Invalidate("shop", "cart")
		got := refresher.do("GET", treeKey("shop_cart"))
		if got != bulkReply(strconv.Itoa(i)) {
			t.Fatalf("after refresh %d the tree is %q", i, got)
		}
	}
}
