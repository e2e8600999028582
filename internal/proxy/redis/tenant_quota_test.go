package redis

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// readsUnderWay reports whether an agent has requested at least n of its maxReads small values, or as many bytes.
func (l *tenants) readsUnderWay(agent string, n int64) bool {
	limits := l.Limits.withDefaults()
	reads, rest := l.quota(agent, limits).reads, (maxReads-n+1)*(limits.Waiting/maxReads)
	if !reads.tryAcquire(rest) {
		return true
	}
	reads.release(rest)
	return false
}

func calls(t *testing.T, hub *realRedis, command string) int {
	t.Helper()
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(hub.do("INFO", "commandstats"))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTenantQuota_LimitsBufferedBytes(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{Value: 8 << 20, Waiting: 16 << 20})
	a, b := l.client("w1"), l.client("w1")
	value := strings.Repeat("x", 6<<20)
	a.expect("+OK", "SET", "k", value, "EX", "100")
	for _, change := range [][]string{{"EX", "1", "NX"}, {"nx", "px", "1"}} { // Redis keeps the old value, which still counts
		a.expect("$-1", append([]string{"SET", "k", "small"}, change...)...)
	}
	mine := l.quota("w1", l.Limits.withDefaults())
	mine.mu.Lock()
	if kept := mine.keys[hashKey([]byte("k"))]; kept.size <= len(value) || time.Until(kept.until) < 50*time.Second {
		t.Errorf("the quota has %d bytes, until %s", kept.size, kept.until)
	}
	mine.mu.Unlock()
	if got := a.do("MGET", "k", "k", "k"); !strings.HasPrefix(got, "-NOPERM MGET of 3 keys can return too many bytes") {
		t.Error(abbreviate(got))
	}
	if got := a.do("MGET", "unknown", "too", "also"); !strings.HasPrefix(got, "-NOPERM MGET of 3 keys") {
		t.Error(abbreviate(got))
	}
	const asked = 12
	var send []byte
	for range asked {
		send = appendCommand(send, "GET", "k")
	}
	for _, c := range []*testClient{a, b} {
		c.send(string(send)) // and does not read the replies
	}
	eventually(t, "the agent reached its limit", func() bool { return l.readsUnderWay("w1", maxReads*3/4) })
	if n := calls(t, hub, "get"); n > asked { // two wait in Redis, others are in socket buffers
		t.Errorf("Redis was asked %d times", n)
	}
	var readers sync.WaitGroup
	for _, c := range []*testClient{a, b} { // each waits for replies that the other has not read
		readers.Go(func() {
			_ = c.conn.SetReadDeadline(time.Now().Add(time.Minute))
			for range asked {
				if got, err := c.in.next(); err != nil || len(got) < len(value) {
					t.Errorf("got %s, %v", abbreviate(string(got)), err)
					return
				}
			}
		})
	}
	readers.Wait()
	eventually(t, "completed reads do not count", func() bool { return !l.readsUnderWay("w1", 1) })
}

func TestTenantQuota_LimitsBufferedValues(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{})
	a, other := l.client("w1"), l.client("w1")
	value := strings.Repeat("x", 4<<20)
	a.expect("+OK", "SET", "k", value, "EX", "100")
	const asked = 100
	var send []byte
	for range asked {
		send = appendCommand(send, "GET", "k")
	}
	send = appendCommand(send, "MGET", "k", "none", "k")
	a.send(string(send)) // and does not read the replies
	eventually(t, "the agent reached its limit", func() bool { return l.readsUnderWay("w1", maxReads) })
	// Some replies are in socket buffers.
	if n := calls(t, hub, "get"); n == 0 || n > 3*maxReads {
		t.Errorf("Redis was asked %d times", n)
	}
	other.expect("+PONG", "PING")            // does not wait
	l.client("w2").expect("$-1", "GET", "k") // another agent does not wait either
	other.send(string(appendCommand(nil, "GET", "none")))
	for i := range asked {
		if got := a.reply(); len(got) < len(value) {
			t.Fatalf("answer %d is %s", i, abbreviate(got))
		}
	}
	if got := a.reply(); !strings.HasPrefix(got, "*3 $4194304 x") || len(got) < 2*len(value) {
		t.Errorf("several at once: %s", abbreviate(got))
	}
	if got := other.reply(); got != "$-1" {
		t.Errorf("the waiting connection receives %s", abbreviate(got))
	}
	eventually(t, "completed reads do not count", func() bool { return !l.readsUnderWay("w1", 1) })
}

func TestTenantQuota_ReleasedOnDisconnect(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{})
	a := l.client("w1")
	a.expect("+OK", "SET", "k", strings.Repeat("x", 4<<20), "EX", "100")
	var send []byte
	for range 100 {
		send = appendCommand(send, "GET", "k")
	}
	a.send(string(send))
	eventually(t, "the agent reached its limit", func() bool { return l.readsUnderWay("w1", maxReads) })
	a.close()
	eventually(t, "nothing counts", func() bool { return !l.readsUnderWay("w1", 1) })
	b := l.client("w1")
	b.expect("*2 $-1 $-1", "MGET", "y", "z")
	for range 2 * maxReads { // refused requests do not count
		if got := b.do("GET", "a", "b"); !strings.HasPrefix(got, "-NOPERM") {
			t.Fatal(got)
		}
	}
	b.expect("$-1", "GET", "y")
}

// Large requests and replies share one memory limit. A request that waits for replies must not hold memory.
func TestTenantQuota_LargeRequestsAndReadsDoNotDeadlock(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := newTenants(t, hub, TenantLimits{Passing: 3 << 20})
	value := strings.Repeat("x", 2<<20)
	const clients, rounds, gets = 4, 3, maxReads + 4
	done := make(chan error)
	for i := range clients {
		c := l.client("w1")
		key := fmt.Sprint(i)
		go func() {
			for range rounds {
				send := appendCommand(nil, "SET", key, value, "EX", "100")
				for range gets {
					send = appendCommand(send, "GET", key)
				}
				if _, err := c.conn.Write(send); err != nil {
					return // the reader reports the error
				}
			}
		}()
		go func() {
			for range rounds * (gets + 1) {
				if b, err := c.in.next(); err != nil || b[0] == '-' {
					done <- fmt.Errorf("%s: %w", abbreviate(string(b)), err)
					return
				}
			}
			done <- nil
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestTenants_RepliesBeforeQuit(t *testing.T) {
	c := newTenants(t, startRedis(t, hubPassword), TenantLimits{}).client("w1")
	c.send(string(appendCommand(appendCommand(nil, "GET", "none"), "QUIT")))
	if rest := c.ends(); rest != "$-1\r\n+OK\r\n" {
		t.Errorf("got %q", rest)
	}
}

func TestTenantQuota_LimitsAllAgents(t *testing.T) {
	tenants := &Tenants{}
	limits := TenantLimits{Total: 100}.withDefaults()
	charge := func(agent, key string, size int, life time.Duration) string {
		return tenants.quota(agent, limits).charge(agent, []byte(key), size, life, false, limits)
	}
	if why := charge("w1", "a", 60, time.Hour) + charge("w2", "a", 40, -time.Second); why != "" {
		t.Fatal(why)
	}
	if why := charge("w3", "a", 1, time.Hour); !strings.Contains(why, "all agents store 100 bytes") {
		t.Errorf("beyond the total: %q", why)
	}
	if why := charge("w1", "a", 50, time.Hour); why != "" {
		t.Errorf("a smaller value: %s", why)
	}
	tenants.dropExpired() // of w2
	if why := charge("w3", "a", 50, time.Hour); why != "" {
		t.Errorf("after values have expired: %s", why)
	}
	tenants.Forget("w1")
	if n := tenants.stored.Load(); n != 50 {
		t.Errorf("%d bytes are counted", n)
	}
	tenants.quota("w3", limits).remove([]byte("a"))
	if n := tenants.stored.Load(); n != 0 {
		t.Errorf("%d bytes are counted after the deletion", n)
	}
}
