package resource

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soon bounds what has to happen at once; it is long because machines can be slow.
const soon = 20 * time.Second

func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(soon):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

func TestHub_StripsTheCallersIdentity(t *testing.T) {
	seen := make(chan *http.Request, 1)
	s := newStage(t, fakeServer(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r }), options{})
	s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p?x=1", nil,
		"Authorization", "Bearer stolen", "Cookie", "c=d", "X-Remote-User", "admin",
		"X-Forwarded-For", "1.2.3.4", "Forwarded", "for=1.2.3.4", "Proxy-Authorization", "Basic x", "Idempotency-Key", "k", "Audit-Id", "chosen",
		"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.c3RvbGVu, v5.channel.k8s.io",
		"X-Custom", "kept", "Accept", "application/json", "User-Agent", "kubectl")
	r := await(t, "request", seen)
	for name := range r.Header {
		switch name {
		case "X-Custom", "Accept", "User-Agent", "Accept-Encoding", "Sec-Websocket-Protocol":
		case "Audit-Id":
			if r.Header.Get(name) == "chosen" {
				t.Error("the caller chose the ID of the request")
			}
		default:
			t.Errorf("%s: %q arrived", name, r.Header[name])
		}
	}
	if r.Header.Get("X-Custom") != "kept" || r.Header.Get("Sec-Websocket-Protocol") != "v5.channel.k8s.io" || r.UserAgent() != "kubectl" {
		t.Errorf("what should pass did not: %v", r.Header)
	}
	if r.Host != s.agent.config.Server.URL.Host || r.RequestURI != "/api/v1/namespaces/a/pods/p?x=1" {
		t.Errorf("it was for %s at %s", r.RequestURI, r.Host)
	}
}

func TestProxy_BodiesOfAnySize(t *testing.T) {
	const size = 64 << 20
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		fullDuplex(w)
		n, err := io.Copy(w, r.Body) // back as it comes
		if err != nil || n != size {
			t.Errorf("%d bytes arrived: %v", n, err)
		}
	}), options{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+"/api/v1/namespaces/a/pods", io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); n != size || err != nil {
		t.Errorf("%d bytes came back: %v", n, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestProxy_StreamIsFlushedAndEndsWithItsCaller(t *testing.T) {
	next, gone := make(chan string), make(chan struct{})
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case line := <-next:
				_, _ = io.WriteString(w, line+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}), options{hub: func(c *HubConfig) { c.FirstByte = time.Nanosecond }}) // which is not for streams
	for _, path := range []string{"/api/v1/namespaces/a/pods?watch=true"} {
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(response.Body)
		for i := range 3 {
			want := fmt.Sprint("event ", i)
			next <- want
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("got %q, %v", lines.Text(), lines.Err())
			}
		}
		cancel()
		await(t, "end at the far end", gone)
		_ = response.Body.Close()
	}
}

func TestProxy_AbandonedWriteIsNotExecuted(t *testing.T) {
	s := newStage(t, fakeServer(t, func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("%s was carried out with %q", r.Method, body)
		}
	}), options{})
	// The Agent asks for the body when it is ready; by then the caller has gone.
	near, far, err := tcpPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.agent.Serve(far)
	_, _ = io.WriteString(near, "PUT /api/v1/namespaces/a/pods/p HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	line, err := bufio.NewReader(near).ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	_ = near.Close()

	// And a caller who leaves in the middle of the body.
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.address+"/api/v1/namespaces/a/pods", reader)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		response, err := s.client.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		done <- err
	}()
	if _, err := writer.Write([]byte("half of it")); err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = writer.CloseWithError(errors.New("gone"))
	if err := await(t, "end", done); err == nil {
		t.Error("the caller got a success")
	}
}

// A line that stalls and recovers delivers what was sent into it, and a moment later that its caller has left.
func TestProxy_AbandonedRequestWithoutBodyIsNotExecuted(t *testing.T) {
	for _, request := range []string{
		"DELETE /api/v1/namespaces/a/pods/p HTTP/1.1\r\n", "DELETE /api/v1/namespaces/a/pods HTTP/1.1\r\n", "POST /api/v1/namespaces/a/pods/p/eviction HTTP/1.1\r\n",
		"POST /api/v1/namespaces/a/pods/p/exec?command=x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n",
		"GET /api/v1/namespaces/a/pods/p/exec?command=x HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
	} {
		line := make(chan net.Conn, 1)
		s := newStage(t, fakeServer(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was carried out", r.Method, r.URL) }),
			options{hub: func(c *HubConfig) {
				c.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
					near, far, err := tcpPipe(ctx)
					line <- far
					return near, err
				}
			}})
		caller := s.connect(t)
		_, _ = io.WriteString(caller, request+"Host: x\r\n\r\n")
		stalled := await(t, "tunnel", line)
		sent := readHead(t, stalled)
		_ = caller.Close()
		_ = stalled.Close()

		near, far, err := tcpPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.agent.Serve(far)
		_, _ = io.WriteString(near, sent)
		_ = near.SetReadDeadline(time.Now().Add(soon))
		if answer, err := bufio.NewReader(near).ReadString('\n'); err != nil || !strings.Contains(answer, "100 Continue") {
			t.Errorf("%q: the agent does not ask whether its caller is still there but says %q, %v", request, answer, err)
		}
		_ = near.Close()
	}
}

// readHead reads a request up to its body.
func readHead(t *testing.T, conn net.Conn) string {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	var head strings.Builder
	for reader := bufio.NewReader(conn); !strings.HasSuffix(head.String(), "\r\n\r\n"); {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		head.WriteString(line)
	}
	return head.String()
}

func TestRejectStaleWrite_AfterALongDelay(t *testing.T) {
	s := newStage(t, fakeServer(t, func(http.ResponseWriter, *http.Request) { t.Error("it was carried out") }),
		options{agent: func(c *AgentConfig) { c.MaxWriteAge = time.Nanosecond }})
	response, body := s.ask(t, s.client, http.MethodPut, "/api/v1/namespaces/a/pods/p", strings.NewReader("{}"))
	if status := statusOf(t, response, body); status.Code != http.StatusGatewayTimeout || !strings.Contains(status.Message, "nothing was changed") {
		t.Errorf("got %s", body)
	}
}

func TestProxy_UpgradesEndAsAWhole(t *testing.T) {
	ended := make(chan struct{}, 1)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(conn, buf) // echo
		_ = conn.Close()
		ended <- struct{}{}
	}), options{})
	connect := func() (*tls.Conn, *bufio.Reader) {
		conn, reader := s.terminal(t, "early")
		_ = conn.SetReadDeadline(time.Now().Add(soon))
		for _, want := range []string{"early", "later"} {
			if want == "later" {
				_, _ = io.WriteString(conn, want)
			}
			got := make([]byte, len(want))
			if _, err := io.ReadFull(reader, got); err != nil || string(got) != want {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		return conn, reader
	}
	conn, _ := connect()
	_ = conn.Close()
	await(t, "end after the caller left", ended)

	conn, reader := connect()
	s.leave(&NotConnectedError{Agent: "w1"})
	await(t, "end after the tunnel broke", ended)
	if _, err := reader.ReadByte(); err == nil {
		t.Error("the caller got no response")
	}
	_ = conn.Close()
}

func TestHub_ReusesTunnels(t *testing.T) {
	s := newStage(t, fakeServer(t, answer), options{})
	for range 20 {
		s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials != 1 {
		t.Errorf("20 requests one after the other took %d tunnels", s.dials)
	}
}

// More callers at the same time than a few must not close their tunnels and open new ones for the next requests.
func TestHub_KeepsTunnelsOfConcurrentCallers(t *testing.T) {
	const callers = 10
	arrived, proceed := make(chan struct{}, callers), make(chan struct{})
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-proceed
		answer(w, r)
	}), options{})
	var closed atomic.Int64
	dial := s.hub.config.Dial
	s.hub.config.Dial = func(ctx context.Context, agent string) (net.Conn, error) {
		conn, err := dial(ctx, agent)
		if err != nil {
			return nil, err
		}
		return &closeCounter{conn, &closed}, nil
	}
	for range 2 {
		var wait sync.WaitGroup
		for range callers {
			wait.Go(func() { s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil) })
		}
		for range callers {
			await(t, "request", arrived)
		}
		for range callers {
			proceed <- struct{}{}
		}
		wait.Wait()
	}
	if n := closed.Load(); n > 0 {
		t.Errorf("%d tunnels of %d callers were closed", n, callers)
	}
}

type closeCounter struct {
	net.Conn
	closed *atomic.Int64
}

func (c *closeCounter) Close() error {
	c.closed.Add(1)
	return c.Conn.Close()
}

func TestFirstByte_TimesOut(t *testing.T) {
	gone := make(chan struct{})
	s := newStage(t, fakeServer(t, func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(gone)
	}), options{hub: func(c *HubConfig) { c.FirstByte = 50 * time.Millisecond }})
	response, body := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil)
	if status := statusOf(t, response, body); status.Code != http.StatusGatewayTimeout {
		t.Errorf("got %s", body)
	}
	await(t, "end at the far end", gone)
}

func TestHub_TunnelTimesOut(t *testing.T) {
	s := newStage(t, fakeServer(t, answer), options{hub: func(c *HubConfig) {
		c.DialTimeout = 50 * time.Millisecond
		c.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}})
	response, body := s.ask(t, s.client, http.MethodPost, "/api/v1/namespaces/a/pods", strings.NewReader("{}"))
	if status := statusOf(t, response, body); status.Code != http.StatusGatewayTimeout || !strings.Contains(status.Message, "not sent") {
		t.Errorf("got %s", body)
	}
}
