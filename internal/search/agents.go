package search

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/query"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// eventSize is the approximate size of an event with rows of agents.
const eventSize = 128 << 10

var errOneApplication = &httpError{http.StatusForbidden, "argocd-server can ask only for the Application that it shows: use /v1/application"}

// agentStream sends the rows of the agents that a caller may see.
func (s *Server) agentStream(w http.ResponseWriter, r *http.Request, c caller, parsed request) error {
	if c.only != nil {
		return errOneApplication
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxWatch)
	defer cancel()
	check := s.access.authenticateAgain(r, c)
	about, err := s.about(ctx, c, parsed)
	if err != nil {
		return err
	}
	description, _ := about.(agentrows.About)
	stream := agentrows.Stream{State: s.rows, About: &description, Chunk: eventSize, Interval: watchInterval, Heartbeat: watchHeartbeat, WriteTimeout: writeTimeout,
		Visible: func(ctx context.Context) (map[string]bool, error) {
			if err := check(ctx); err != nil {
				return nil, err
			}
			return s.visibleAgents(ctx, c, parsed.agents)
		}}
	return stream.Serve(ctx, w, r)
}

// visibleAgents returns the names of agents that a caller may see, or nil if it sees all. If only is not nil, it names the
// agents that the caller asks for.
func (s *Server) visibleAgents(ctx context.Context, c caller, only []string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	names := s.rows.Names()
	if only != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(only, name) })
	}
	seen, err := s.access.agents(ctx, c, names)
	switch {
	case err != nil:
		return nil, err
	case seen.none():
		return nil, &httpError{http.StatusForbidden, fmt.Sprintf("user %q cannot get any of these Agents", c.user.Name)}
	case seen.all && only == nil:
		return nil, nil
	}
	out := make(map[string]bool, len(names))
	for _, name := range names {
		if seen.has(name) {
			out[name] = true
		}
	}
	return out, nil
}

// timelineResponse is the history of an agent, newest first.
type timelineResponse struct {
	Items []agentrows.Entry `json:"items"`
}

func (s *Server) timeline(ctx context.Context, c caller, r request) (any, error) {
	if c.only != nil {
		return nil, errOneApplication
	}
	if err := kind.ValidateAgentName(r.agent); err != nil {
		return nil, &httpError{http.StatusBadRequest, "the path has no valid name of an agent"}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	seen, err := s.access.agents(ctx, c, []string{r.agent})
	if err != nil {
		return nil, err
	}
	if !seen.has(r.agent) { // the same for one that does not exist
		return nil, &httpError{http.StatusForbidden, fmt.Sprintf("user %q cannot get Agent %q", c.user.Name, r.agent)}
	}
	items, known := s.timelines.Of(r.agent)
	if !known {
		return nil, &httpError{http.StatusNotFound, fmt.Sprintf("there is no Agent %q", r.agent)}
	}
	return timelineResponse{items}, nil
}

// applicationResponse is the Application that argocd-server shows, and its agent.
type applicationResponse struct {
	Application query.Application `json:"application"`
	Agent       *agentrows.Row    `json:"agent,omitempty"` // nil if the Application belongs to no agent
	Unanswered  int               `json:"unansweredReplicas,omitempty"`
}

func (s *Server) application(ctx context.Context, c caller, _ request) (any, error) {
	if c.only == nil {
		return nil, &httpError{http.StatusBadRequest, "this path is for argocd-server: use /v1/applications"}
	}
	snapshot := s.snapshot()
	scope, err := s.access.scope(ctx, c, snapshot, query.Query{})
	if err != nil {
		return nil, err
	}
	silent := s.askReplicas(ctx)
	page, err := snapshot.List(query.Request{Limit: 1}, scope, s.clock())
	if err != nil {
		return nil, err
	}
	if len(page.Items) == 0 {
		return nil, &httpError{http.StatusNotFound, "the hub has no such Application in this project"}
	}
	out := applicationResponse{Application: page.Items[0], Unanswered: silent}
	if agent, known := s.cfg.Registry.Agent(out.Application.Agent); known {
		row := agentrows.Of(&agent).Limited()
		if at := out.Application.InSync; !at.IsZero() {
			row.Confirmed = max(row.Confirmed, at.Unix())
		}
		out.Agent = &row
	}
	return out, nil
}

func (s *Server) about(_ context.Context, c caller, _ request) (any, error) {
	about := agentrows.About{Hub: "namespace " + s.cfg.Namespace, Command: "argocd-agentctl", Login: agentrows.LoginToken, Applications: true, User: c.user.Name}
	if s.cfg.Namespace != defaultNamespace {
		about.Command += " --principal-namespace " + s.cfg.Namespace
	}
	if c.only != nil {
		about.Login = agentrows.LoginNone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	about.ArgoCD = s.argoCD
	return about, nil
}

// defaultNamespace is the namespace that argocd-agentctl uses if none is set.
const defaultNamespace = "argocd"

// ArgoConfig reads the URL of Argo CD's UI from ConfigMap argocd-cm. It is nil if there is none.
func (s *Server) ArgoConfig(_ context.Context, o *kind.Object) {
	text := ""
	if o != nil {
		text = agentrows.ArgoCDURL(rawjson.Text(o.Get("data"), "url"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.argoCD = text
}
