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
)

// About is the description of the page.
type About struct {
	Hub      string `json:"hub"`
	Command  string `json:"command"`  // argocd-agentctl with the flags for this hub, quoted for a shell
	Expiring int64  `json:"expiring"` // count certificates that expire within this number of seconds
}

// Server serves the page to clients that know the URL.
type Server struct {
	state    *State
	about    About
	listener net.Listener
	token    string
	streams  chan struct{} // limits open streams

	chunk        int           // approximate size of an event in bytes
	interval     time.Duration // minimum time between two events
	writeTimeout time.Duration
}

// Limits. A browser opens one stream per page and up to six connections.
const (
	maxStreams     = 16
	maxConnections = 64
)

// Listen returns a server on the loopback interface. Port 0 selects a free port.
func Listen(ctx context.Context, port int, state *State, about About) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return &Server{state: state, about: about, listener: listener, token: base64.RawURLEncoding.EncodeToString(secret), streams: make(chan struct{}, maxStreams),
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
	h.Set("Content-Security-Policy", thePage.policy)
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
	case path == "":
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(thePage.content)
	case path == "events":
		s.stream(w, r)
	default:
		http.Error(w, "Not found.", http.StatusNotFound)
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

// stream sends changes until the browser disconnects.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("This page is open %d times. Close one.", maxStreams), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	at := parseCursor(r.Header.Get("Last-Event-ID")) // set by browsers that reconnect
	for first := true; ; first = false {
		n, next, wake := s.state.since(at, s.chunk)
		if at = next; first || n.Reset {
			n.About = &s.about
		}
		if err := s.send(w, control, n, at); err != nil {
			return
		}
		if n.More {
			continue
		}
		pause := time.After(s.interval)
		select {
		case <-r.Context().Done():
			return
		case <-wake:
		}
		select { // a burst of changes becomes one event
		case <-r.Context().Done():
			return
		case <-pause:
		}
	}
}

// send sends one event. A browser that does not read runs into the timeout, reconnects and gets what it missed.
func (s *Server) send(w http.ResponseWriter, control *http.ResponseController, n update, at cursor) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := control.SetWriteDeadline(time.Now().Add(s.writeTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "id: %d.%d\ndata: %s\n\n", at.reset, at.seen, data); err != nil {
		return err
	}
	return control.Flush()
}

// parseCursor parses an event ID. If it is invalid, it returns the zero value.
func parseCursor(id string) cursor {
	var p cursor
	if n, err := fmt.Sscanf(id, "%d.%d", &p.reset, &p.seen); err != nil || n != 2 {
		return cursor{}
	}
	return p
}
