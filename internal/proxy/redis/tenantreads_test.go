package redis

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// readsUnderWay tells whether an agent has asked for as many values as it may.
func (l *tenants) readsUnderWay(agent string, n int64) bool {
	reads := l.share(agent, l.Limits.withDefaults()).reads
	if !reads.TryAcquire(maxReads - n + 1) {
		return true
	}
	reads.Release(maxReads - n + 1)
	return false
}

func TestFewValuesOfATenantWaitInRedis(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := lodge(t, hub, TenantLimits{})
	a, other := l.client("w1"), l.client("w1")
	value := strings.Repeat("x", 4<<20)
	a.expect("+OK", "SET", "k", value, "EX", "100")
	const asked = 100
	var send []byte
	for range asked {
		send = appendCommand(send, "GET", "k")
	}
	send = appendCommand(send, "MGET", "k", "none", "k")
	a.send(string(send)) // and takes no answer
	eventually(t, "the agent has asked for what it may", func() bool { return l.readsUnderWay("w1", maxReads) })
	calls := regexp.MustCompile(`cmdstat_get:calls=(\d+)`).FindStringSubmatch(hub.do("INFO", "commandstats"))
	if calls == nil {
		t.Fatal("Redis was asked for nothing")
	}
	// Some answers have left Redis, and are in the buffers of connections.
	if n, err := strconv.Atoi(calls[1]); err != nil || n > 3*maxReads {
		t.Errorf("Redis was asked %s times: %v", calls[1], err)
	}
	other.expect("+PONG", "PING")            // waits for nothing
	l.client("w2").expect("$-1", "GET", "k") // nor does another agent
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
		t.Errorf("who has waited gets %s", abbreviate(got))
	}
	if l.readsUnderWay("w1", 1) {
		t.Error("what was answered counts still")
	}
}

func TestATenantThatLeavesWaitsForNothing(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := lodge(t, hub, TenantLimits{})
	a := l.client("w1")
	a.expect("+OK", "SET", "k", strings.Repeat("x", 4<<20), "EX", "100")
	var send []byte
	for range 100 {
		send = appendCommand(send, "GET", "k")
	}
	a.send(string(send))
	eventually(t, "the agent has asked for what it may", func() bool { return l.readsUnderWay("w1", maxReads) })
	a.close()
	eventually(t, "nothing counts", func() bool { return !l.readsUnderWay("w1", 1) })
	b := l.client("w1")
	got := b.do(append([]string{"MGET"}, strings.Split(strings.Repeat("y", maxReads), "")...)...)
	if !strings.HasPrefix(got, fmt.Sprintf("*%d $-1", maxReads)) {
		t.Errorf("who comes later gets %s", abbreviate(got))
	}
	for range 2 * maxReads { // what is refused does not count
		if got := b.do("GET", "a", "b"); !strings.HasPrefix(got, "-NOPERM") {
			t.Fatal(got)
		}
	}
	b.expect("$-1", "GET", "y")
}

// Requests and answers share the room for what is large. Whoever waits for an answer must not hold any.
func TestLargeRequestsOfATenantDoNotWaitForItsReads(t *testing.T) {
	hub := startRedis(t, hubPassword)
	l := lodge(t, hub, TenantLimits{Passing: 3 << 20})
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
					return // the reader tells
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

func TestWhatATenantAsksBeforeQuitIsAnswered(t *testing.T) {
	c := lodge(t, startRedis(t, hubPassword), TenantLimits{}).client("w1")
	c.send(string(appendCommand(appendCommand(nil, "GET", "none"), "QUIT")))
	if rest := c.ends(); rest != "$-1\r\n+OK\r\n" {
		t.Errorf("got %q", rest)
	}
}
