package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Run runs a principal until the context ends.
func Run(ctx context.Context, cfg Config) error {
	client, err := kube.NewClient(cfg.Cluster)
	if err != nil {
		return err
	}
	p := &principal{cfg: cfg, client: client, log: cfg.Log, tasks: newTaskRunner(cfg.Log), ensuredNamespaces: map[string]string{}, lastRefusal: map[string]string{},
		listed: map[kind.Resource]bool{}, notReady: newNotReadyServer(), ready: make(chan struct{}), settingsRead: make(chan struct{})}
	return p.run(ctx)
}

// parallelWrites is how many requests a principal has under way at once.
const parallelWrites = 64

type principal struct {
	cfg               Config
	client            *kube.Client
	log               *slog.Logger
	runner            *kube.Runner
	registry          *registry
	agents            *agentReconciler
	agentQueue        *workQueue // of the keeper
	status            *statusWriter
	agentOutages      *agentOutages
	finalizers        *finalizerRemover
	replicas          *principalReplicas
	fleet             *fleetHolds
	sessions          *sessions
	tasks             *taskRunner
	blocklists        *revoke.Blocklist
	live              *live
	shared            *shared
	issuer            *issue.Issuer     // nil if the principal does not issue certificates
	confirmations     *confirmations    // of the node's goroutine
	ensuredNamespaces map[string]string // likewise: agent → namespace that was seen to
	lastRefusal       map[string]string // likewise: agent → why it was refused last, as it was logged

	assembled    atomic.Bool // everything above is there
	server       atomic.Pointer[transport.Server]
	notReady     *notReadyServer
	settingsRead chan struct{} // closed when Argo CD's settings were read once

	listedMu sync.Mutex
	listed   map[kind.Resource]bool
	ready    chan struct{} // closed when everything was read once
}

// assemble makes everything that needs to know which cluster this is.
func (p *principal) assemble(ctx context.Context, uid string) {
	cfg := p.cfg
	n := reconcile.New(reconcile.Config{
		Side: kind.Hub, ArgoNamespace: cfg.Namespace, ClusterUID: uid, PrincipalUID: uid,
		Version: cfg.Version,
		Settings: kind.Settings{AllowedNamespaces: cfg.AllowedNamespaces, LabelSelector: cfg.LabelSelector,
			ShareUnscopedRepositories: cfg.ShareUnscopedRepositories, SyncRepositoryTrust: cfg.SyncRepositoryTrust},
		FleetCheck: true,
	})
	p.runner = kube.NewRunner(p.client, kube.RunnerConfig{
		Reconciler: n, Watches: watches(cfg), Parallel: parallelWrites, Jitter: cfg.Jitter, Log: p.log, Trace: cfg.Trace,
		Namespaces: kube.NamespacePolicy{Create: cfg.NamespaceCreate.allows, Hint: "create the namespace, or let the principal do so with --namespace-create-enable"},
		ToPeer:     func(e reconcile.ToPeer) { p.sessions.deliver(e) }, Report: p.report, RecordFleetHold: func(e reconcile.RecordFleetHold) { p.fleet.record(e) }, Applied: p.applied, Writing: func(ref kind.Ref) { p.live.writing(ref) },
	})
	if cfg.Issue != nil {
		p.issuer = issue.New(*cfg.Issue, kube.Secrets{Client: p.client, Namespace: cfg.Namespace}, agentRegistrations{p.client, cfg.Namespace}, p.log)
	}
	p.agentOutages = &agentOutages{changed: func(agent string) { p.status.queue.add(agent) }, known: map[string]agentOutage{}}
	p.blocklists = revoke.New(p.client, cfg.Namespace, cfg.Revocations, p.log)
	p.assembleAgents(ctx, n)
	p.confirmations = &confirmations{held: map[string]map[string]string{}, registry: p.registry, tasks: p.tasks, post: p.runner.Post}
	p.sessions = &sessions{ctx: ctx, registry: p.registry, newerSessionHolder: p.newerSessionHolder, storeUID: uid, require: cfg.RequireRegistration, revoked: cfg.Revocations.Revoked,
		post: p.runner.Post, postUntil: p.runner.PostUntil, log: p.log, jitter: cfg.Jitter, conns: map[uint64]*session{}, endReasons: map[string]string{},
		revisions: newRevisionReader(func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, helloTimeout)
			defer cancel()
			return p.client.Revision(ctx, cfg.Namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
		})}
	p.live = newLive(p, n)
	p.shared = newShared(p)
	p.assembled.Store(true)
}

// watches lists what the hub's node reads.
func watches(cfg Config) []kube.Watch {
	var out []kube.Watch
	for _, w := range kind.Watches(kind.All()) {
		namespace := cfg.Namespace
		if w.AnyNamespace {
			namespace = ""
		}
		out = append(out, kube.Watch{Resource: w.Resource, Namespace: namespace, Selector: w.Selector})
	}
	return out
}

func (p *principal) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	start := func(what string, run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	if p.cfg.HealthListener != nil { // first: whoever asks shall hear what this waits for
		start("probes", p.serveHealth)
	}
	start("door", p.serveNotReady)
	if uid, err := waitForCluster(ctx, p.client, p.log); err != nil {
		cancel(err)
	} else {
		p.log.InfoContext(ctx, "this is the hub", "cluster", uid, "namespace", p.cfg.Namespace, "version", p.cfg.Version)
		p.assemble(ctx, uid)
		p.startAll(start)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// startAll starts every part, each of which runs until its context ends.
func (p *principal) startAll(start func(what string, run func(context.Context) error)) {
	start("node", p.runner.Run)
	for what, run := range p.agentRuns() {
		start(what, run)
	}
	secrets := p.cfg.Secrets
	if p.issuer != nil {
		secrets = p.issuer.SecretHandlers(secrets)
		start("issuing", p.issuer.Run)
	}
	start("connections", p.afterInitialSync(p.serve))
	start("freshness", p.sessions.revisions.run)
	start("chores", p.tasks.run)
	for _, run := range kube.WatchSecrets(p.client, p.cfg.Namespace, secrets, p.log, p.cfg.Jitter) {
		start("certificates", run)
	}
	start("settings", p.followSettings)
	for _, run := range kube.WatchSchemas(p.client, p.runner.Post, p.log, p.cfg.Jitter) {
		start("schemas", run)
	}
	start("hold of many agents", p.fleet.follow)
	start("check of all agents", p.fleet.run)
	for w, sink := range p.blocklists.Watches(p.revoked) {
		start("revocations", kube.NewWatcher(p.client, w, sink, p.log.With("list", revoke.ConfigMap), p.cfg.Jitter).Run)
	}
	if p.cfg.MetricsListener != nil {
		start("metrics", p.serveMetrics)
	}
	for what, run := range p.live.runs() {
		start(what, run)
	}
	for what, run := range p.shared.runs() {
		start(what, run)
	}
}

// afterInitialSync runs what lets others in once the hub's objects have been read: what
// is not known yet must not be taken for gone, nor what Argo CD's settings forbid
// for allowed. Nor is a certificate good before it is known which are not.
func (p *principal) afterInitialSync(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, read := range []<-chan struct{}{p.ready, p.registry.ready, p.settingsRead, p.blocklists.Ready()} {
			select {
			case <-read:
			case <-ctx.Done():
				return nil
			}
		}
		return run(ctx)
	}
}

// serve lets agents in.
func (p *principal) serve(ctx context.Context) error {
	p.notReady.close()
	sessions := transport.NewServer(transport.ServerConfig{
		Admit: p.sessions.admit, Events: p.sessions, Log: p.log, Trace: p.cfg.Trace, Targets: p.targets(),
	})
	config := grpc.ServerConfig{
		TLS: p.cfg.TLS, WebSocket: p.cfg.WebSocket, Authenticate: p.cfg.Authenticate, Trace: p.cfg.Trace, Explain: p.cfg.Explain,
		Keepalive: grpc.Keepalive{MinInterval: p.cfg.KeepaliveMinInterval},
	}
	if p.issuer != nil {
		config.Enroll = p.issuer
	}
	p.server.Store(sessions)
	p.log.InfoContext(ctx, "listening for agents", "address", p.cfg.Listener.Addr().String())
	return grpc.NewServer(config, sessions).Run(ctx, p.cfg.Listener)
}

// targets is what agents may connect to.
func (p *principal) targets() map[string]tunnel.Target {
	all := p.agentOutages.targets()
	maps.Copy(all, p.shared.targets())
	return all
}

// revoked ends connections and requests that use revoked certificates.
func (p *principal) revoked(fingerprints []string) {
	p.sessions.revoke(fingerprints)
	p.live.recheck()
}

// applied notes which resources have been read, for readiness.
func (p *principal) applied(in reconcile.Input) {
	p.live.follow(in)
	p.shared.follow(in)
	p.finalizers.follow(in)
	var r kind.Resource
	switch in := in.(type) {
	case reconcile.List:
		r = in.Resource
	case reconcile.Register:
		p.ensureNamespace(in.Agent)
		return
	case reconcile.Unregister:
		p.confirmations.forget(in.Agent)
		p.status.unregistered(in.Agent)
		p.sessions.takeEndReason(in.Agent)
		delete(p.ensuredNamespaces, in.Agent)
		delete(p.lastRefusal, in.Agent)
		return
	case reconcile.Unreadable:
		r = in.Resource // it is known that it cannot be read; the rest works
	default:
		return
	}
	p.listedMu.Lock()
	defer p.listedMu.Unlock()
	_, blind := in.(reconcile.Unreadable)
	first := len(p.listed) < len(reconcile.Resources())
	p.listed[r] = !blind
	if first && len(p.listed) == len(reconcile.Resources()) {
		close(p.ready)
	}
}

// waitForCluster waits until the API server answers, and says why it has to.
func waitForCluster(ctx context.Context, c *kube.Client, log *slog.Logger) (string, error) {
	said := ""
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		limited, cancel := context.WithTimeout(ctx, helloTimeout)
		uid, err := c.ClusterUID(limited)
		cancel()
		if err == nil {
			return uid, nil
		}
		if err.Error() != said {
			said = err.Error()
			log.WarnContext(ctx, "waiting for the API server", "error", err)
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
