package principal

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// standby receives the objects of the active hub. It is the agent of that hub, with a certificate that it issues to itself:
// the hubs of a group have one CA. One principal replica runs it.
type standby struct {
	cfg         Config
	client      *kube.Client
	hub         hub
	log         *slog.Logger
	reconciler  *reconcile.Reconciler
	runner      *kube.Runner
	objects     *kube.Readiness
	incarnation uint64
	ctx         context.Context

	attempt atomic.Uint64
	conn    atomic.Pointer[transport.Conn]
	refused logonce.Last[string] // by address
}

// Limits of what a standby stores: as much as the active hub.
const (
	standbyMaxItems = 1_000_000
	standbyMaxBytes = 64 << 30
)

// standbyCertificateLifetime is short: the certificate is issued for each connection and stored nowhere.
const standbyCertificateLifetime = 24 * time.Hour

// Pauses between two records of what was received: after a change, and of the time while everything stays equal.
const (
	recordInterval     = 5 * time.Second
	recordTimeInterval = time.Minute
)

// runStandby receives the objects of the active hub while this replica holds the Lease. If it loses the Lease, it returns an
// error, so that the process starts again. running gets the standby.
func runStandby(ctx context.Context, cfg Config, client *kube.Client, h hub, running *atomic.Pointer[standby]) error {
	store := clusterLease{client, kind.Ref{Resource: kube.Leases, Namespace: cfg.Namespace, Name: standbyLeaseName}}
	lease := &standbyLease{store: store, identity: replicaName(cfg), log: cfg.Log}
	return lease.run(ctx, func(ctx context.Context) error {
		now, err := waitForHub(ctx, client, cfg.Namespace, cfg.Log) // another replica may have recorded what was received since
		switch {
		case err != nil:
			return nil //nolint:nilerr // ctx ended
		case !h.same(now):
			return fmt.Errorf("the state of the hub changed from (%s) to (%s): start again", h, now)
		}
		s := newStandby(cfg, client, now)
		running.Store(s)
		return s.run(ctx)
	})
}

func newStandby(cfg Config, client *kube.Client, h hub) *standby {
	watches := kube.StandbyWatches(cfg.Namespace, cfg.PKINamespace, cfg.ApplicationNamespaces)
	s := &standby{cfg: cfg, client: client, hub: h, log: cfg.Log, objects: kube.NewReadiness(watches), incarnation: uint64(time.Now().UnixMilli())}
	tuning := standbyTuning
	tuning.MaxItems, tuning.MaxBytes = standbyMaxItems, standbyMaxBytes
	s.reconciler = reconcile.New(reconcile.Config{Side: kind.Spoke, Mode: kind.Standby, Kinds: kind.StandbyKinds(), ArgoNamespace: cfg.Namespace, PKINamespace: cfg.PKINamespace,
		ClusterUID: h.clusterUID, PrincipalUID: h.state.Identity, Version: cfg.Version, ApplicationNamespaces: cfg.ApplicationNamespaces, Tuning: tuning,
		KnownStore: h.state.Predecessor, KnownGeneration: engine.HubGeneration{Hub: h.state.Identity, Number: h.state.Generation}, OneHub: true})
	s.runner = kube.NewRunner(client, kube.RunnerConfig{Reconciler: s.reconciler, Watches: watches,
		Parallel: parallelWrites, Jitter: cfg.Jitter, Log: cfg.Log, Trace: cfg.Trace,
		Namespaces: kube.NamespacePolicy{Create: cfg.NamespaceCreate.allows, Hint: "create the namespace, or let the principal do so with --namespace-create-enable"}})
	return s
}

// run receives objects until ctx ends.
func (s *standby) run(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	s.ctx = ctx
	all.Go(func() error {
		err := s.runner.Run(ctx, kube.Handlers{ToPeer: s.deliver, Report: s.report, Applied: s.objects.Follow})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it ended because of ctx
		}
		return err
	})
	all.Go(func() error { return s.connect(ctx) })
	all.Go(func() error { return s.recordReceived(ctx) })
	return all.Wait()
}

// connect maintains the connection to the active hub. It waits until the cluster has been read: what is not read yet must not
// be written again.
func (s *standby) connect(ctx context.Context) error {
	select {
	case <-s.objects.Ready():
	case <-ctx.Done():
		return nil
	}
	var connectors []transport.Connector
	for _, address := range s.cfg.ActiveHubs {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("address of the active hub: %w", err)
		}
		connectors = append(connectors, grpc.NewConnector(grpc.ClientConfig{Address: address, Explain: identity.ExplainClient, Proxy: http.ProxyFromEnvironment,
			TLS: func() (*tls.Config, error) { return s.clientTLS(ctx, host) }}))
	}
	return transport.NewDialer(transport.DialerConfig{Connectors: connectors, Name: hubstate.AgentName(s.hub.clusterUID), Events: s, Log: s.log, Trace: s.cfg.Trace, Random: s.cfg.Jitter}).Run(ctx)
}

// clientTLS issues a certificate for one connection. It is not recorded: it is valid for a day, and a rotation of the CA
// reaches this hub as an object.
func (s *standby) clientTLS(ctx context.Context, host string) (*tls.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	authority, err := (&pki.Manager{Secrets: kube.Secrets{Client: s.client, Namespace: s.cfg.PKINamespace}}).Authority(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the CA that both hubs share: %w", err)
	}
	pair, err := authority.Client(hubstate.AgentName(s.hub.clusterUID), standbyCertificateLifetime, time.Now())
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of the standby: %w", err)
	}
	store := identity.NewStore("the certificate of the standby")
	if err := store.Update(pair.Cert, pair.Key, authority.BundlePEM()); err != nil {
		return nil, err
	}
	return identity.ClientTLS(store, host)
}

// Connected implements transport.Events.
func (s *standby) Connected(c *transport.Conn) {
	ctx, cancel := context.WithTimeout(s.ctx, helloTimeout)
	defer cancel()
	revision, err := s.client.Revision(ctx, s.cfg.Namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
	if err != nil {
		s.log.WarnContext(ctx, "Failed to read the current resourceVersion", "error", err)
		c.CloseAfter(engine.Unavailable, "the standby failed to read the current resourceVersion: "+err.Error(), 5*time.Second)
		return
	}
	s.conn.Store(c)
	_ = s.runner.PostFromPeer(s.ctx, c.Done(), reconcile.FromPeer{Input: engine.Connected{Session: c.ID,
		Epoch: engine.Epoch{Incarnation: s.incarnation, Attempt: s.attempt.Add(1)},
		Store: engine.Store{UID: s.hub.clusterUID, Revision: kube.ParseResourceVersion(revision)}}})
}

// Received implements transport.Events.
func (s *standby) Received(c *transport.Conn, m engine.Message) {
	if welcome, ok := m.(engine.Welcome); ok {
		if code, reason := s.refusal(welcome); reason != "" {
			if s.refused.Changed(c.Address, reason) {
				s.log.Warn("Active hub is not followed", "server", c.Address, "code", code, "reason", reason)
			}
			c.CloseAfter(code, reason, standbyRefusedRetry)
			return
		}
		if !s.recordGeneration(c, welcome) {
			return
		}
	}
	_ = s.runner.PostFromPeer(s.ctx, c.Done(), reconcile.FromPeer{Input: engine.Received{Session: c.ID, Message: m}})
}

// standbyRefusedRetry is the pause after a hub that a user has to change.
const standbyRefusedRetry = 20 * time.Second

// refusal returns why this standby does not follow a hub, or "".
func (s *standby) refusal(m engine.Welcome) (engine.Code, string) {
	switch {
	case m.PrincipalUID != s.hub.state.Identity:
		return engine.WrongHub, fmt.Sprintf("the hubs are of different groups: this standby has identity %s, and the hub at this address %.64q", s.hub.state.Identity, m.PrincipalUID)
	case m.Version != s.cfg.Version:
		return engine.NotAllowed, fmt.Sprintf("the standby runs release %q, and the active hub %.40q: upgrade one of the two", s.cfg.Version, m.Version)
	case m.ArgoNamespace != s.cfg.Namespace:
		return engine.NotAllowed, fmt.Sprintf("Argo CD is in namespace %s of the standby and %.64q of the active hub: both must have the same", s.cfg.Namespace, m.ArgoNamespace)
	case m.Store.UID == s.hub.clusterUID:
		return engine.NotAllowed, "the address of the active hub leads to the cluster of this standby"
	case s.hub.state.WasActiveWith(m.PrincipalUID, m.Generation().Number):
		return engine.WrongHub, fmt.Sprintf("two hubs claim to be active with generation %d: this hub was active with it, too, and agents that followed it refuse the hub with store %.64q; "+
			"demote that hub, and promote the one that must be active with `argocd-agentctl hub promote --accept-loss`", m.Generation().Number, m.Store.UID)
	}
	return engine.OK, ""
}

// recordGeneration stores a later generation of the active hub, so that a promotion of this hub exceeds it. The principal
// starts again with it. It reports whether the session can begin.
func (s *standby) recordGeneration(c *transport.Conn, m engine.Welcome) bool {
	if m.HubGeneration <= s.hub.state.Generation {
		return true
	}
	err := s.changeState(func(state hubstate.State) hubstate.State { return hubstate.FollowGeneration(state, m.HubGeneration) })
	if err != nil {
		s.log.Warn("Failed to save the generation of the active hub", "error", err)
	}
	c.CloseAfter(engine.Unavailable, "the standby starts again to follow a later generation", 5*time.Second)
	return false
}

// changeState changes the state of this hub unless it is no longer a standby of this group.
func (s *standby) changeState(change func(hubstate.State) hubstate.State) error {
	ctx, cancel := context.WithTimeout(s.ctx, helloTimeout)
	defer cancel()
	state, stored, err := hubstate.Read(ctx, s.client, s.cfg.Namespace, s.hub.clusterUID)
	if err != nil {
		return err
	}
	if state.Role != hubstate.Standby || state.Identity != s.hub.state.Identity {
		return errors.New("this hub is no longer a standby of the group")
	}
	next := change(state)
	if next == state {
		return nil
	}
	return hubstate.Write(ctx, s.client, s.cfg.Namespace, stored, next)
}

// recordReceived stores up to which revision everything of the active hub was received, and when that was proven, so that a
// promotion knows it. The revision is lower than before if the active hub was restored and a user confirmed that: what it
// writes from then on has revisions that were used before, and must not count as received.
func (s *standby) recordReceived(ctx context.Context) error {
	var logged logonce.One
	record := standbyRecord{written: s.hub.state, at: s.hub.state.ProvenAt, before: time.Now().Unix()}
	for backoff.Sleep(ctx, recordInterval) {
		var received engine.Store
		var equalAt, now engine.Time
		if s.runner.Do(ctx, func(n *reconcile.Reconciler) {
			received, equalAt, now = n.Received(), n.Receiving().EqualAt, s.runner.Now()
		}) != nil {
			return nil //nolint:nilerr // ctx ended
		}
		wall := time.Now()
		proof := wall.Add(-time.Duration(now-equalAt) * time.Millisecond)
		at, changed := record.observe(wall.Unix(), received, equalAt, proof.Unix())
		if !changed {
			continue
		}
		err := s.changeState(func(state hubstate.State) hubstate.State { return hubstate.Proven(state, received, at) })
		switch {
		case err == nil:
			record.written = hubstate.Proven(record.written, received, at)
			logged = logonce.One{}
		case ctx.Err() == nil && logged.Changed(err.Error()):
			s.log.WarnContext(ctx, "Failed to record what was received", "error", err)
		}
	}
	return nil
}

// standbyRecord decides when a standby writes what it has received. Times are those of the wall clock, in seconds since 1970.
type standbyRecord struct {
	written hubstate.State
	equalAt engine.Time // of the last proof that was observed
	at      int64       // not later than that proof
	before  int64       // the observation before
}

// observe returns when the standby was last proven to have everything, and whether to write that. proof is the time of equalAt by
// the wall clock, if neither the clock was set nor the process suspended since. Otherwise it can be too late, so that a proof
// does not count from later than the observation before it.
func (r *standbyRecord) observe(now int64, received engine.Store, equalAt engine.Time, proof int64) (at int64, write bool) {
	if equalAt > r.equalAt {
		r.at, r.equalAt = min(r.before, proof), equalAt
	}
	r.before = now
	next := hubstate.Proven(r.written, received, r.at)
	interval := int64(recordTimeInterval / time.Second)
	differs := next.ProvenAt - r.written.ProvenAt // negative if the clock was set back
	return r.at, next.Predecessor != r.written.Predecessor || differs >= interval || differs <= -interval
}

// metrics returns how far this standby is behind the active hub.
func (s *standby) metrics(ctx context.Context) ([]observe.Metric, error) {
	var now engine.Time
	var receiving reconcile.Receiving
	if err := s.runner.Do(ctx, func(n *reconcile.Reconciler) { now, receiving = s.runner.Now(), n.Receiving() }); err != nil {
		return nil, err
	}
	since := max(receiving.EqualAt, engine.Time(s.incarnation))
	return []observe.Metric{
		observe.Gauge(metricPrefix+"_standby_lag_seconds", "Seconds since this standby hub was last proven to have all objects of the active hub, or since it began to receive them. Only the principal replica that receives them has it.", float64(max(0, now-since))/1000),
		observe.Gauge(metricPrefix+"_standby_open_scopes", "Kinds of objects of which this standby hub is not proven to have all of the active hub.", float64(receiving.OpenScopes)),
	}, nil
}

// Disconnected implements transport.Events.
func (s *standby) Disconnected(c *transport.Conn, _ error) {
	s.conn.CompareAndSwap(c, nil)
	_ = s.runner.PostFromPeer(s.ctx, nil, reconcile.FromPeer{Input: engine.Disconnected{Session: c.ID}})
}

// deliver applies an effect of the core to the connection. It does not block.
func (s *standby) deliver(e reconcile.ToPeer) {
	c := s.conn.Load()
	if c == nil {
		return
	}
	switch e := e.Effect.(type) {
	case engine.Send:
		if e.Session != c.ID {
			return
		}
		if err := c.Send(e.Message); err != nil && c.Cause() == nil {
			s.log.Warn("Failed to send message", "error", err)
		}
	case engine.CloseSession:
		if e.Session == c.ID {
			c.CloseAfter(e.Code, e.Message, time.Duration(e.RetryAfter)*time.Millisecond)
		}
	}
}

// report logs the events of the core.
func (s *standby) report(r reconcile.Report) {
	f, server := r.Event, ""
	c := s.conn.Load()
	if c != nil {
		server = c.Address
	}
	switch f.Type {
	case engine.Opened:
		if c != nil {
			c.Established()
		}
		s.refused.Reset(server)
		s.log.Info("Connected to the active hub", "server", server, "cluster", f.Store.UID, "generation", f.Welcome.HubGeneration)
		if len(f.Unshared) > 0 {
			s.log.Warn("Active hub does not send everything", "scopes", f.Unshared)
		}
	case engine.Closed:
		s.log.Info("Disconnected from the active hub", "code", f.Code, "reason", f.Message)
	case engine.InitialSyncDone:
		s.log.Info("Objects of the active hub were compared")
	case engine.Refused:
		if s.refused.Changed(server, f.Message) {
			s.log.Warn("Active hub refused this standby", "server", server, "code", f.Code, "reason", f.Message)
		}
	case engine.Rejected:
		s.log.Warn("Object of the active hub rejected", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Accepted:
		s.log.Info("Object accepted", "scope", f.Scope, "item", f.Key.String())
	case engine.HoldStarted:
		s.log.Warn("Deletions held until confirmed on the active hub", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of, "reason", f.Held.Reason, "id", f.Held.ID)
	case engine.HoldEnded:
		s.log.Info("Hold ended", "scope", f.Scope)
	}
}
