package principal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent/argocd-agent/internal/appevents"
	"github.com/argocd-agent/argocd-agent/internal/appmetrics"
	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/audit/command"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/live"
	"github.com/argocd-agent/argocd-agent/internal/live/shared"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/search"
	"github.com/argocd-agent/argocd-agent/internal/tasks"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/sharedread"
)

// Run runs a principal until ctx ends. Then it moves its agents to the other principal replicas, if there are any, for at
// most drainTime. Anything else that ends a principal, such as the loss of the Lease of the hubs, ends it at once, also in
// that time.
func Run(ctx context.Context, cfg Config) error {
	cfg.PKINamespace = cmp.Or(cfg.PKINamespace, cfg.Namespace)
	client, err := kube.NewClient(cfg.Cluster)
	if err != nil {
		return err
	}
	stop := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(stop))
	defer cancel(nil)
	var wg sync.WaitGroup
	start := func(name string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	var current atomic.Pointer[process] // nil until the API server responds
	start("shutdown", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-stop.Done():
		}
		if c := current.Load(); c != nil && c.principal != nil {
			c.principal.drain(ctx)
		}
		cancel(context.Cause(stop))
		return nil
	})
	if cfg.HealthListener != nil {
		start("probes", func(ctx context.Context) error { return serveHealth(ctx, cfg.HealthListener, client, current.Load) })
	}
	refuse, stopRefusing := context.WithCancel(ctx)
	defer stopRefusing()
	refused := make(chan struct{})
	start("not-ready server", func(context.Context) error {
		defer close(refused)
		return serveNotReady(refuse, cfg, func() error { return current.Load().notReadyReason() })
	})
	if h, err := waitForHub(ctx, client, cfg.Namespace, cfg.Log); err != nil {
		cancel(err)
	} else {
		h.log(cfg.Log).InfoContext(ctx, "Starting principal", "namespace", cfg.Namespace, "version", cfg.Version)
		if lease, err := h.lease(ctx, cfg, client); err != nil {
			cancel(err)
		} else if refusal := h.refusal(lease); refusal != nil {
			cfg.Log.WarnContext(ctx, "Agents are refused", "reason", refusal)
			current.Store(&process{hub: h, lease: lease})
			var running atomic.Pointer[standby]
			startIdle(start, cfg, client, h, lease, &running, cancel)
			if h.receives(cfg) {
				start("standby", func(ctx context.Context) error { return runStandby(ctx, cfg, client, h, &running) })
			}
		} else {
			p := assemble(ctx, cfg, client, h, cancel)
			current.Store(&process{hub: h, lease: lease, principal: p})
			p.start(start, func() { stopRefusing(); <-refused })
			if lease != nil {
				start("hub lease", lease.Renew)
			}
		}
	}
	wg.Wait()
	err = context.Cause(ctx)
	if c := current.Load(); errors.Is(err, kube.ErrStoreRegressed) && c != nil && c.principal != nil {
		err = errors.Join(err, c.principal.recordRestore(ctx))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// recordRestoreTimeout limits how long a process continues to run after it noticed that the API server was restored.
const recordRestoreTimeout = time.Minute

// recordRestore records for the next process that the API server was restored from a backup. Agents are disconnected.
func (p *principal) recordRestore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordRestoreTimeout)
	defer cancel()
	return p.registry.ResetHistoryMarks(ctx)
}

// parallelWrites limits the concurrent writes of the reconciler.
const parallelWrites = 64

// writesPerAgent limits the writes for one agent. An API server on two cores accepts about 500 small writes per second,
// of which one agent gets a tenth for long, and more until it has used up the burst.
var writesPerAgent = kube.AgentLimits{Parallel: 2, Rate: 50, Burst: 1000}

type principal struct {
	cfg           Config
	hub           hub
	client        *kube.Client
	log           *slog.Logger
	reconciler    *reconcile.Reconciler // used by handlers of the runner only
	runner        *kube.Runner
	writeLatency  prometheus.Histogram
	tasks         *tasks.Runner
	blocklist     *revoke.Blocklist
	registry      *fleet.Registry
	replicas      *fleet.Replicas
	spreader      *fleet.Spreader
	elsewhere     *fleet.Elsewhere
	hold          *fleet.Hold
	upgrades      *fleet.Upgrades
	status        *fleet.StatusWriter
	agents        *fleet.Reconciler
	finalizers    *fleet.FinalizerRemover
	freshness     *fleet.Freshness
	confirmations *fleet.Confirmations
	issuer        *issue.Issuer // nil if the principal does not issue certificates
	conns         *connections
	sessions      *sessions
	server        *transport.Server
	live          *live.Live
	shared        *shared.Services
	apps          *appmetrics.Collector // nil without metrics
	events        *appevents.Writer
	search        *search.Server // nil without the search API
	namespaces    *namespaces
	standbys      *standbys
	lastRefusal   logonce.Last[string] // by agent
	commands      *command.Auditor     // nil if there is no audit log

	serving      atomic.Bool
	objects      *kube.Readiness
	settingsRead chan struct{} // closed when the settings of Argo CD were read once
}

// assemble connects the parts of a principal. Nothing happens until start.
// restart is called if the state of the hub changes.
func assemble(ctx context.Context, cfg Config, client *kube.Client, h hub, restart func(error)) *principal {
	p := &principal{cfg: cfg, hub: h, client: client, log: cfg.Log, objects: kube.NewReadiness(kube.KindWatches("", true, cfg.ApplicationNamespaces)), settingsRead: make(chan struct{}), writeLatency: observe.NewWriteLatency(metricPrefix),
		tasks: tasks.NewRunner(cfg.Log), conns: newConnections(), blocklist: revoke.New(client, cfg.Namespace, cfg.Revocations, cfg.Log),
		commands: command.New(cfg.Audit, audit.Hub)}
	p.reconciler = reconcile.New(reconcile.Config{
		Side: kind.Hub, ArgoNamespace: cfg.Namespace, ClusterUID: h.clusterUID, PrincipalUID: h.state.Identity, Generation: h.state.Generation, Predecessor: h.state.Predecessor,
		Version: cfg.Version,
		Settings: kind.Settings{AllowedNamespaces: cfg.AllowedNamespaces, LabelSelector: cfg.LabelSelector,
			ShareUnscopedRepositories: cfg.ShareUnscopedRepositories, SyncRepositoryTrust: cfg.SyncRepositoryTrust, SyncArgoSettings: cfg.SyncArgoSettings, SyncWriteCredentials: cfg.SyncWriteCredentials},
		FleetCheck: true, AcceptEvents: cfg.ApplicationEvents, ApplicationNamespaces: cfg.ApplicationNamespaces,
	})
	p.runner = kube.NewRunner(client, kube.RunnerConfig{
		Reconciler: p.reconciler, Watches: kube.KindWatches(cfg.Namespace, true, cfg.ApplicationNamespaces), Parallel: parallelWrites, PerAgent: writesPerAgent, Jitter: cfg.Jitter, Log: cfg.Log, Trace: cfg.Trace, WriteLatency: p.writeLatency,
		BeforeApplications: p.beforeApplications,
		Namespaces:         kube.NamespacePolicy{Create: cfg.NamespaceCreate.allows, Hint: "create the namespace, or let the principal do so with --namespace-create-enable"},
	})
	p.standbys = newStandbys(p)
	p.registry = fleet.NewRegistry(fleet.RegistryConfig{Client: client, Namespace: cfg.Namespace, Mapping: cfg.Mapping, Namespaces: cfg.ApplicationNamespaces, Limits: cfg.Limits, ProxyAddress: cfg.ResourceProxy,
		Post: p.postRegistration, Revoked: p.blocklist.RevokedNow, Log: cfg.Log})
	p.replicas = fleet.NewReplicas(client, p.registry, cfg.Namespace, replicaName(cfg), cfg.ReplicaAddress, cfg.Log)
	p.upgrades = fleet.NewUpgrades(p.registry, func(agent string, epoch engine.Epoch, m engine.Upgrade) { p.conns.sendTo(agent, epoch, m) })
	p.events = appevents.New(appevents.Config{Off: !cfg.ApplicationEvents, Client: client, Do: p.runner.Do, Log: cfg.Log})
	var deliveries *search.Deliveries
	if cfg.Search.Listener != nil {
		deliveries = search.NewDeliveries()
	}
	p.sessions = newSessions(ctx, sessionsConfig{deliveries: deliveries, conns: p.conns, registry: p.registry, replicas: p.replicas, storeUID: h.clusterUID, require: cfg.RequireRegistration,
		revoked: cfg.Revocations.Revoked, post: p.postFromPeer, refusal: p.standbys.refusal, log: cfg.Log, commands: p.commands, events: p.events, upgraded: p.upgraded, closed: p.upgrades.Closed,
		revisions: sharedread.New(func() (uint64, error) {
			ctx, cancel := context.WithTimeout(ctx, helloTimeout)
			defer cancel()
			text, err := client.Revision(ctx, cfg.Namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
			if err != nil {
				return 0, err
			}
			return strconv.ParseUint(text, 10, 64)
		})})
	p.assembleFleet()
	p.server = transport.NewServer(transport.ServerConfig{Events: p.sessions, Log: cfg.Log, Trace: cfg.Trace, Targets: p.shared.Targets()})
	p.spreader = fleet.NewSpreader(p.replicas, p.spreadSessions, cfg.Log)
	p.elsewhere = fleet.NewElsewhere(p.registry, p.replicas, p.runner.Post, p.waitForInitialSync, cfg.Log)
	p.live = live.New(live.Config{Settings: cfg.Live, Namespace: cfg.Namespace, Watch: p.runner.Watch, Registry: p.registry, Replicas: p.replicas, Reconciler: p.reconciler,
		Revocations: cfg.Revocations, OpenTunnel: p.server.OpenTunnel, InSync: p.inSync, DialSharedRedis: p.shared.DialRedis, Log: cfg.Log, Trace: cfg.Trace, Audit: cfg.Audit})
	if cfg.MetricsListener != nil {
		p.apps = appmetrics.New(placedApplications{p})
	}
	if cfg.Search.Listener != nil {
		p.search = search.New(search.Config{Settings: cfg.Search, Client: client, Namespace: cfg.Namespace, Registry: p.registry, Reconciler: p.reconciler, Ready: p.waitForInitialSync,
			Others: p.replicas.Others, InSyncOf: p.live.InSyncOf, Replicas: p.live.Replicas, Deliveries: deliveries, Audit: cfg.Audit, Log: cfg.Log, MetricPrefix: metricPrefix})
	}
	p.watch(restart)
	return p
}

func (p *principal) assembleFleet() {
	cfg := p.cfg
	p.hold = fleet.NewHold(fleet.HoldConfig{Client: p.client, Namespace: cfg.Namespace, Replicas: p.replicas, Post: p.runner.Post, Do: p.runner.Do,
		AddTask: p.tasks.Add, Log: cfg.Log})
	p.status = fleet.NewStatusWriter(fleet.StatusWriterConfig{Registry: p.registry, Replicas: p.replicas, Upgrades: p.upgrades,
		Do: p.do, Hello: p.conns.hello, Log: cfg.Log})
	p.shared = shared.New(shared.Config{Settings: cfg.Shared, Namespace: cfg.Namespace, Registry: p.registry, Do: p.runner.Do, AddTask: p.tasks.Add, Log: cfg.Log})
	agents := fleet.ReconcilerConfig{Client: p.client, Namespace: cfg.Namespace, JoinTokens: kube.Secrets{Client: p.client, Namespace: cfg.PKINamespace}, Registry: p.registry, Blocklist: p.blocklist,
		Certificates: p.conns.certificates, Status: p.status, Deleted: p.shared.Deleted, Log: cfg.Log}
	if cfg.Issue != nil {
		p.issuer = issue.New(*cfg.Issue, kube.Secrets{Client: p.client, Namespace: cfg.PKINamespace}, fleet.Registrations{Registry: p.registry, Promoted: p.hub.state.Promoted(), Revoke: p.blocklist.Revoke}, cfg.Log)
	}
	switch {
	case cfg.Live.Resource == nil: // no resource proxy would accept credentials
	case cfg.Live.Access != nil:
		agents.ClusterConfig = cfg.Live.Access
	case p.issuer != nil:
		agents.ClusterConfig = p.issuer
	}
	p.agents = fleet.NewReconciler(agents)
	p.finalizers = fleet.NewFinalizerRemover(p.client, p.registry, p.reconciler, p.runner.Do, cfg.Log)
	p.freshness = fleet.NewFreshness(fleet.FreshnessConfig{FreshnessSettings: cfg.Freshness, Client: p.client, Registry: p.registry, Replicas: p.replicas,
		Connected: p.status.HasSession, Reconciler: p.reconciler, Do: p.runner.Do, Ready: p.waitForInitialSync, Log: cfg.Log})
	p.confirmations = fleet.NewConfirmations(p.registry, p.runner.Post, p.tasks.Add)
	p.standbys.confirmations = fleet.NewConfirmations(p.registry, p.standbys.post, p.tasks.Add)
	p.namespaces = &namespaces{create: cfg.NamespaceCreate, client: p.client, registry: p.registry, addTask: p.tasks.Add, log: cfg.Log, ensured: map[string]string{}}
}

// watch connects the watches of the hub with the parts that need them. Parts that share a watch get its inputs in this
// order, after the reconciler.
func (p *principal) watch(restart func(error)) {
	p.runner.WatchSchemas()
	for _, w := range p.registry.Watches() {
		p.runner.Watch(w, p.registry.Apply)
	}
	p.runner.Watch(p.replicas.Watch(), p.replicas.Apply)
	configMaps := kube.Watch{Resource: kind.ConfigMaps, Namespace: p.cfg.Namespace}
	for _, sink := range []kube.Sink{p.blocklist.Sink(p.revoked), p.hold.Sink(), kube.ObjectSink(argoConfig, p.applySettings), p.hub.sink(restart)} {
		p.runner.Watch(configMaps, sink)
	}
	if p.search != nil {
		p.runner.Watch(configMaps, kube.ObjectSink(argoConfig, p.search.ArgoConfig))
	}
	secrets := p.cfg.Secrets
	if p.issuer != nil {
		secrets = p.issuer.SecretHandlers(secrets)
	}
	p.runner.WatchSecrets(p.cfg.PKINamespace, secrets)
	p.runner.WatchSecrets(p.cfg.Namespace, p.cfg.ArgoSecrets)
}

func replicaName(cfg Config) string {
	if cfg.Replica != "" {
		return cfg.Replica
	}
	name, err := os.Hostname()
	if err != nil {
		return "principal"
	}
	return name
}

// start starts every part. Each runs until its context ends.
func (p *principal) start(start func(name string, run func(context.Context) error), stopRefusing func()) {
	runs := map[string]func(context.Context) error{
		"reconciler": p.runReconciler, "tasks": p.tasks.Run, "Lease": func(ctx context.Context) error { return p.replicas.Run(ctx, p.sessionCount) }, "spread agents": p.spreader.Run, "agents elsewhere": p.elsewhere.Run,
		"fleet check": p.hold.Run, "Agents": p.agents.Run, "Agent status": p.status.Run, "finalizers": p.finalizers.Run, "freshness": p.freshness.Run, "events": p.events.Run, "standbys": p.standbys.run,
		"connections": func(ctx context.Context) error { return p.serve(ctx, stopRefusing) },
	}
	if p.issuer != nil {
		runs["issuer"] = p.issuer.Run
	}
	maps.Copy(runs, p.live.Runs(p.waitForInitialSync))
	maps.Copy(runs, p.shared.Runs())
	if p.cfg.MetricsListener != nil {
		runs["metrics"] = p.serveMetrics
	}
	if p.search != nil {
		runs["search"] = p.search.Run
	}
	for name, run := range runs {
		start(name, run)
	}
}

func (p *principal) runReconciler(ctx context.Context) error {
	return p.runner.Run(ctx, kube.Handlers{ToPeer: p.sessions.deliver, Report: p.report, RecordFleetHold: p.hold.Record, Applied: p.applied, Writing: p.live.Writing})
}

// beforeApplications waits for the settings of Argo CD, because a change of them registers all agents again.
func (p *principal) beforeApplications(ctx context.Context) {
	select {
	case <-p.settingsRead:
	case <-time.After(settingsTimeout):
	case <-ctx.Done():
	}
	p.elsewhere.Begin(ctx)
}

const settingsTimeout = 10 * time.Second

// waitForInitialSync blocks until the hub's objects, settings and blocklist have been read. Before that, an object that is
// not known yet would look deleted, and a revoked certificate valid.
func (p *principal) waitForInitialSync(ctx context.Context) error {
	for _, read := range []<-chan struct{}{p.objects.Ready(), p.registry.Ready(), p.settingsRead, p.blocklist.Ready()} {
		select {
		case <-read:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// serve accepts agents. Before that, it stops the server that refuses them.
func (p *principal) serve(ctx context.Context, stopRefusing func()) error {
	if p.waitForInitialSync(ctx) != nil {
		return nil //nolint:nilerr // ctx ended
	}
	stopRefusing()
	p.serving.Store(true)
	p.replicas.Renew()
	p.log.InfoContext(ctx, "Listening for agents", "address", p.cfg.Listener.Addr().String())
	config := grpc.ServerConfig{
		TLS: p.cfg.TLS, WebSocket: p.cfg.WebSocket, Authenticate: p.cfg.Authenticate, Trace: p.cfg.Trace, Explain: p.cfg.Explain,
		Keepalive: grpc.Keepalive{MinInterval: p.cfg.KeepaliveMinInterval},
	}
	if p.issuer != nil {
		config.Enroll = p.issuer
	}
	return grpc.NewServer(config, p.server).Run(ctx, p.cfg.Listener)
}

// sessionCount returns the number of sessions, or nil while no agents are accepted.
func (p *principal) sessionCount() *int {
	if !p.serving.Load() {
		return nil
	}
	n := len(p.server.Sessions())
	return &n
}

func (p *principal) spreadSessions() (all []fleet.SpreadSession) {
	for _, c := range p.server.Sessions() {
		epoch, _ := p.conns.epoch(c)
		all = append(all, fleet.SpreadSession{Since: c.Since, Used: c.HasTunnels(), Move: func(reason string) { c.Close(engine.Reconnect, reason) },
			Arrived: func() bool { return p.replicas.NewerSession(c.Agent, epoch) != "" }})
	}
	return all
}

const (
	// drainTime is how long the agents of a replica that ends may take to move. With the end of the other sessions and what
	// follows, it fits into the 30 seconds that Kubernetes gives a pod by default.
	drainTime = 15 * time.Second

	// publishTimeout bounds how long an API server that does not respond delays the draining.
	publishTimeout = 3 * time.Second
)

// drain moves the agents to the other principal replicas. Until it returns, all parts of this one run. Without another replica
// that can accept agents it returns at once.
func (p *principal) drain(ctx context.Context) {
	if len(p.replicas.Others()) == 0 || !p.serving.Swap(false) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	publish, published := context.WithTimeout(ctx, publishTimeout)
	if err := p.replicas.Drain(publish); err != nil {
		p.log.WarnContext(ctx, "Failed to publish that this principal replica accepts no agents", "error", err)
	}
	published()
	p.server.StopAccepting()
	p.spreader.Drain(ctx)
}

// upgraded records what an agent reported about its upgrade.
func (p *principal) upgraded(agent string, epoch engine.Epoch, m engine.UpgradeState) {
	changed := p.upgrades.Received(agent, epoch, m)
	p.status.UpgradeChanged(agent)
	if changed {
		p.log.Info("Agent reported its upgrade", "agent", agent, "upgrade", m.ID, "phase", m.Phase, "message", fleet.OneLine(m.Message))
	}
}

// inSync returns when agents were last in sync. It is nil if that is not known.
func (p *principal) inSync() map[string]int64 {
	if p.search == nil {
		return nil
	}
	return p.search.InSyncTimes()
}

// revoked ends connections and requests that use revoked certificates.
func (p *principal) revoked(fingerprints []string) {
	p.conns.revoke(fingerprints)
	p.live.Recheck()
}

// applied is called by the runner after the reconciler has processed an input.
func (p *principal) applied(in reconcile.Input) {
	p.live.Follow(in)
	p.shared.Follow(in)
	p.finalizers.Follow(in)
	p.freshness.Follow(in)
	p.objects.Follow(in)
	if p.apps != nil {
		p.apps.Follow(in)
	}
	if p.search != nil {
		p.search.Follow(in)
	}
	switch in := in.(type) {
	case reconcile.Confirm:
		p.commands.Confirmed(in.Agent, "", in.ID)
	case reconcile.FleetRecord:
		if in.Confirmed {
			p.commands.Confirmed("", "", in.ID)
		}
	case reconcile.Register:
		p.namespaces.ensure(in.Agent)
	case reconcile.Unregister:
		if p.standbys.has(in.Agent) {
			break // it is registered with the Reconciler of standbys, and may have a session there
		}
		p.confirmations.Forget(in.Agent)
		p.status.Unregistered(in.Agent)
		p.sessions.takeEndReason(in.Agent)
		p.namespaces.forget(in.Agent)
		p.lastRefusal.Reset(in.Agent)
		p.upgrades.Forget(in.Agent)
		p.commands.Forget(in.Agent)
	}
}
