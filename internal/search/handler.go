package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/query"
)

const defaultLimit = 100

// request is a parsed request.
type request struct {
	query.Request
	groupBy string
	watch   string   // token
	agents  []string // to which a stream is restricted; if nil, it is not
	agent   string   // of the path

	hub, after string // identity of a hub, and position after which a page of its replicas starts

	namespace, name, uid string // of an Application
}

// route is a path of the API. It has either answer or stream.
type route struct {
	parameters []string
	answer     func(*Server, context.Context, caller, request) (any, error)
	stream     func(*Server, http.ResponseWriter, *http.Request, caller, request) error
}

const aboutPath, timelinePath, replicasPath = "/v1/about", "/v1/agents/NAME/timeline", "/v1/agents/NAME/replicas"

// routes are the paths that need authentication.
//
//	/v1/applications         one page, a pageResponse
//	/v1/counts               a countsResponse
//	/v1/watch                a stream of query.Update, one per line
//	/v1/delivery             a deliveryResponse
//	/v1/application          an applicationResponse, for argocd-server
//	/v1/agents/stream        server-sent events with the rows of agents, see package agentrows
//	/v1/agents/NAME/timeline what happened to an agent
//	/v1/agents/NAME/replicas what an agent has of the objects of a hub, a reconcile.ReplicaPage
//	/v1/about                an agentrows.About; without credentials, only how to log in
var routes = map[string]route{
	"/v1/applications":  {parameters: []string{"query", "sort", "limit", "page"}, answer: (*Server).applications},
	"/v1/counts":        {parameters: []string{"query", "groupBy", "limit"}, answer: (*Server).counts},
	"/v1/watch":         {parameters: []string{"query", "watch"}, stream: (*Server).watch},
	"/v1/delivery":      {parameters: []string{"namespace", "name", "uid"}, answer: (*Server).delivery},
	"/v1/application":   {answer: (*Server).application},
	"/v1/agents/stream": {parameters: []string{"agent"}, stream: (*Server).agentStream},
	timelinePath:        {answer: (*Server).timeline},
	replicasPath:        {parameters: []string{"hub", "after"}, answer: (*Server).agentReplicas},
	aboutPath:           {answer: (*Server).about},
}

// routeOf returns the key in routes of a path, and the name of an agent in it. The key is empty if there is none.
func routeOf(path string) (key, agent string) {
	for _, key := range []string{timelinePath, replicasPath} {
		before, after, _ := strings.Cut(key, "NAME")
		if name, ok := strings.CutSuffix(path, after); ok {
			if name, ok = strings.CutPrefix(name, before); ok && name != "" && !strings.Contains(name, "/") {
				return key, name
			}
		}
	}
	if _, known := routes[path]; known && path != timelinePath && path != replicasPath {
		return path, ""
	}
	return "", ""
}

// ServeHTTP implements http.Handler. It serves the API below /v1/, and the page elsewhere.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/v1/") && s.cfg.Page != nil {
		s.cfg.Page.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if s.allowOrigin(w, r) {
		return
	}
	key, agent := routeOf(r.URL.Path)
	w, end := s.metrics.start(w, key)
	defer end()
	if err := s.serve(w, r, key, agent); err != nil {
		s.fail(w, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, key, agent string) error {
	if key == "" {
		return &httpError{http.StatusNotFound, "not found: use /v1/applications, /v1/counts or /v1/watch"}
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		return &httpError{http.StatusMethodNotAllowed, "only GET is allowed"}
	}
	c, err := s.access.authenticate(r.Context(), r)
	if key == aboutPath && err != nil && r.Header.Get("Authorization") == "" && r.Header.Get(extensionHeader) == "" {
		return writeJSON(w, agentrows.About{Command: "argocd-agentctl", Login: agentrows.LoginToken, Applications: true})
	}
	if err != nil {
		return err
	}
	limits := s.requests
	if routes[key].stream != nil {
		limits = s.watches
	}
	if !limits.acquire(c.id()) {
		w.Header().Set("Retry-After", "1")
		return &httpError{http.StatusTooManyRequests, fmt.Sprintf("too many searches at the same time: a user can have %d", limits.perUser)}
	}
	defer limits.release(c.id())
	parsed, err := parseRequest(r, routes[key].parameters)
	if err != nil {
		return err
	}
	parsed.agent = agent
	if routes[key].stream != nil {
		return routes[key].stream(s, w, r, c, parsed)
	}
	result, err := routes[key].answer(s, r.Context(), c, parsed)
	if err != nil {
		return err
	}
	return writeJSON(w, result)
}

func writeJSON(w http.ResponseWriter, result any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(result)
}

// parseParameters refuses what would be ignored, because a request without its filter returns too much.
func parseParameters(text string, parameters []string) (url.Values, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, &httpError{http.StatusBadRequest, "the parameters are not valid: encode them for a URL"}
	}
	for name, all := range values {
		if !slices.Contains(parameters, name) {
			message := fmt.Sprintf("unknown parameter %q: use one of %s", name, strings.Join(parameters, ", "))
			if len(parameters) == 0 {
				message = fmt.Sprintf("unknown parameter %q: there are none", name)
			}
			return nil, &httpError{http.StatusBadRequest, message}
		}
		if len(all) > 1 {
			return nil, &httpError{http.StatusBadRequest, name + " is given twice"}
		}
	}
	return values, nil
}

func parseRequest(r *http.Request, parameters []string) (request, error) {
	values, err := parseParameters(r.URL.RawQuery, parameters)
	if err != nil {
		return request{}, err
	}
	out := request{Request: query.Request{Sort: values.Get("sort"), Token: values.Get("page"), Limit: defaultLimit}, groupBy: values.Get("groupBy"), watch: values.Get("watch"),
		namespace: values.Get("namespace"), name: values.Get("name"), uid: values.Get("uid"),
		hub: values.Get("hub"), after: values.Get("after")}
	if out.Query, err = query.Parse(values.Get("query")); err != nil {
		return out, err
	}
	if values.Has("agent") {
		if out.agents = strings.Split(values.Get("agent"), ","); len(out.agents) > maxReviewedNames {
			return out, &httpError{http.StatusBadRequest, fmt.Sprintf("agent has more than %d names", maxReviewedNames)}
		}
	}
	if text := values.Get("limit"); text != "" {
		if out.Limit, err = strconv.Atoi(text); err != nil || out.Limit < 1 || out.Limit > query.MaxPage {
			return out, &httpError{http.StatusBadRequest, fmt.Sprintf("limit is not a number from 1 to %d", query.MaxPage)}
		}
	}
	return out, nil
}

func (s *Server) applications(ctx context.Context, c caller, r request) (any, error) {
	snapshot := s.snapshot()
	scope, err := s.access.scope(ctx, c, snapshot, r.Query)
	if err != nil {
		return nil, err
	}
	silent := s.askReplicas(ctx)
	page, err := snapshot.List(r.Request, scope, s.clock())
	return badRequest(pageResponse{page, silent}, err)
}

func (s *Server) counts(ctx context.Context, c caller, r request) (any, error) {
	snapshot := s.snapshot()
	scope, err := s.access.scope(ctx, c, snapshot, r.Query)
	if err != nil {
		return nil, err
	}
	silent := s.askReplicas(ctx)
	counts, err := snapshot.Count(r.Query, r.groupBy, r.Limit, scope, s.clock())
	return badRequest(countsResponse{counts, silent}, err)
}

// pageResponse is a page. For agents of a replica that did not answer, freshness comes from the status of their Agents.
type pageResponse struct {
	query.Page
	Unanswered int `json:"unansweredReplicas,omitempty"`
}

// countsResponse is like pageResponse.
type countsResponse struct {
	query.Counts
	Unanswered int `json:"unansweredReplicas,omitempty"`
}

// badRequest returns an error of a query as one of the caller.
func badRequest[T any](result T, err error) (any, error) {
	if err != nil {
		return nil, &httpError{http.StatusBadRequest, err.Error()}
	}
	return result, nil
}

// Intervals of a watch.
const (
	watchInterval  = 500 * time.Millisecond // between two updates
	watchHeartbeat = 15 * time.Second       // below writeTimeout; an update without changes; the caller is authenticated again
	maxWatch       = 30 * time.Minute       // the client continues with its token
)

// watch sends updates until the client disconnects or may no longer see anything.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, c caller, parsed request) error {
	if parsed.Query.UsesTime() {
		return &httpError{http.StatusBadRequest, query.ErrTimeWatch.Error()}
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWatch)
	defer cancel()
	control := http.NewResponseController(w)
	token, check := parsed.watch, s.access.authenticateAgain(r, c)
	for first := true; ; first = false {
		if err := check(ctx); err != nil {
			return s.endWatch(ctx, w, err)
		}
		update, wake, err := s.update(ctx, c, parsed.Query, token)
		if err != nil {
			if first {
				return err
			}
			return s.endWatch(ctx, w, err)
		}
		if first {
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		token = update.Watch
		if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return nil // the client is gone
		}
		if json.NewEncoder(w).Encode(update) != nil || control.Flush() != nil {
			return nil
		}
		if !waitForChange(ctx, wake) {
			return nil
		}
	}
}

// update returns what changed since a token, and a channel that is closed after the next change.
func (s *Server) update(ctx context.Context, c caller, q query.Query, token string) (query.Update, <-chan struct{}, error) {
	s.mu.Lock()
	changes, err := s.model.Since(token)
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	wake := s.changed
	snapshot := s.model.Snapshot()
	s.mu.Unlock()
	switch {
	case errors.Is(err, query.ErrStartAgain):
		return query.Update{}, nil, &httpError{http.StatusGone, err.Error()}
	case err != nil:
		return query.Update{}, nil, &httpError{http.StatusBadRequest, err.Error()}
	}
	scope, err := s.access.scope(ctx, c, snapshot, q)
	if err != nil {
		return query.Update{}, nil, err
	}
	return changes.Update(q, scope, s.clock()), wake, nil
}

// waitForChange waits for a change or a heartbeat, but at least watchInterval. It reports whether the watch goes on.
func waitForChange(ctx context.Context, wake <-chan struct{}) bool {
	pause, heartbeat := time.NewTimer(watchInterval), time.NewTimer(watchHeartbeat)
	defer pause.Stop()
	defer heartbeat.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-heartbeat.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-pause.C:
		return true
	}
}

// failure is the body of a response without a result.
type failure struct {
	Error    string `json:"error"`
	Position int    `json:"position,omitempty"` // in the query, from 1
}

// endWatch reports an error in the stream.
func (s *Server) endWatch(ctx context.Context, w http.ResponseWriter, err error) error {
	if ctx.Err() == nil {
		_, body := s.failure(ctx, err)
		_ = json.NewEncoder(w).Encode(body)
	}
	return nil
}

// failure returns the status and the body of an error. Errors of the API server are not shown, because they may contain
// names.
func (s *Server) failure(ctx context.Context, err error) (int, failure) {
	if e, ok := errors.AsType[*httpError](err); ok {
		return e.code, failure{Error: e.message}
	}
	if e, ok := errors.AsType[*query.Error](err); ok {
		return http.StatusBadRequest, failure{Error: e.Error(), Position: e.Position}
	}
	s.cfg.Log.WarnContext(ctx, "Failed to check access of a search", "error", err)
	return http.StatusServiceUnavailable, failure{Error: "the hub's API server did not check your access: try again later"}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	code, body := s.failure(r.Context(), err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
