package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/fleetui"
)

func serving(t *testing.T, b *agentrows.State, change func(*Server)) *Server {
	t.Helper()
	s, err := Listen(t.Context(), 0, b, agentrows.About{Hub: "the hub", Command: "argocd-agentctl", Expiring: 60}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.interval = time.Millisecond
	if change != nil {
		change(s)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := len(s.streams); n > 0 {
			t.Errorf("%d streams are open after the end", n)
		}
	})
	return s
}

// response is a response whose body is closed at the end of the test at the latest.
type response struct {
	StatusCode int
	Header     http.Header
	Body       io.ReadCloser
}

// request sends a request with headers as name, value, name, value …
func request(t *testing.T, method, url string, headers ...string) *response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &response{answer.StatusCode, answer.Header, answer.Body}
}

func TestServer_RequiresTokenAndOrigin(t *testing.T) {
	b := agentrows.NewState()
	put(t, b, agentrows.Row{Name: "secret-agent"})
	s := serving(t, b, nil)
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	root := "http://" + s.listener.Addr().String() + "/"
	for _, test := range []struct {
		name, method, url string
		headers           []string
		want              int
	}{
		{"page", "GET", s.URL(), nil, 200},
		{"page by host name localhost", "GET", s.URL(), []string{"Host", "localhost:" + port}, 200},
		{"page, typed URL", "GET", s.URL(), []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"page, by a link", "GET", s.URL(), []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200},
		{"root", "GET", root, nil, 404},
		{"stream without token", "GET", root + "v1/agents/stream", nil, 404},
		{"another token", "GET", root + strings.Repeat("A", len(s.token)) + "/", nil, 404},
		{"part of the token", "GET", root + s.token[:20] + "/", nil, 404},
		{"empty token", "GET", root + "/v1/agents/stream", nil, 404},
		{"script of the page", "GET", s.URL() + "page.js", nil, 200},
		{"styles of the page", "GET", s.URL() + "page.css", nil, 200},
		{"script without token", "GET", root + "page.js", nil, 404},
		{"old path of the stream", "GET", s.URL() + "events", nil, 404},
		{"unknown path", "GET", s.URL() + "other", nil, 404},
		{"rebound DNS name", "GET", s.URL(), []string{"Host", "evil.example:" + port}, 421},
		{"rebound DNS name for the stream", "GET", s.URL() + "v1/agents/stream", []string{"Host", "evil.example:" + port}, 421},
		{"host without port", "GET", s.URL(), []string{"Host", "127.0.0.1"}, 421},
		{"another port", "GET", s.URL(), []string{"Host", "127.0.0.1:1"}, 421},
		{"POST", "POST", s.URL(), nil, 405},
		{"preflight", "OPTIONS", s.URL() + "v1/agents/stream", []string{"Origin", "https://evil.example"}, 405},
		{"script of another page", "GET", s.URL() + "v1/agents/stream", []string{"Origin", "https://evil.example"}, 403},
		{"script of a page on another port", "GET", s.URL() + "v1/agents/stream", []string{"Origin", "http://localhost:1"}, 403},
		{"sandbox", "GET", s.URL() + "v1/agents/stream", []string{"Origin", "null"}, 403},
		{"image on another page", "GET", s.URL() + "v1/agents/stream", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"frame on a same-site page", "GET", s.URL(), []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
	} {
		answer := request(t, test.method, test.url, test.headers...)
		if answer.StatusCode != test.want {
			t.Errorf("%s: %d, want %d", test.name, answer.StatusCode, test.want)
		}
		if test.want != 200 {
			if body, _ := io.ReadAll(answer.Body); strings.Contains(string(body), "secret-agent") || strings.Contains(string(body), s.token) {
				t.Errorf("%s: response has a secret: %s", test.name, body)
			}
		}
		for name := range answer.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s allows other pages", test.name, name)
			}
		}
		for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Content-Security-Policy": fleetui.Policy} {
			if got := answer.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q", test.name, name, got)
			}
		}
	}
	if other := serving(t, b, nil); other.token == s.token || len(s.token) != 43 {
		t.Errorf("the token is %q, then %q", s.token, other.token)
	}
}

func put(t *testing.T, b *agentrows.State, r agentrows.Row) {
	t.Helper()
	if err := b.Set(r); err != nil {
		t.Fatal(err)
	}
}

// update is one event of a stream.
type update struct {
	Reset, More bool
	Rows        []json.RawMessage
	Deleted     []string
	About       *agentrows.About
}

// reader reads a stream like a browser.
type reader struct {
	t    *testing.T
	id   string
	size int // bytes received
	from *bufio.Reader
}

func open(t *testing.T, s *Server, after string) *reader {
	t.Helper()
	answer := request(t, "GET", s.URL()+"v1/agents/stream", "Last-Event-ID", after)
	if answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d, %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	return &reader{t: t, from: bufio.NewReader(answer.Body)}
}

func (r *reader) next() update {
	r.t.Helper()
	var n update
	for {
		line, err := r.from.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		r.size += len(line)
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			r.id = strings.TrimSpace(id)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &n); err != nil {
				r.t.Fatal(err)
			}
		}
		if line == "\n" {
			return n
		}
	}
}

func TestStream_ResumesAtLastEventID(t *testing.T) {
	b := agentrows.NewState()
	for i := range 50 {
		put(t, b, agentrows.Row{Name: fmt.Sprint("a", i)})
	}
	s := serving(t, b, nil)
	first := open(t, s, "")
	n := first.next()
	if !n.Reset || len(n.Rows) != 50 || n.About == nil || n.About.Hub != "the hub" || n.More {
		t.Errorf("at first: %+v", n)
	}
	put(t, b, agentrows.Row{Name: "a7", Diverged: 1})
	if n := first.next(); n.Reset || len(n.Rows) != 1 || n.About != nil {
		t.Errorf("after a change: %+v", n)
	}
	put(t, b, agentrows.Row{Name: "a8", Diverged: 1})
	b.Remove("a9")
	if n := open(t, s, first.id).next(); n.Reset || len(n.Rows)+len(n.Deleted) != 2 {
		t.Errorf("after a reconnect: %+v", n)
	}
	for _, invalid := range []string{"x", "1", "-1.-1", "9.99999999999999999999999", "0.0", "x.1.1", first.id + "9999999999999999999999", "18446744073709551615.1"} {
		if n := open(t, s, invalid).next(); !n.Reset || len(n.Rows) != 49 {
			t.Errorf("after %q: %+v", invalid, n)
		}
	}
}

// testSearch answers with what it received.
type testSearch struct{}

func (testSearch) Available() bool { return true }
func (testSearch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "search %s %s", r.URL.Path, r.URL.RawQuery)
}

func TestServer_ForwardsOnlySearches(t *testing.T) {
	body := func(s *Server, path string) string {
		t.Helper()
		answer := request(t, "GET", s.URL()+path)
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(text)))
	}
	with, without := serving(t, agentrows.NewState(), func(s *Server) { s.search = testSearch{} }), serving(t, agentrows.NewState(), nil)
	for path, want := range map[string]string{
		"v1/applications?query=a%3Db": "200 search /v1/applications query=a%3Db",
		"v1/counts":                   "200 search /v1/counts",
		"v1/watch":                    "200 search /v1/watch",
		"v1/agents/w1/timeline":       "200 search /v1/agents/w1/timeline",
		"v1/about":                    `200 {"hub":"the hub","command":"argocd-agentctl","expiring":60,"argocd":"","login":"none","applications":true,"user":""}`,
		"v1/application":              "404 Not found.",
		"v1/agents/w1":                "404 Not found.",
		"v1/agents//timeline":         "404 Not found.",
		"v1/agents/w1/timeline/x":     "404 Not found.",
		"v1/agents/a%2Fb/timeline":    "404 Not found.",
		"v2/applications":             "404 Not found.",
	} {
		if got := body(with, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
		if got := body(without, path); strings.HasPrefix(want, "200 search") && got != "404 Not found." || strings.Contains(got, `"applications":true`) {
			t.Errorf("without search, %s: %s", path, got)
		}
	}
}

func TestServer_LimitsStreams(t *testing.T) {
	s := serving(t, agentrows.NewState(), nil)
	var all []*response
	for range maxStreams {
		all = append(all, request(t, "GET", s.URL()+"v1/agents/stream"))
	}
	if answer := request(t, "GET", s.URL()+"v1/agents/stream"); answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("stream above the limit gets %d", answer.StatusCode)
	}
	_ = all[0].Body.Close()
	for deadline := time.Now().Add(time.Minute); ; {
		if request(t, "GET", s.URL()+"v1/agents/stream").StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a closed stream still counts")
		}
	}
}

// No queue grows for a browser that does not read.
func TestStream_DisconnectsSlowBrowserWithoutDelayingOthers(t *testing.T) {
	b := agentrows.NewState()
	big := strings.Repeat("x", 100_000)
	s := serving(t, b, func(s *Server) { s.writeTimeout = 300 * time.Millisecond })
	slow, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := fmt.Fprintf(slow, "GET /%s/v1/agents/stream HTTP/1.1\r\nHost: %s\r\n\r\n", s.token, s.listener.Addr()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); len(s.streams) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the slow stream does not start")
		}
		runtime.Gosched()
	}
	quick := open(t, s, "")
	quick.next()
	for i := int64(1); len(s.streams) == 2; i++ { // until the slow one is disconnected
		put(t, b, agentrows.Row{Name: "a", Version: big, Diverged: i})
		for seen := int64(0); seen < i; {
			var r agentrows.Row
			if n := quick.next(); len(n.Rows) == 1 {
				if err := json.Unmarshal(n.Rows[0], &r); err != nil {
					t.Fatal(err)
				}
			}
			seen = r.Diverged
		}
		if i > 100_000 {
			t.Fatal("the slow stream is never disconnected")
		}
	}
	if err := slow.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, slow); errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestListen_UsesLoopbackOnly(t *testing.T) {
	s := serving(t, agentrows.NewState(), nil)
	if addr, ok := s.listener.Addr().(*net.TCPAddr); !ok || !addr.IP.IsLoopback() || addr.IP.To4() == nil {
		t.Errorf("listens on %v", s.listener.Addr())
	}
	if _, err := Listen(t.Context(), s.listener.Addr().(*net.TCPAddr).Port, agentrows.NewState(), agentrows.About{}, nil); err == nil {
		t.Error("a used port is used again")
	}
}
