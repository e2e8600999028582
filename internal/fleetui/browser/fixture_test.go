package browser

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/fleetui"
	"github.com/argocd-agent/argocd-agent/internal/query"
)

// row is an agent as the data API sends it.
type row map[string]any

// now is the time of the fixtures and of the browser, so that ages do not change during a test.
var now = time.Now().Truncate(time.Second)

func ago(d time.Duration) int64 { return now.Add(-d).Unix() }

func fine(name string) row {
	return row{"name": name, "state": "connected", "connected": true, "since": ago(72*time.Hour + time.Minute), "applications": 7, "mode": "managed", "version": "v1.4.0", "namespace": name,
		"confirmed": ago(12 * time.Second), "expires": now.Add(20*24*time.Hour + time.Hour).Unix(), "principal": "principal-7"}
}

func (r row) with(pairs ...any) row {
	for i := 0; i < len(pairs); i += 2 {
		r[pairs[i].(string)] = pairs[i+1]
	}
	return r
}

func disconnected(name string) row {
	return fine(name).with("state", "disconnected", "urgency", 3, "connected", false, "since", ago(5*time.Minute), "confirmed", ago(5*time.Minute))
}

func diverged(name string) row {
	return fine(name).with("urgency", 1, "diverged", 3, "pending", "3 undelivered items")
}

func held(name string) row {
	return fine(name).with("state", "held", "urgency", 5, "diverged", 42, "holds", []row{{"description": "42 deletions of application", "reason": "more than half of the scope", "id": "5f2c9b0e7d1a4c33"}},
		"conditions", []row{{"type": "Held", "status": "True", "since": ago(time.Minute), "reason": "ConfirmationRequired", "message": "42 deletions wait"}, {"type": "Connected", "status": "True", "since": ago(time.Hour), "reason": "Connected"}})
}

// server serves the page and fixtures as the data API.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	about    row
	token    string // that is required; if empty, none
	origin   string // of other pages that may use the data API
	rows     map[string]row
	order    []string
	model    *query.Model
	timeline []row
	down     bool
	refused  string
	cut      chan struct{} // closed when the network is lost
	end      chan struct{} // closed when the server ends its streams
	changed  chan struct{} // closed at a change
	changes  []any         // updates after the first
	requests map[string]int
	resumed  []string // Last-Event-ID of the streams
	chunk    int      // rows of one event
}

func serve(t *testing.T, rows ...row) *server {
	t.Helper()
	s := &server{about: row{"hub": "the hub", "command": "argocd-agentctl --principal-context hub", "login": "none", "applications": true, "argocd": "https://argocd.example.com", "expiring": 3600},
		rows: map[string]row{}, model: query.NewModel("test"), cut: make(chan struct{}), end: make(chan struct{}), changed: make(chan struct{}), requests: map[string]int{}, chunk: 100}
	for _, r := range rows {
		s.rows[r["name"].(string)] = r
		s.order = append(s.order, r["name"].(string))
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.lose()
		s.Close()
	})
	return s
}

// set changes rows.
func (s *server) set(rows ...row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rows {
		s.rows[r["name"].(string)] = r
	}
	s.send(row{"rows": rows})
}

// remove deletes a row.
func (s *server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, name)
	s.send(row{"deleted": []string{name}})
}

// send sends an update to streams. The caller must hold mu.
func (s *server) send(update any) {
	s.changes = append(s.changes, update)
	close(s.changed)
	s.changed = make(chan struct{})
}

// setApplication changes an Application.
func (s *server) setApplication(a query.Application) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model.Set(a)
	close(s.changed)
	s.changed = make(chan struct{})
}

// lose ends all connections and accepts none.
func (s *server) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.down {
		s.down = true
		close(s.cut)
	}
}

func (s *server) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.cut = false, make(chan struct{})
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down, token := s.down, s.token
	s.requests[r.URL.Path]++
	s.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		fleetui.Handler("").ServeHTTP(w, r)
		return
	}
	if s.origin != "" && r.Header.Get("Origin") == s.origin {
		w.Header().Set("Access-Control-Allow-Origin", s.origin)
		w.Header().Set("Access-Control-Allow-Headers", "Authorization, Last-Event-ID")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token && (r.URL.Path != "/v1/about" || r.Header.Get("Authorization") != "") {
		fail(w, http.StatusUnauthorized, "the token is not valid", 0)
		return
	}
	switch {
	case r.URL.Path == "/v1/about":
		s.mu.Lock()
		defer s.mu.Unlock()
		write(w, s.about)
	case r.URL.Path == "/v1/agents/stream":
		s.stream(w, r)
	case r.URL.Path == "/v1/watch":
		s.watch(w, r)
	case strings.HasSuffix(r.URL.Path, "/timeline"):
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timeline == nil {
			http.NotFound(w, r)
			return
		}
		write(w, row{"items": s.timeline})
	default:
		s.search(w, r)
	}
}

func write(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, message string, position int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(row{"error": message, "position": position})
}

// stream sends all rows in the order of the fixture, then changes.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.refused != "" {
		fail(w, http.StatusForbidden, s.refused, 0)
		s.mu.Unlock()
		return
	}
	s.resumed = append(s.resumed, r.Header.Get("Last-Event-ID"))
	cut, end, seen := s.cut, s.end, len(s.changes)
	events := []row{{"reset": true, "rows": []row{}, "more": len(s.rows) > 0}}
	var part []row
	for i, name := range s.order {
		if one, ok := s.rows[name]; ok {
			part = append(part, one)
		}
		if len(part) == s.chunk || i == len(s.order)-1 {
			events = append(events, row{"rows": part, "more": i < len(s.order)-1})
			part = nil
		}
	}
	var pending []any
	for _, e := range events {
		pending = append(pending, e)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		for _, e := range pending {
			data, _ := json.Marshal(e)
			fmt.Fprintf(w, "id: 1.%d\ndata: %s\n\n", seen, data)
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		s.mu.Lock()
		pending, seen = s.changes[seen:], len(s.changes)
		changed := s.changed
		s.mu.Unlock()
		if len(pending) > 0 {
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-end:
			return
		case <-changed:
		}
	}
}

func (s *server) clock() query.Clock {
	return query.Clock{Now: now, InSync: func(string) time.Time { return now.Add(-12 * time.Second) }}
}

var everything = query.Scope{Namespace: query.Any, Project: query.Any, Agent: query.Any}

func (s *server) search(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values := r.URL.Query()
	q, err := query.Parse(values.Get("query"))
	if e, ok := errors.AsType[*query.Error](err); ok {
		fail(w, http.StatusBadRequest, e.Error(), e.Position)
		return
	}
	limit, _ := strconv.Atoi(values.Get("limit"))
	var result any
	switch r.URL.Path {
	case "/v1/applications":
		result, err = s.model.Snapshot().List(query.Request{Query: q, Sort: values.Get("sort"), Limit: max(limit, 1), Token: values.Get("page")}, everything, s.clock())
	case "/v1/counts":
		result, err = s.model.Snapshot().Count(q, values.Get("groupBy"), limit, everything, s.clock())
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error(), 0)
		return
	}
	write(w, result)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request) {
	token := r.URL.Query().Get("watch")
	q, err := query.Parse(r.URL.Query().Get("query"))
	if err != nil || q.UsesTime() {
		fail(w, http.StatusBadRequest, "cannot be watched", 0)
		return
	}
	for {
		s.mu.Lock()
		changes, err := s.model.Since(token)
		cut, changed := s.cut, s.changed
		s.mu.Unlock()
		if err != nil {
			fail(w, http.StatusGone, err.Error(), 0)
			return
		}
		update := changes.Update(q, everything, s.clock())
		token = update.Watch
		_ = json.NewEncoder(w).Encode(update)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			panic(http.ErrAbortHandler)
		case <-changed:
		}
	}
}

// application is a healthy Application of an agent.
func application(agent, name string) query.Application {
	return query.Application{Namespace: agent, Name: name, Agent: agent, Project: "shop", Health: "Healthy", Sync: "Synced", Operation: "Succeeded", Revisions: []string{"4f2a9c1d0e3b5a7788990011223344556677aabb"},
		Images: []string{"registry.example.com/shop/web:1.27.3"}, Repositories: []string{"https://git.example.com/shop.git"}, Labels: map[string]string{"team": "red"}, Changed: now.Add(-5 * time.Minute)}
}
