package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/audit/command"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/internal/upgrade"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Run runs an agent until the context ends.
func Run(ctx context.Context, cfg Config) error {
	client, err := kube.NewClient(cfg.Cluster)
	if err != nil {
		return err
	}
	cfg.Policy.ResyncRecreated = cfg.OnRecreate == "resync"
	a := &agent{cfg: cfg, client: client, log: cfg.Log, objects: kube.NewReadiness(kube.KindWatches("", true, nil)), saveNow: make(chan struct{}, 1),
		writeLatency: observe.NewWriteLatency(metricPrefix), commands: command.New(cfg.Audit, audit.Spoke)}
	a.policies, a.events = newPolicies(a), newApplicationEvents(a)
	return a.run(ctx)
}

// assemble creates the parts that need the cluster's identity.
func (a *agent) assemble() error {
	cfg := a.cfg
	n := reconcile.New(a.nodeConfig())
	a.runner = kube.NewRunner(a.client, kube.RunnerConfig{
		Reconciler: n, Watches: kube.KindWatches(cfg.Namespace, a.anyNamespace(), nil), Namespaces: a.namespaces(), Parallel: parallelWrites, Jitter: cfg.Jitter, Log: cfg.Log, Trace: cfg.Trace, WriteLatency: a.writeLatency,
		Remember: a.state.atLeast, MayRestore: a.mayRestore, Deleted: a.commands.Deleted,
	})
	a.runner.WatchSchemas()
	a.runner.WatchCRD(agentPolicies, a.policies.installed)
	a.runner.WatchSecrets(a.cfg.Namespace, a.cfg.Secrets)
	a.upgrade = upgrade.New(upgrade.Config{Client: a.client, Namespace: cfg.Namespace, Deployment: cfg.SelfUpgradeDeployment, Version: cfg.Version,
		Process: a.state.incarnation, Allowed: a.policies.allowsUpgrade, InSync: a.inSync, Log: a.log})
	var err error
	a.live, err = newLive(a, n)
	return err
}

// anyNamespace reports whether Applications can be in other namespaces than that of Argo CD.
func (a *agent) anyNamespace() bool {
	return a.cfg.Mode == kind.Managed && a.cfg.Mapping == kind.ByDestination || len(a.cfg.AllowedNamespaces) > 0
}

func (a *agent) namespaces() kube.NamespacePolicy {
	policy := kube.NamespacePolicy{Hint: "create the namespace or set --create-namespace"}
	if a.cfg.CreateNamespaces {
		policy.Create = func(string) (map[string]string, bool) { return nil, true }
	}
	return policy
}

// mayRestore returns an error if nothing may be written without a session: a session has begun since, or a later process
// of this agent has started.
func (a *agent) mayRestore(ctx context.Context) error {
	if a.open.Load() {
		return errors.New("a session has begun since")
	}
	return a.state.isLatest(ctx)
}

// parallelWrites is the maximum number of requests in flight.
const parallelWrites = 16

type agent struct {
	cfg          Config
	client       *kube.Client
	log          *slog.Logger
	runner       *kube.Runner
	live         *liveAccess
	policies     *policies
	events       *applicationEvents
	upgrade      *upgrade.Agent
	state        *leaseState
	saveNow      chan struct{} // of one: the Lease has to be written now
	hubSeen      bool          // this process had a session; owned by the runner's goroutine
	writeLatency prometheus.Histogram
	commands     *command.Auditor // nil if there is no audit log
	uid          string           // of the cluster
	handling     handling
	ctx          context.Context

	dialer           atomic.Pointer[transport.Dialer]
	conn             atomic.Pointer[transport.Conn]
	attempt          atomic.Uint64
	open             atomic.Bool
	synced           atomic.Bool // the initial sync was completed in this process
	disconnectReason disconnectReason
	refused          logonce.Last[string] // by address of the hub
	server           atomic.Value         // string: address of the hub that was connected last
	objects          *kube.Readiness
}

// identifyCluster reads the cluster's UID and the Lease. It retries until the API server responds.
func (a *agent) identifyCluster(ctx context.Context) error {
	pause := backoff.Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
	var logged logonce.One
	for {
		limited, cancel := context.WithTimeout(ctx, helloTimeout)
		uid, err := a.client.ClusterUID(limited)
		if err == nil {
			a.uid = uid
			a.state, err = loadLeaseState(limited, a.client, a.cfg.Namespace, uint64(time.Now().UnixMilli()))
		}
		cancel()
		if err == nil {
			a.log.InfoContext(ctx, "Starting agent", "mode", a.cfg.Mode, "cluster", a.uid, "namespace", a.cfg.Namespace, "version", a.cfg.Version)
			return nil
		}
		if logged.Changed(err.Error()) {
			a.disconnectReason.set("", err.Error())
			a.log.WarnContext(ctx, "Waiting for the API server", "error", err)
		}
		if !backoff.Sleep(ctx, pause.Next()) {
			return context.Cause(ctx)
		}
	}
}

func (a *agent) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.ctx = ctx
	var wg sync.WaitGroup
	start := func(what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	if a.cfg.HealthListener != nil { // first, so that probes report what the agent waits for
		start("probes", a.serveHealth)
	}
	err := a.identifyCluster(ctx)
	if err == nil {
		err = a.assemble()
	}
	if err != nil {
		cancel(err)
	} else {
		a.startAll(start)
	}
	wg.Wait()
	err = context.Cause(ctx)
	if errors.Is(err, kube.ErrStoreRegressed) {
		err = errors.Join(err, a.recordRestore(ctx))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// recordRestore records for the next process that the API server was restored from a backup.
func (a *agent) recordRestore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), helloTimeout)
	defer cancel()
	return a.state.resetMark(ctx)
}

// startAll starts every part. Each runs until its context ends.
func (a *agent) startAll(start func(what string, run func(context.Context) error)) {
	start("reconcile", func(ctx context.Context) error {
		return a.runner.Run(ctx, kube.Handlers{ToPeer: a.deliver, Report: a.report, Applied: a.applied})
	})
	start("policies", a.policies.run)
	start("connection", a.connect)
	start("hub state", a.persistHubStore)
	start("write health", a.reportWriteHealth)
	start("events", a.events.run)
	start("upgrade", a.upgrade.Run)
	for what, run := range a.live.runs() {
		start(what, run)
	}
	for what, run := range a.sharedRuns() {
		start(what, run)
	}
	if a.cfg.MetricsListener != nil {
		start("metrics", a.serveMetrics)
	}
}

// connect maintains the connection to the hub. It waits until the cluster has been read, because objects that are not
// read yet must not count as deleted.
func (a *agent) connect(ctx context.Context) error {
	var timeout <-chan time.Time
	if a.cfg.SyncTimeout > 0 {
		timeout = time.After(a.cfg.SyncTimeout)
	}
	for _, known := range []<-chan struct{}{a.objects.Ready(), a.policies.known} {
		select {
		case <-known:
		case <-ctx.Done():
			return nil
		case <-timeout:
			return fmt.Errorf("cluster not read within %v (--informer-sync-timeout): %w", a.cfg.SyncTimeout, a.readable())
		}
	}
	tlsConfig, renew := a.credentials(ctx)
	cfg := grpc.ClientConfig{
		Explain: a.cfg.Explain, Proxy: a.cfg.Proxy, Compress: a.cfg.Compression,
		WebSocket: a.cfg.WebSocket, Keepalive: grpc.Keepalive{Interval: a.cfg.KeepAlive}, Dial: a.cfg.Dial,
	}
	if a.cfg.HeaderName != "" {
		cfg.Metadata = []string{a.cfg.HeaderName, a.cfg.HeaderValue}
	}
	var connectors []transport.Connector
	for _, server := range a.cfg.Servers {
		if cfg.Address = server; tlsConfig != nil {
			cfg.TLS = func() (*tls.Config, error) { return tlsConfig(server) }
		}
		connectors = append(connectors, grpc.NewConnector(cfg))
	}
	dialer := transport.NewDialer(transport.DialerConfig{
		Connectors: connectors, Events: a, Log: a.log, Trace: a.cfg.Trace, Random: a.cfg.Jitter,
		Failed: a.recordFailure, Tunnels: a.live.tunnels(), RenewCertificate: renew,
	})
	a.dialer.Store(dialer)
	return dialer.Run(ctx)
}

// recordFailure records why there is no connection. The dialer logs it.
func (a *agent) recordFailure(server string, err error, _ time.Duration) {
	a.disconnectReason.set(server, err.Error())
}

// Connected implements transport.Events.
func (a *agent) Connected(c *transport.Conn) {
	ctx, cancel := context.WithTimeout(a.ctx, helloTimeout)
	defer cancel()
	revision, err := a.client.Revision(ctx, a.cfg.Namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
	if err != nil {
		a.log.Warn("Failed to read the current resourceVersion", "error", err)
		c.CloseAfter(engine.Unavailable, "the agent failed to read the current resourceVersion: "+err.Error(), 5*time.Second)
		return
	}
	var later []uint64
	if err := a.runner.Do(ctx, func(n *reconcile.Reconciler) { later = n.LaterGenerations() }); err != nil {
		return // the agent ends
	}
	remembered, err := a.state.reload(ctx)
	if err != nil {
		a.log.Warn("Failed to read what is known of the hub", "error", err)
		c.CloseAfter(engine.Unavailable, "the agent failed to read its Lease: "+err.Error(), 5*time.Second)
		return
	}
	_ = a.runner.PostFromPeer(a.ctx, c.Done(), reconcile.Remembered{Memory: remembered, LaterGenerations: later})
	a.conn.Store(c)
	a.server.Store(c.Address)
	epoch := engine.Epoch{Incarnation: a.state.incarnation, Attempt: a.attempt.Add(1)}
	traceHello(c, epoch)
	_ = a.runner.PostFromPeer(a.ctx, c.Done(), reconcile.FromPeer{Input: engine.Connected{Session: c.ID, Epoch: epoch,
		Store: engine.Store{UID: a.uid, Revision: kube.ParseResourceVersion(revision), Mark: a.state.historyMark()}, Facts: a.facts(ctx)}})
}

const helloTimeout = 15 * time.Second

// Received implements transport.Events.
func (a *agent) Received(c *transport.Conn, m engine.Message) {
	switch m := m.(type) {
	case engine.Delta:
		a.handling.received(c.ID, m, time.Now())
		a.commands.Items("", c.ID, m)
	case engine.Confirm:
		a.commands.Confirmed("", m.Scope, m.ID)
	case engine.Upgrade:
		a.upgrade.Received(m)
		return
	case engine.Welcome:
		if !a.recordGeneration(c, m) {
			return
		}
	}
	_ = a.runner.PostFromPeer(a.ctx, c.Done(), reconcile.FromPeer{Input: engine.Received{Session: c.ID, Message: m}})
}

// recordGeneration stores the generation of a promoted hub before its session begins. Otherwise the next process of this agent
// could follow the hub before it. It reports whether the session can begin.
func (a *agent) recordGeneration(c *transport.Conn, m engine.Welcome) bool {
	if m.HubGeneration <= 1 {
		return true
	}
	need := reconcile.Memory{Generation: a.state.follow(m)}
	switch known := a.state.generation(); {
	case a.oneHub() && a.state.isOtherHub(m):
		return true // the core refuses this hub
	case known.Hub != "" && known.Hub != m.PrincipalUID:
		need = reconcile.Memory{FormerGenerations: []engine.HubGeneration{m.Generation()}}
	}
	ctx, cancel := context.WithTimeout(a.ctx, helloTimeout)
	defer cancel()
	if err := a.state.atLeast(ctx, need); err != nil {
		a.log.Warn("Failed to save the generation of the hub", "error", err)
		c.CloseAfter(engine.Unavailable, "the agent failed to write its Lease: "+err.Error(), 5*time.Second)
		return false
	}
	return true
}

// Disconnected implements transport.Events.
func (a *agent) Disconnected(c *transport.Conn, err error) {
	a.conn.CompareAndSwap(c, nil)
	a.commands.Closed("", c.ID)
	why := "the hub ended the connection"
	if err != nil {
		why = err.Error()
	}
	a.disconnectReason.set(c.Address, why)
	_ = a.runner.PostFromPeer(a.ctx, nil, reconcile.FromPeer{Input: engine.Disconnected{Session: c.ID}})
}

// deliver applies an effect of the reconcile core to the connection. It never waits.
func (a *agent) deliver(e reconcile.ToPeer) {
	c := a.conn.Load()
	if c == nil {
		return
	}
	switch e := e.Effect.(type) {
	case engine.Send:
		if e.Session != c.ID {
			return
		}
		if ack, ok := e.Message.(engine.Ack); ok {
			a.commands.Answers("", c.ID, ack)
			e.Message = a.handling.acknowledged(c.ID, ack, time.Now())
		}
		if err := c.Send(e.Message); err != nil && c.Cause() == nil {
			a.log.Warn("Failed to send message", "error", err) // otherwise the end of the connection is logged
		}
	case engine.CloseSession:
		if e.Session == c.ID {
			c.CloseAfter(e.Code, e.Message, time.Duration(e.RetryAfter)*time.Millisecond)
		}
	}
}

// applied is called after the reconcile core has processed an input.
func (a *agent) applied(in reconcile.Input) {
	a.live.applied(in)
	a.objects.Follow(in)
}

// report logs the events of the reconcile core.
func (a *agent) report(r reconcile.Report) {
	if a.cfg.Reported != nil {
		a.cfg.Reported(r)
	}
	f := r.Event
	a.traceFact(f)
	server, _ := a.server.Load().(string)
	switch f.Type {
	case engine.Opened:
		a.open.Store(true)
		if !a.hubSeen { // so that the next process knows it even if this one ends within a minute
			a.hubSeen = true
			a.saveStateNow()
		}
		a.live.opened(*f.Welcome)
		a.cfg.Audit.SetAgent(f.Welcome.Agent)
		a.refused.Reset(server)
		a.disconnectReason.reset()
		if c := a.conn.Load(); c != nil {
			c.Established()
			a.events.opened(c, f.Welcome.Capabilities)
			a.upgrade.Opened(func(s engine.UpgradeState) { _ = c.Send(s) }) // fails if the session ends; the next one reports it
		}
		if m := f.Welcome.Mapping; a.cfg.Mode == kind.Managed && m != string(a.cfg.Mapping) {
			a.log.Warn("Following the mapping of the hub", "hub", m, "agent", a.cfg.Mapping, "hint", "set --destination-based-mapping as on the hub")
		}
		if len(f.Unshared) > 0 {
			a.log.Warn("Hub does not replicate some scopes", "scopes", f.Unshared, "version", f.Welcome.Version, "hint", "upgrade the principal")
		}
		a.log.Info("Connected to the hub", "server", server, "agent", f.Welcome.Agent, "hub", f.Welcome.PrincipalUID, "version", f.Welcome.Version)
	case engine.Closed:
		a.open.Store(false)
		a.upgrade.Closed()
		a.log.Info("Disconnected from the hub", "server", server, "code", f.Code, "reason", cmp.Or(f.Message, a.disconnectReason.text()))
	case engine.InitialSyncDone:
		if !a.synced.Swap(true) {
			a.log.Info("Initial sync completed")
		}
	case engine.Refused:
		why := string(f.Code) + ": " + f.Message
		planned := f.Code == engine.Reconnect || f.Code == engine.ShuttingDown // part of normal operation
		level := slog.LevelWarn
		switch {
		case !a.refused.Changed(server, why):
			level = slog.LevelDebug
		case planned:
			level = slog.LevelInfo
		}
		a.disconnectReason.set(server, why)
		log := a.log.With("server", server, "code", f.Code, "reason", f.Message)
		switch {
		case planned:
			log.Log(a.ctx, level, "Hub asked this agent to connect again")
		case f.Code == engine.WrongHub || f.Code == engine.HubSuperseded:
			log.Log(a.ctx, level, "This agent does not follow the hub")
		default:
			log.Log(a.ctx, level, "Hub refused this agent")
		}
	case engine.Rejected:
		if f.Code == engine.Busy || f.Code == engine.Unavailable && a.runner.WriteStats().Outage { // it is retried
			a.log.Debug("Item has to wait", "scope", f.Scope, "item", f.Key.String(), "reason", f.Message)
			return
		}
		a.log.Warn("Item rejected", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Accepted:
		a.log.Info("Item accepted again", "scope", f.Scope, "item", f.Key.String())
	case engine.HoldStarted:
		if f.Scope == "" { // the next process must know that the hub's store is untrusted
			a.saveStateNow()
		}
		a.log.Warn("Deletions held until confirmed on the hub", "scope", f.Scope, "count", f.Held.Count,
			"of", f.Held.Of, "reason", f.Held.Reason, "id", f.Held.ID)
	case engine.HoldEnded:
		a.log.Info("Hold ended", "scope", f.Scope)
	case engine.StoreAccepted:
		a.state.accepted.Store(true)
		a.saveStateNow()
		a.log.Info("Hub store accepted", "store", f.Store.UID, "revision", f.Store.Revision)
	case engine.StoreContinued:
		a.saveStateNow()
		a.log.Info("Following the promoted hub", "server", server, "store", f.Store.UID, "revision", f.Store.Revision)
	case engine.Aliased:
		a.log.Warn("Item is stored with different content", "scope", f.Scope, "item", f.Key.String(), "reason", f.Message)
	}
}

// saveStateNow makes persistHubStore write the Lease now.
func (a *agent) saveStateNow() {
	select {
	case a.saveNow <- struct{}{}:
	default: // already requested
	}
}

// persistHubStore writes what is known of the hub's store to the Lease, periodically and on request. It writes only
// changes.
func (a *agent) persistHubStore(ctx context.Context) error {
	tick := time.NewTicker(persistInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-a.saveNow:
		}
		var known reconcile.Memory
		var status engine.Status
		if err := a.runner.Do(ctx, func(n *reconcile.Reconciler) {
			known = n.Memory()
			status, _ = n.Status("")
		}); err != nil {
			return nil
		}
		if err := a.state.save(ctx, known); err != nil {
			a.log.WarnContext(ctx, "Failed to save state of the hub", "error", err)
		}
		if status.Unmarked != 0 {
			a.recordMark(ctx, status)
		}
	}
}

// recordMark stores a history mark in the Lease, and then lets the core send it to the hub.
func (a *agent) recordMark(ctx context.Context, status engine.Status) {
	mark, err := a.state.recordMark(ctx, status.Mark)
	if err != nil {
		a.log.WarnContext(ctx, "Failed to save the history mark", "error", err)
		return
	}
	_ = a.runner.Post(ctx, reconcile.FromPeer{Input: engine.Marked{Mark: mark, Revision: status.Unmarked}}) // fails if ctx ended
}

const persistInterval = time.Minute
