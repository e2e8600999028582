package fleet

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/netutil"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/fleetui"
)

var page = fleetui.Handler("")

// Server serves the page to clients that know the URL.
type Server struct {
	state    *agentrows.State
	about    agentrows.About
	search   Search
	listener net.Listener
	token    string
	streams  chan struct{} // limits open streams

	chunk        int           // approximate size of an event in bytes
	interval     time.Duration // minimum time between two events
	writeTimeout time.Duration
}

// Search forwards requests to the search API of the principal.
type Search interface {
	http.Handler
	Available() bool
}

// Limits. A browser opens one stream per page and up to six connections.
const (
	maxStreams     = 16
	maxConnections = 64
)

// Listen returns a server on the loopback interface. Port 0 selects a free port. If search is nil, there are no
// Applications.
func Listen(ctx context.Context, port int, state *agentrows.State, about agentrows.About, search Search) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return &Server{state: state, about: about, search: search, listener: listener, token: base64.RawURLEncoding.EncodeToString(secret), streams: make(chan struct{}, maxStreams),
		chunk: 128 << 10, interval: 250 * time.Millisecond, writeTimeout: 30 * time.Second}, nil
}

// URL returns the secret URL of the page.
func (s *Server) URL() string { return fmt.Sprintf("http://%s/%s/", s.listener.Addr(), s.token) }

// Serve serves until the context ends and returns after all streams ended.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: s.writeTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(short) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(netutil.LimitListener(s.listener, maxConnections))
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", fleetui.Policy)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the URL is a secret
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if code, message := s.checkOrigin(r); code != 0 {
		if code == http.StatusMethodNotAllowed {
			h.Set("Allow", http.MethodGet)
		}
		http.Error(w, message, code)
		return
	}
	token, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1:
		http.Error(w, "Open the whole URL that argocd-agentctl printed. Each run has a new one.", http.StatusNotFound)
	case path == "v1/about":
		about := s.about
		about.Login, about.Applications = agentrows.LoginNone, s.search != nil && s.search.Available()
		h.Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(about)
	case path == "v1/agents/stream":
		s.stream(w, r)
	case s.search != nil && forwarded(path):
		r.URL.Path, r.URL.RawPath = "/"+path, ""
		s.forward(w, r)
	default:
		r.URL.Path, r.URL.RawPath = "/"+path, ""
		page.ServeHTTP(w, r)
	}
}

// checkOrigin refuses requests of other pages in the same browser. The Host check blocks DNS rebinding. Origin and
// Sec-Fetch headers identify cross-site requests. A code of 0 accepts the request.
func (s *Server) checkOrigin(r *http.Request) (code int, message string) {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if r.Host != "127.0.0.1:"+port && r.Host != "localhost:"+port {
		return http.StatusMisdirectedRequest, "This server only serves 127.0.0.1:" + port + "."
	}
	if r.Method != http.MethodGet {
		return http.StatusMethodNotAllowed, "Only GET is allowed."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return http.StatusForbidden, "Other pages have no access."
	}
	navigates := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		if !navigates { // a user may follow a link to the page
			return http.StatusForbidden, "Other pages have no access."
		}
	}
	return 0, ""
}

// forwarded reports whether the search API of the principal serves a path for the page.
func forwarded(path string) bool {
	if agent, ok := strings.CutPrefix(path, "v1/agents/"); ok {
		name, rest, _ := strings.Cut(agent, "/")
		return name != "" && rest == "timeline"
	}
	return path == "v1/applications" || path == "v1/counts" || path == "v1/watch"
}

// forward forwards a request. A watch lasts longer than the timeout of a response, which holds for each of its writes.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	if s.acquire(w) {
		defer func() { <-s.streams }()
		s.search.ServeHTTP(deadlineWriter{w, s.writeTimeout}, r)
	}
}

// deadlineWriter has a timeout for each write.
type deadlineWriter struct {
	http.ResponseWriter
	timeout time.Duration
}

func (w deadlineWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w deadlineWriter) Write(b []byte) (int, error) {
	if err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(b)
}

// acquire reports whether there is room for a stream. The caller must make room then.
func (s *Server) acquire(w http.ResponseWriter) bool {
	select {
	case s.streams <- struct{}{}:
		return true
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("This page has %d open requests. Close one of its tabs.", maxStreams), http.StatusServiceUnavailable)
		return false
	}
}

// stream sends changes until the browser disconnects.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	if !s.acquire(w) {
		return
	}
	defer func() { <-s.streams }()
	stream := agentrows.Stream{State: s.state, About: &s.about, Chunk: s.chunk, Interval: s.interval, WriteTimeout: s.writeTimeout}
	_ = stream.Serve(r.Context(), w, r) // fails only if Visible does
}
