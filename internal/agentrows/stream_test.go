package agentrows

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// rights are the agents that a client may see. The zero value refuses it.
type rights struct {
	mu    sync.Mutex
	names map[string]bool
	err   error
}

func (v *rights) set(err error, names ...string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err, v.names = err, map[string]bool{}
	for _, name := range names {
		v.names[name] = true
	}
}

func (v *rights) now(context.Context) (map[string]bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.names, v.err
}

// client reads one stream.
type client struct {
	*testing.T
	lines *bufio.Scanner
	id    string
}

func connect(t *testing.T, url, after string) *client {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", after)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d", answer.StatusCode)
	}
	return &client{T: t, lines: bufio.NewScanner(answer.Body)}
}

// next returns the next event that is no heartbeat, as text. It is "end" at the end.
func (c *client) next() string {
	c.Helper()
	for c.lines.Scan() {
		if id, ok := strings.CutPrefix(c.lines.Text(), "id: "); ok {
			c.id = id
		}
		data, ok := strings.CutPrefix(c.lines.Text(), "data: ")
		if !ok || data == "{}" {
			continue
		}
		var n update
		if err := json.Unmarshal([]byte(data), &n); err != nil {
			c.Fatal(err)
		}
		var names []string
		for _, one := range n.Rows {
			var r Row
			if err := json.Unmarshal(one, &r); err != nil {
				c.Fatal(err)
			}
			names = append(names, r.Name)
		}
		slices.Sort(names)
		return strings.TrimSpace(fmt.Sprintf("reset=%t %s -%s", n.Reset, strings.Join(names, " "), strings.Join(n.Deleted, " ")))
	}
	return "end"
}

func TestStream_ShowsOnlyVisibleRows(t *testing.T) {
	b, v := NewState(), &rights{}
	for _, name := range []string{"a", "b", "secret"} {
		put(t, b, Row{Name: name})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := Stream{State: b, Visible: v.now, Chunk: 1 << 20, Interval: time.Millisecond, Heartbeat: 5 * time.Millisecond, WriteTimeout: time.Minute}
		if err := s.Serve(r.Context(), w, r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	v.set(nil, "a")
	c := connect(t, server.URL, "")
	expect := func(c *client, want string) {
		t.Helper()
		if got := c.next(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect(c, "reset=true a -")
	put(t, b, Row{Name: "secret", Diverged: 1})
	b.Remove("secret")
	put(t, b, Row{Name: "a", Diverged: 1})
	expect(c, "reset=false a -")
	v.set(nil, "a", "b") // a right that was granted
	expect(c, "reset=true a b -")
	v.set(nil, "b") // and one that was withdrawn
	expect(c, "reset=true b -")
	// The cursor of a restricted stream is not one of a stream with all rows, and the other way round.
	v.mu.Lock()
	v.names = nil
	v.mu.Unlock()
	expect(c, "reset=true a b -")
	all := connect(t, server.URL, c.id)
	put(t, b, Row{Name: "a", Diverged: 2})
	expect(all, "reset=false a -")
	v.set(nil, "b")
	expect(connect(t, server.URL, all.id), "reset=true b -")
	expect(all, "reset=true b -")
	v.mu.Lock()
	v.names = nil
	v.mu.Unlock()
	if got := connect(t, server.URL, all.id).next(); got != "reset=true a b -" {
		t.Errorf("after a restricted stream: %s", got)
	}
	v.set(errors.New("no longer"))
	for got := ""; got != "end"; got = c.next() {
	}
	answer, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("without rights: %d", answer.StatusCode)
	}
}
