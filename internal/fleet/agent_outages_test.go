package fleet

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func TestAComplaintLastsAsLongAsItsTunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var news []string
		var c *agentOutages
		c = newAgentOutages(func(agent string) {
			mu.Lock()
			defer mu.Unlock()
			news = append(news, agent+"="+c.get(agent))
		})
		var wg sync.WaitGroup
		tunnel := func(agent string) net.Conn {
			here, there := net.Pipe()
			wg.Go(func() { c.serve(t.Context(), agent, there); _ = there.Close() })
			synctest.Wait()
			return here
		}
		says := func(conn net.Conn, text string) {
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(conn, text)
			synctest.Wait()
		}
		is := func(agent, want string) {
			t.Helper()
			if got := c.get(agent); got != want {
				t.Fatalf("%s complains of %q, want %q", agent, got, want)
			}
		}
		a, b := tunnel("a"), tunnel("b")
		says(a, "etcd is full\n")
		says(b, "still a part of a line")
		is("a", "etcd is full")
		is("b", "")
		says(a, "etcd is full\n") // again
		says(a, "it answers 429\x1b[2J\n")
		is("a", "it answers 429 [2J")

		newer := tunnel("a") // an agent that has come back before its old tunnel was missed
		says(newer, "away\n")
		_ = a.Close()
		synctest.Wait()
		is("a", "away")
		_ = newer.Close()
		synctest.Wait()
		is("a", "")

		says(b, strings.Repeat("x", 2*maxOutageLine)) // not listened to any more
		is("b", "")
		if got := strings.Join(news, "; "); got != "a=etcd is full; a=it answers 429 [2J; a=away; a=" {
			t.Errorf("news: %s", got)
		}
		_ = b.Close()
		wg.Wait()
		if len(c.known) > 0 {
			t.Errorf("left: %v", c.known)
		}
	})
}

func TestStatusSaysThatTheClusterTakesNoWrites(t *testing.T) {
	v := look(t, v1alpha1.Status{}, openSeat(1))
	s := v.status()
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionWritable {
			t.Fatalf("it says %+v without a reason", c)
		}
	}
	v.writeOutage = "since then the API server cannot take writes: it is full"
	s = v.status()
	is(t, s, v1alpha1.ConditionWritable, "False", "it is full")

	v = look(t, s, openSeat(1))
	is(t, v.status(), v1alpha1.ConditionWritable, "True")

	gone := openSeat(1)
	gone.open = false
	is(t, look(t, s, gone).status(), v1alpha1.ConditionWritable, "Unknown")
}
