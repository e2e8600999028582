package live

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestReplicas_AsksTheAgentOfAnotherPrincipal(t *testing.T) {
	for _, c := range []struct{ status, body, want string }{
		{"200 OK", `{"session":"u","hubs":{"u":2},"items":[{"scope":"application","name":"a","content":{"uid":"x"}}],"next":"p"}`, ""},
		{"403 Forbidden", "no\x1b[31m", "agent a refuses: no [31m"},
		{"200 OK", "[", "read the response of agent a"},
	} {
		q := newPair(t, nil, nil)
		asked := make(chan string, 1)
		go func() {
			far := <-q.tunnels
			defer far.Close()
			request, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				asked <- err.Error()
				return
			}
			asked <- request.URL.RawQuery
			fmt.Fprintf(far, "HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", c.status, len(c.body), c.body)
		}()
		page, err := q.here.Replicas(t.Context(), "a", "u", "x y")
		if got := <-asked; got != "after=x+y&hub=u" {
			t.Errorf("the agent was asked for %q", got)
		}
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			continue
		}
		if err != nil || page.Session != "u" || page.Hubs["u"] != 2 || len(page.Items) != 1 || string(page.Items[0].Content) != `{"uid":"x"}` || page.Next != "p" {
			t.Errorf("%+v %v", page, err)
		}
	}
}
