package redis

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

// The Server returns the same bytes as a Redis that has all values.
func TestPipelines_SameBytesAsRedis(t *testing.T) {
	w := newWorld(t, nil)
	all := startRedis(t, hubPassword)
	tree := strings.Repeat("tree", 1000)
	w.spokes["w1"].do("SET", treeKey("cart"), tree)
	all.do("SET", treeKey("shop_cart"), tree)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var clients sync.WaitGroup
	for i := range 6 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		hello := []string{"HELLO", fmt.Sprint(2 + i%2), "AUTH", "default", hubPassword}
		endpoint := all.endpoint()
		conn, err := endpoint.dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		model := &testClient{t: t, conn: conn, in: newReplyReader(conn, testLimits)}
		t.Cleanup(model.close)
		model.do(hello...)
		c := w.client()
		c.do(hello...)
		clients.Go(func() {
			for round := range 15 {
				if !samePipeline(t, c, model, random, fmt.Sprintf("%d|", i)) {
					t.Errorf("client %d, round %d, seed %d", i, round, seed)
					return
				}
			}
		})
	}
	clients.Wait()
}

// samePipeline sends one pipeline to both.
func samePipeline(t *testing.T, c, model *testClient, random *rand.Rand, mine string) bool {
	t.Helper()
	send, count := randomPipeline(random, mine)
	go func() { _, _ = model.conn.Write(send) }()
	var want []byte
	for range count {
		_ = model.conn.SetReadDeadline(time.Now().Add(time.Minute))
		reply, err := model.in.next()
		if err != nil {
			t.Error(err)
			return false
		}
		want = append(want, reply...)
	}
	sizes := rand.New(rand.NewPCG(random.Uint64(), 0))
	largest := max(1<<sizes.IntN(18), len(send)/2000)
	go func() {
		for piece := range pieces(send, func() int { return 1 + sizes.IntN(largest) }) {
			if _, err := c.conn.Write(piece); err != nil {
				return // the reader reports the error
			}
		}
	}()
	got := make([]byte, len(want))
	for n := 0; n < len(got); {
		_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
		some, err := c.conn.Read(got[n:min(len(got), n+1+random.IntN(100_000))])
		if n += some; err != nil || !bytes.Equal(got[:n], want[:n]) {
			at := 0
			for at < n && got[at] == want[at] {
				at++
			}
			t.Errorf("%q…: %d of %d bytes came (%v), and differ at %d: %q, not %q", abbreviate(string(send)), n, len(want), err, at,
				abbreviate(string(got[at:n])), abbreviate(string(want[at:])))
			return false
		}
	}
	return true
}

func randomPipeline(random *rand.Rand, mine string) (send []byte, count int) {
	key := func() string { return mine + fmt.Sprint(random.IntN(5)) }
	value := func() string {
		size := random.IntN(50)
		if random.IntN(10) == 0 {
			size = random.IntN(300_000)
		}
		return strings.Repeat(string(rune('a'+random.IntN(26))), size)
	}
	tree := treeKey("shop_cart")
	special := random.IntN(2) == 0 // otherwise all commands are forwarded
	for range 1 + random.IntN(100) {
		var args []string
		switch n := random.IntN(24); {
		case n < 8:
			args = []string{"get", key()}
		case n < 11:
			args = []string{"SET", key(), value()}
		case n < 13:
			args = []string{"MGET", key(), key(), "app|none"}
		case n == 13:
			args = []string{"DEL", key()}
		case n == 14:
			args = []string{"APPEND", key(), value()}
		case n == 15:
			args = []string{"INCR", key()} // mostly an error
		case n == 16:
			args = []string{"HSET", mine + "h", "f", value()} // the order of several fields is random
		case n == 17:
			args = []string{"HGETALL", mine + "h"}
		case n == 18:
			args = []string{"GET", key(), "too", "many"}
		case n == 19:
			args = []string{"PING"}
		case !special:
			args = []string{"ECHO", value()}
		case n == 20:
			args = []string{"GET", tree}
		case n == 21:
			args = []string{"get", tree}
		case n == 22:
			args = []string{"CLIENT", "SETNAME", "x"}
		case n == 23:
			args = []string{"SELECT", "0"}
		}
		if args != nil {
			send, count = appendCommand(send, args...), count+1
		}
	}
	return send, count
}
