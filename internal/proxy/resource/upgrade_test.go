package resource

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"testing"
	"testing/synctest"
	"time"
)

// endingServer is an upgraded connection of a server that no longer reads, and sends its last bytes a while later.
type endingServer struct {
	written, closed chan struct{}
	silent          bool // it sends nothing
	sent            bool
}

func (s *endingServer) Write([]byte) (int, error) {
	close(s.written)
	return 0, errors.New("broken pipe")
}

func (s *endingServer) Read(p []byte) (int, error) {
	<-s.written
	wait := time.Second
	if s.silent {
		wait = time.Hour
	}
	select {
	case <-s.closed:
		return 0, io.ErrClosedPipe
	case <-time.After(wait):
	}
	if s.sent {
		return 0, io.EOF
	}
	s.sent = true
	return copy(p, "the last bytes"), nil
}

func (s *endingServer) Close() error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// pipeWriter is a response writer whose connection is one end of a pipe.
type pipeWriter struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// upgraded sends input to a server that has ended, and returns what comes back. If the caller does not read, it waits until the
// proxy ends the connection.
func upgraded(t *testing.T, server *endingServer, reads bool) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Set("Connection", "Upgrade")
			r.Out.Header.Set("Upgrade", "SPDY/3.1")
		},
		ModifyResponse: func(res *http.Response) error { keepLastBytes(res, cancel); return nil },
		Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusSwitchingProtocols, ProtoMajor: 1, ProtoMinor: 1, Request: r, Body: server,
				Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}}, nil
		}),
	}
	caller, conn := net.Pipe()
	defer caller.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "SPDY/3.1")
		proxy.ServeHTTP(&upgradeWriter{ResponseWriter: &pipeWriter{httptest.NewRecorder(), conn}, ctx: r.Context()}, r)
	}()
	reader := bufio.NewReader(caller)
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res.Status)
	}
	go func() {
		for range 3 { // the server does not read it
			_, _ = caller.Write(make([]byte, 40_000))
		}
	}()
	var got []byte
	if reads {
		got, _ = io.ReadAll(reader)
	}
	<-ended
	return string(got)
}

func TestUpgrade_LastBytesOfServerThatNoLongerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if got := upgraded(t, &endingServer{written: make(chan struct{}), closed: make(chan struct{})}, true); got != "the last bytes" {
			t.Errorf("the caller gets %q", got)
		}
	})
}

func TestUpgrade_ServerThatNeitherReadsNorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if got := upgraded(t, &endingServer{written: make(chan struct{}), closed: make(chan struct{}), silent: true}, true); got != "" {
			t.Errorf("the caller gets %q", got)
		}
		if waited := time.Since(began); waited != lastBytesTimeout {
			t.Errorf("the connection ends after %v", waited)
		}
	})
}

func TestUpgrade_CallerThatDoesNotReadTheLastBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		upgraded(t, &endingServer{written: make(chan struct{}), closed: make(chan struct{})}, false)
		if waited := time.Since(began); waited != lastBytesTimeout {
			t.Errorf("the connection ends after %v", waited)
		}
	})
}
