package search

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"

	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/query"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Settings of the search API.
type Settings struct {
	Listener  net.Listener // if nil, the API is off
	TLS       *tls.Config  // may request certificates of clients, and must not verify them
	Extension *Extension   // authenticates argocd-server; if nil, its requests are refused
	// AllowedOrigins are the origins of other pages that may read responses, as https://HOST or https://HOST:PORT.
	AllowedOrigins []string
	Page           http.Handler // serves paths outside of the API without authentication; if nil, there is no page
}

// Config is what a Server needs.
type Config struct {
	Settings
	Client     *kube.Client
	Namespace  string // of Argo CD and of the Agents
	Registry   *fleet.Registry
	Reconciler *reconcile.Reconciler       // used by Follow only
	Ready      func(context.Context) error // waits until the hub's objects were read
	Others     func() []string             // addresses of the other principal replicas; empty for one that cannot be reached
	InSyncOf   func(ctx context.Context, address string) (map[string]int64, error)
	Replicas   func(ctx context.Context, agent, hub, after string) (reconcile.ReplicaPage, error)
	Deliveries *Deliveries // may be nil
	Audit      *audit.Log  // if nil, there is no audit log
	Log        *slog.Logger

	MetricPrefix string
}

// Server serves the search API.
type Server struct {
	cfg      Config
	agents   map[string]kind.Agent // owned by the reconciler's goroutine
	listed   reconcile.ListedNames // owned by the reconciler's goroutine
	access   *access
	requests *limiter
	watches  *limiter
	replicas replicaTimes
	metrics  *metrics

	rows      *agentrows.State
	timelines *agentrows.Timelines

	mu      sync.Mutex
	model   *query.Model
	inSync  map[string]time.Time // by agent
	changed chan struct{}        // closed after a change; nil if no watch waits
	argoCD  string               // URL of its UI
}

// Limits of the API.
const (
	maxConnections     = 256
	maxRequests        = 16
	maxRequestsPerUser = 4
	maxWatches         = 64
	maxWatchesPerUser  = 4
	maxHeaderBytes     = 32 << 10
	writeTimeout       = 30 * time.Second
)

// New returns a Server. Run serves requests.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, agents: map[string]kind.Agent{}, access: newAccess(cfg), requests: newLimiter(maxRequests, maxRequestsPerUser),
		watches: newLimiter(maxWatches, maxWatchesPerUser), model: query.NewModel(rand.Text()), inSync: map[string]time.Time{},
		metrics: newMetrics(cfg.MetricPrefix), rows: agentrows.NewState(), timelines: agentrows.NewTimelines()}
	cfg.Registry.OnChange(s.agentChanged)
	return s
}

// Metrics returns the metrics of requests.
func (s *Server) Metrics() prometheus.Collector { return s.metrics }

// Run serves requests until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	if s.cfg.Ready(ctx) != nil {
		return nil // ctx ended
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { s.access.refreshClientCA(ctx) })
	server := &http.Server{Handler: s, TLSConfig: s.cfg.TLS, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: writeTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes, BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	s.cfg.Log.InfoContext(ctx, "Listening for searches", "address", s.cfg.Listener.Addr().String())
	if err := server.ServeTLS(netutil.LimitListener(s.cfg.Listener, maxConnections), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Follow updates the model. It is called by the goroutine that owns the reconciler, after the reconciler.
func (s *Server) Follow(in reconcile.Input) {
	for _, ref := range s.cfg.Reconciler.DecidedAgain() {
		s.updateAgent(ref.Namespace, ref.Name)
	}
	switch in := in.(type) {
	case reconcile.Observed:
		if in.Resource == kind.Applications {
			s.observe(in.Object)
		}
	case reconcile.Deleted:
		if in.Ref.Resource == kind.Applications {
			s.change(func(m *query.Model) { m.Delete(query.Key{Namespace: in.Ref.Namespace, Name: in.Ref.Name}) })
		}
	case reconcile.List:
		if in.Resource == kind.Applications {
			s.list(in)
		}
	case reconcile.Register:
		if before := s.agents[in.Agent.Name]; before != in.Agent {
			s.agents[in.Agent.Name] = in.Agent
			s.updateAgentsOf(before)
			s.updateAgentsOf(in.Agent)
		}
	case reconcile.Unregister:
		before := s.agents[in.Agent]
		delete(s.agents, in.Agent)
		s.updateAgentsOf(before)
	}
}

func (s *Server) list(in reconcile.List) {
	for _, o := range in.Objects {
		s.observe(o)
	}
	if present := s.listed.Add(in); present != nil {
		s.change(func(m *query.Model) {
			m.Keep(in.Namespace, func(k query.Key) bool { return present[[2]string{k.Namespace, k.Name}] })
		})
	}
}

func (s *Server) observe(o *kind.Object) {
	a := query.ReadApplication(o)
	a.Agent = s.agentOf(a.Namespace, a.Name)
	s.change(func(m *query.Model) { m.Set(a) })
}

// agentOf returns the agent of an Application, also if the Application is frozen.
func (s *Server) agentOf(namespace, name string) string {
	if place, ok := s.cfg.Reconciler.Place(namespace, name); ok {
		return place.Agent
	}
	agent, _, _ := s.cfg.Reconciler.Frozen(namespace, name)
	return agent
}

func (s *Server) updateAgentsOf(agent kind.Agent) {
	if agent.Name != "" {
		s.cfg.Reconciler.ApplicationsOf(agent, s.updateAgent)
	}
}

func (s *Server) updateAgent(namespace, name string) {
	agent := s.agentOf(namespace, name)
	s.change(func(m *query.Model) { m.SetAgent(query.Key{Namespace: namespace, Name: name}, agent) })
}

// change changes the model and wakes up watches.
func (s *Server) change(do func(*query.Model)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s.model)
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// agentChanged updates the row and the timeline of an agent, and reads when it was last in sync. For agents of other
// replicas, its Agent is the only source of that.
func (s *Server) agentChanged(agent string) {
	a, known := s.cfg.Registry.Agent(agent)
	if known {
		_ = s.rows.Set(agentrows.Of(&a)) // encoding a row cannot fail
		s.timelines.Observe(&a, time.Now())
	} else {
		s.rows.Remove(agent)
		s.timelines.Forget(agent)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !known {
		delete(s.inSync, agent)
	} else if at := a.Status.LastConfirmed; at != nil && at.After(s.inSync[agent]) {
		s.inSync[agent] = at.Time
	}
}

// InSync records that an agent with a session of this replica is in sync.
func (s *Server) InSync(agent string, at time.Time) {
	if _, known := s.cfg.Registry.Agent(agent); !known {
		return // it would not be removed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.After(s.inSync[agent]) {
		s.inSync[agent] = at
	}
}

// clock returns what queries compare times with.
func (s *Server) clock() query.Clock {
	return query.Clock{Now: time.Now(), InSync: func(agent string) time.Time {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.inSync[agent]
	}}
}

func (s *Server) snapshot() query.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model.Snapshot()
}
