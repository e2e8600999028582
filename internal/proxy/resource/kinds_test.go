package resource

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// catalogue is an API server that serves only discovery.
type catalogue struct {
	groups map[string]string // path → name=kind of its one resource
	broken bool
	asked  int
}

func (c *catalogue) RoundTrip(r *http.Request) (*http.Response, error) {
	c.asked++
	if c.broken {
		return nil, errors.New("connection refused")
	}
	resource, there := c.groups[r.URL.Path]
	if !there {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
	}
	name, kind, _ := strings.Cut(resource, "=")
	body := fmt.Sprintf(`{"resources":[{"name":%q,"kind":%q},{"name":"%s/status","kind":"X"}]}`, name, kind, name)
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestKindResolver_ForgetsRemovedKinds(t *testing.T) {
	server := &catalogue{groups: map[string]string{"/apis/a/v1": "widgets=Widget"}}
	now := time.Unix(1_000_000, 0)
	k := newKindResolver(APIServer{URL: &url.URL{Scheme: "http", Host: "x"}, Common: server})
	k.now = func() time.Time { return now }
	is := func(want string) {
		t.Helper()
		if got, err := k.of(t.Context(), "a", "v1", "widgets"); err != nil || got != want {
			t.Errorf("it is %q, %v; want %q", got, err, want)
		}
	}
	is("Widget")
	server.groups["/apis/a/v1"] = "widgets=Gadget" // deleted, and another made
	is("Widget")
	now = now.Add(maxKindsAge)
	is("Gadget")
	server.broken = true
	now = now.Add(maxKindsAge)
	asked := server.asked
	is("Gadget") // better than nothing
	is("Gadget")
	if server.asked != asked+1 {
		t.Errorf("an API server that does not answer was asked %d times", server.asked-asked)
	}
	server.broken = false
	delete(server.groups, "/apis/a/v1")
	now = now.Add(minKindsAge)
	is("")
	now = now.Add(minKindsAge)
	asked = server.asked
	is("")
	is("")
	if server.asked != asked+1 {
		t.Errorf("what does not exist was asked for %d times", server.asked-asked)
	}
}

func TestKindResolver_IsBounded(t *testing.T) {
	server := &catalogue{groups: map[string]string{"/apis/good/v1": "widgets=Widget"}}
	now := time.Unix(1_000_000, 0)
	k := newKindResolver(APIServer{URL: &url.URL{Scheme: "http", Host: "x"}, Common: server})
	k.now = func() time.Time { return now }
	ask := func(group string) string {
		t.Helper()
		kind, err := k.of(t.Context(), group, "v1", "widgets")
		if err != nil {
			t.Fatal(err)
		}
		return kind
	}
	ask("good")
	for i := range 3 * maxGroups { // by one who tries names
		now = now.Add(time.Millisecond)
		ask(fmt.Sprintf("bad%d", i))
	}
	asked := server.asked
	if got := ask("good"); got != "Widget" || server.asked != asked {
		t.Errorf("what exists was forgotten for what does not: %q, asked %d times more", got, server.asked-asked)
	}
	if len(k.groups) > maxGroups {
		t.Errorf("%d groups are kept", len(k.groups))
	}
	for i := range 2 * maxGroups {
		group := fmt.Sprintf("good%d", i)
		server.groups["/apis/"+group+"/v1"] = "widgets=Widget"
		ask(group)
	}
	if len(k.groups) > maxGroups {
		t.Errorf("%d groups that exist are kept", len(k.groups))
	}
}
