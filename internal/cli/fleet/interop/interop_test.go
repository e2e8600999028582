// Package interop runs the script of the fleet page with the HTML, policy and stream of the real server. Only the browser
// is a fake, see dom.js.
//
// It is a separate module, so that the product does not depend on a JavaScript interpreter.
package interop

import (
	"bufio"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/dop251/goja"
	"golang.org/x/net/html"

	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
)

//go:embed dom.js
var dom string

// now is the time in all tests.
const now = 1_800_000_000

// browser shows the page of a State.
type browser struct {
	*testing.T
	state  *fleet.State
	vm     *goja.Runtime
	stream *bufio.Scanner
}

func opened(t *testing.T, rows ...fleet.Row) *browser {
	t.Helper()
	b := &browser{T: t, state: fleet.NewState(), vm: goja.New()}
	for _, r := range rows {
		b.set(r)
	}
	server, err := fleet.Listen(t.Context(), 0, b.state, fleet.About{Hub: "the hub", Command: "argocd-agentctl", Expiring: 3600})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	page := b.get(server.URL())
	document, err := html.Parse(page.Body)
	if err != nil {
		t.Fatal(err)
	}
	b.js(dom)
	b.js(fmt.Sprintf("clock = %d000", now))
	if err := b.vm.Set("parsed", tree(document)); err != nil {
		t.Fatal(err)
	}
	b.js("root.appendChild(load(parsed))")
	for _, script := range find(document, "script") {
		b.js(allowed(t, page.Header, "script-src", script))
	}
	allowed(t, page.Header, "style-src", find(document, "style")[0])
	if url := b.js("streams[0].url"); url != "events" {
		t.Fatalf("the stream is %s", url)
	}
	b.stream = bufio.NewScanner(b.get(server.URL() + "events").Body)
	b.stream.Buffer(nil, 1<<22)
	b.receive()
	return b
}

func (b *browser) get(url string) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatal(answer, err)
	}
	b.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// allowed returns the content of an element if the policy allows it.
func allowed(t *testing.T, h http.Header, rule string, e *html.Node) string {
	t.Helper()
	sum := sha256.Sum256([]byte(e.FirstChild.Data))
	if want := rule + " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "';"; !strings.Contains(h.Get("Content-Security-Policy"), want) {
		t.Fatalf("the policy %q has no %s", h.Get("Content-Security-Policy"), want)
	}
	return e.FirstChild.Data
}

func find(n *html.Node, tag string) (all []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && d.Data == tag {
			all = append(all, d)
		}
	}
	return all
}

// tree converts a parsed document for dom.js.
func tree(n *html.Node) map[string]any {
	out := map[string]any{"tag": n.Data, "text": "", "attributes": map[string]any{}}
	if n.Type == html.TextNode {
		out["tag"], out["text"] = "#text", n.Data
	}
	for _, a := range n.Attr {
		out["attributes"].(map[string]any)[a.Key] = a.Val
	}
	var children []any
	for c := range n.ChildNodes() {
		if c.Type != html.TextNode || strings.TrimSpace(c.Data) != "" {
			children = append(children, tree(c))
		}
	}
	out["children"] = children
	return out
}

// js runs a script in the page and returns its value.
func (b *browser) js(script string) string {
	b.Helper()
	v, err := b.vm.RunString(script)
	if err != nil {
		b.Fatalf("%s: %v", script[:min(len(script), 80)], err)
	}
	return v.String()
}

// sees compares the value of a script.
func (b *browser) sees(script, want string) {
	b.Helper()
	if got := b.js(script); got != want {
		b.Errorf("%s is\n%s\nwant\n%s", script, got, want)
	}
}

func (b *browser) set(r fleet.Row) {
	b.Helper()
	if err := b.state.Set(r); err != nil {
		b.Fatal(err)
	}
}

// receive applies the events of the stream until the update is complete, and draws.
func (b *browser) receive() {
	b.Helper()
	for b.stream.Scan() {
		data, ok := strings.CutPrefix(b.stream.Text(), "data: ")
		if !ok {
			continue
		}
		if err := b.vm.Set("data", data); err != nil {
			b.Fatal(err)
		}
		if b.js("streams[streams.length-1].onmessage({data}); JSON.parse(data).more || ''") == "" {
			b.js("frame()")
			return
		}
	}
	b.Fatal("the stream has ended")
}
