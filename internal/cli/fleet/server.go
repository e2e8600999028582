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

// About is what the page says about itself.
type About struct {
	Hub      string `json:"hub"`      // that is looked at
	Command  string `json:"command"`  // how argocd-agentctl is called for this hub, as a shell reads it
	Expiring int64  `json:"expiring"` // certificates that end within so many seconds are counted
}

// Server shows a board to who knows its address.
type Server struct {
	board    *State
	about    About
	listener net.Listener
	token    string
	streams  chan struct{} // one for each that is open

	chunk    int           // bytes of rows in an event, about
	pace     time.Duration // between two events: what changes in between is one
	patience time.Duration // with a browser that does not read
}

// Bounds of what browsers can ask of a server. A browser has one stream for each page that is open, and six connections.
const (
	mostStreams     = 16
	mostConnections = 64
)

// Listen makes a server that can be reached from this machine alone; port 0 is one that is free.
func Listen(ctx context.Context, port int, board *State, about About) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen for browsers: %w", err)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return &Server{board: board, about: about, listener: listener, token: base64.RawURLEncoding.EncodeToString(secret), streams: make(chan struct{}, mostStreams),
		chunk: 128 << 10, pace: 250 * time.Millisecond, patience: 30 * time.Second}, nil
}

// URL is where the page is. Who knows it sees the page.
func (s *Server) URL() string { return fmt.Sprintf("http://%s/%s/", s.listener.Addr(), s.token) }

// Serve answers browsers until the context ends, and returns when all streams have.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: s.patience, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(short) != nil {
			_ = server.Close() // a browser is in the middle of something
		}
	})
	err := server.Serve(netutil.LimitListener(s.listener, mostConnections))
	if !stop() {
		<-closed
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("answer browsers: %w", err)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", thePage.policy)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer") // the address is a secret
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if code, why := s.checkOrigin(r); code != 0 {
		if code == http.StatusMethodNotAllowed {
			h.Set("Allow", http.MethodGet)
		}
		http.Error(w, why, code)
		return
	}
	token, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1:
		http.Error(w, "Open the whole address that argocd-agentctl has printed. Each run of it has a new one.", http.StatusNotFound)
	case what == "":
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(thePage.content)
	case what == "events":
		s.stream(w, r)
	default:
		http.Error(w, "There is nothing here.", http.StatusNotFound)
	}
}

// checkOrigin tells a request that is not one of our page, or of somebody who opens it. A page of another site that has its
// own name lead to this machine is known by that name; others by what browsers say of where a request comes from.
func (s *Server) checkOrigin(r *http.Request) (code int, why string) {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if r.Host != "127.0.0.1:"+port && r.Host != "localhost:"+port {
		return http.StatusMisdirectedRequest, "This server answers to 127.0.0.1:" + port + " alone."
	}
	if r.Method != http.MethodGet {
		return http.StatusMethodNotAllowed, "There is nothing but to look."
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return http.StatusForbidden, "Other pages may not look."
	}
	opens := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		if !opens { // a link to the page that somebody follows
			return http.StatusForbidden, "Other pages may not look."
		}
	}
	return 0, ""
}

// stream tells a browser what changes, until it goes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("This page is open %d times: close one.", mostStreams), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	at := placeOf(r.Header.Get("Last-Event-ID")) // of a browser that was cut off
	for first := true; ; first = false {
		n, next, wake := s.board.since(at, s.chunk)
		if at = next; first || n.Reset {
			n.About = &s.about
		}
		if err := s.tell(w, control, n, at); err != nil {
			return
		}
		if n.More {
			continue
		}
		pause := time.After(s.pace)
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

// tell sends one event. A browser that does not read is cut off: it comes back, and is told what it has missed.
func (s *Server) tell(w http.ResponseWriter, control *http.ResponseController, n update, at cursor) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := control.SetWriteDeadline(time.Now().Add(s.patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "id: %d.%d\ndata: %s\n\n", at.begun, at.upTo, data); err != nil {
		return err
	}
	return control.Flush()
}

// placeOf reads where an event has led; anything else is nowhere.
func placeOf(id string) cursor {
	var p cursor
	if n, err := fmt.Sscanf(id, "%d.%d", &p.begun, &p.upTo); err != nil || n != 2 {
		return cursor{}
	}
	return p
}
