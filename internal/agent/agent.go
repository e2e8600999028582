package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// Run runs an agent until the context ends.
func Run(ctx context.Context, cfg Config) error {
	client, err := kube.NewClient(cfg.Cluster)
	if err != nil {
		return err
	}
	cfg.Policy.ResyncRecreated = cfg.OnRecreate == "resync"
	a := &agent{cfg: cfg, client: client, log: cfg.Log, listed: map[kind.Resource]bool{}, ready: make(chan struct{}), news: make(chan struct{}, 1)}
	return a.run(ctx)
}

// assemble makes what needs to know which cluster this is.
func (a *agent) assemble() error {
	cfg := a.cfg
	n := reconcile.New(a.nodeConfig())
	a.host = kube.NewRunner(a.client, kube.RunnerConfig{
		Reconciler: n, Watches: a.watches(), Namespaces: a.namespaces(), Parallel: parallelWrites, Jitter: cfg.Jitter, Log: cfg.Log, Trace: cfg.Trace,
		ToPeer: a.deliver, Report: a.report, Applied: a.applied, Remember: a.memory.atLeast,
	})
	var err error
	a.live, err = newLive(a, n)
	return err
}

// namespaces says which ones may be created here for Applications.
func (a *agent) namespaces() kube.NamespacePolicy {
	policy := kube.NamespacePolicy{Hint: "create the namespace, or let the agent do so with --create-namespace"}
	if a.cfg.CreateNamespaces {
		policy.Create = func(string) (map[string]string, bool) { return nil, true }
	}
	return policy
}

// parallelWrites is how many requests an agent has under way at once.
const parallelWrites = 16

type agent struct {
	cfg    Config
	client *kube.Client
	log    *slog.Logger
	host   *kube.Runner
	live   *liveAccess
	memory *leaseState
	news   chan struct{} // the Lease is to be written now; holds one
	met    bool          // the hub was met by this process; see report
	uid    string        // of the cluster
	ctx    context.Context

	dialer  atomic.Pointer[transport.Dialer]
	conn    atomic.Pointer[transport.Conn]
	attempt atomic.Uint64
	open    atomic.Bool
	synced  atomic.Bool  // once in this process, everything was found equal to the hub, or made so
	why     atomic.Value // string: why not open
	refused string       // of the node's goroutine: why the hub refused last, as it was logged

	mu     sync.Mutex
	listed map[kind.Resource]bool
	ready  chan struct{} // closed when everything was read once
}

// identifyCluster finds out who this is. The API server may not be there yet.
func (a *agent) identifyCluster(ctx context.Context) error {
	said := ""
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		limited, cancel := context.WithTimeout(ctx, greetTimeout)
		uid, err := a.client.ClusterUID(limited)
		if err == nil {
			a.uid = uid
			a.memory, err = loadLeaseState(limited, a.client, a.cfg.Namespace, uint64(time.Now().UnixMilli()))
		}
		cancel()
		if err == nil {
			a.log.InfoContext(ctx, "this is an agent", "mode", a.cfg.Mode, "cluster", a.uid, "namespace", a.cfg.Namespace, "version", a.cfg.Version)
			return nil
		}
		if err.Error() != said {
			said = err.Error()
			a.why.Store(said)
			a.log.WarnContext(ctx, "waiting for the API server", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// watches lists what the node reads. Applications outside Argo CD's namespace
// are read only where the settings let them be there.
func (a *agent) watches() []kube.Watch {
	apps := a.cfg.Namespace
	if a.cfg.Mapping == kind.ByDestination || len(a.cfg.AllowedNamespaces) > 0 {
		apps = ""
	}
	return []kube.Watch{
		{Resource: kind.Applications, Namespace: apps},
		{Resource: kind.AppProjects, Namespace: a.cfg.Namespace},
		{Resource: kind.Secrets, Namespace: a.cfg.Namespace, Selector: "argocd.argoproj.io/secret-type in (repository,repo-creds)"},
		{Resource: kind.ConfigMaps, Namespace: a.cfg.Namespace},
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
	if a.cfg.HealthListener != nil { // first: whoever asks shall hear what this waits for
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
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// startAll starts every part, each of which runs until its context ends.
func (a *agent) startAll(start func(what string, run func(context.Context) error)) {
	start("node", a.host.Run)
	start("connection", a.connect)
	start("memory", a.persistHubStore)
	start("word of trouble", a.reportWriteHealth)
	for what, run := range a.live.runs() {
		start(what, run)
	}
	for what, run := range a.sharedRuns() {
		start(what, run)
	}
	for _, run := range kube.WatchSchemas(a.client, a.host.Post, a.log, a.cfg.Jitter) {
		start("schemas", run)
	}
	for _, run := range kube.WatchSecrets(a.client, a.cfg.Namespace, a.cfg.Secrets, a.log, a.cfg.Jitter) {
		start("certificates", run)
	}
	if a.cfg.MetricsListener != nil {
		start("metrics", a.serveMetrics)
	}
}

// connect keeps the connection to the hub, once the cluster has been read: what
// is not known yet must not be taken for gone.
func (a *agent) connect(ctx context.Context) error {
	var tooLong <-chan time.Time
	if a.cfg.SyncTimeout > 0 {
		tooLong = time.After(a.cfg.SyncTimeout)
	}
	select {
	case <-a.ready:
	case <-ctx.Done():
		return nil
	case <-tooLong:
		return fmt.Errorf("the cluster could not be read within %v (--informer-sync-timeout): %w", a.cfg.SyncTimeout, a.objectsReadable())
	}
	secure, office := a.credentials(ctx)
	cfg := transport.DialerConfig{
		Address: a.cfg.Server, TLS: secure, Events: a, Log: a.log, Trace: a.cfg.Trace, Explain: a.cfg.Explain, Proxy: a.cfg.Proxy,
		Compress: a.cfg.Compression, WebSocket: a.cfg.WebSocket, Keepalive: transport.Keepalive{Interval: a.cfg.KeepAlive}, Random: a.cfg.Jitter,
		Failed: a.failed, Tunnels: a.live.tunnels(), RenewCertificate: office, Dial: a.cfg.Dial,
	}
	if a.cfg.HeaderName != "" {
		cfg.Metadata = []string{a.cfg.HeaderName, a.cfg.HeaderValue}
	}
	dialer := transport.NewDialer(cfg)
	a.dialer.Store(dialer)
	return dialer.Run(ctx)
}

// failed notes why there is no connection; the dialer logs it.
func (a *agent) failed(err error, _ time.Duration) { a.why.Store(err.Error()) }

// Connected implements link.Events.
func (a *agent) Connected(c *transport.Conn) {
	ctx, cancel := context.WithTimeout(a.ctx, greetTimeout)
	defer cancel()
	revision, err := a.client.Revision(ctx, a.cfg.Namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
	if err != nil {
		a.log.Warn("cannot ask the API server how far it is", "error", err)
		c.CloseAfter(engine.Unavailable, "the agent cannot ask its API server how far it is: "+err.Error(), 5*time.Second)
		return
	}
	a.conn.Store(c)
	epoch := engine.Epoch{Incarnation: a.memory.incarnation, Attempt: a.attempt.Add(1)}
	traceGreeting(c, epoch)
	_ = a.host.PostUntil(a.ctx, c.Done(), reconcile.FromPeer{Input: engine.Connected{Session: c.ID, Epoch: epoch,
		Store: engine.Store{UID: a.uid, Revision: kube.ParseResourceVersion(revision)}}})
}

const greetTimeout = 15 * time.Second

// Received implements link.Events.
func (a *agent) Received(c *transport.Conn, m engine.Message) {
	_ = a.host.PostUntil(a.ctx, c.Done(), reconcile.FromPeer{Input: engine.Received{Session: c.ID, Message: m}}) // fails at the end of either
}

// Disconnected implements link.Events.
func (a *agent) Disconnected(c *transport.Conn, err error) {
	a.conn.CompareAndSwap(c, nil)
	if a.why.Store("the hub ended the connection"); err != nil {
		a.why.Store(err.Error())
	}
	_ = a.host.Post(a.ctx, reconcile.FromPeer{Input: engine.Disconnected{Session: c.ID}})
}

// deliver carries out what the node wants of the connection. It never waits.
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
		if err := c.Send(e.Message); err != nil && c.Cause() == nil {
			a.log.Warn("cannot send", "error", err) // else the connection ends, and says why
		}
	case engine.CloseSession:
		if e.Session == c.ID {
			c.CloseAfter(e.Code, e.Message, time.Duration(e.RetryAfter)*time.Millisecond)
		}
	}
}

// applied notes which resources have been read, for readiness.
func (a *agent) applied(in reconcile.Input) {
	a.live.follow(in)
	var r kind.Resource
	ok := false
	switch in := in.(type) {
	case reconcile.List:
		r, ok = in.Resource, true
	case reconcile.Unreadable:
		r = in.Resource
	default:
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	first := len(a.listed) < len(reconcile.Resources())
	a.listed[r] = ok
	if first && len(a.listed) == len(reconcile.Resources()) {
		close(a.ready)
	}
}

// report tells people what happened, once.
func (a *agent) report(r reconcile.Report) {
	if a.cfg.Reported != nil {
		a.cfg.Reported(r)
	}
	f := r.Event
	a.traceFact(f)
	switch f.Type {
	case engine.Opened:
		a.open.Store(true)
		if !a.met { // a process that ends within the minute leaves what it has seen to the next
			a.met = true
			a.rememberNow()
		}
		a.live.opened(f.Welcome.HubNamespace)
		a.refused = ""
		if c := a.conn.Load(); c != nil {
			c.Established()
		}
		a.log.Info("connected to the hub", "agent", f.Welcome.Agent, "hub", f.Welcome.PrincipalUID, "version", f.Welcome.Version)
	case engine.Closed:
		a.open.Store(false)
		reason := f.Message
		if why, ok := a.why.Load().(string); ok && reason == "" {
			reason = why
		}
		a.log.Info("disconnected from the hub", "code", f.Code, "reason", reason)
	case engine.InitialSyncDone:
		if !a.synced.Swap(true) {
			a.log.Info("this cluster and the hub are the same now")
		}
	case engine.Refused:
		why := string(f.Code) + ": " + f.Message
		level := slog.LevelWarn
		if a.refused == why { // it tries again and again
			level = slog.LevelDebug
		}
		a.refused = why
		a.why.Store(why)
		a.log.Log(a.ctx, level, "the hub refuses this agent", "code", f.Code, "reason", f.Message)
	case engine.Rejected:
		if f.Code == engine.Busy || f.Code == engine.Unavailable && a.host.WriteStats().Outage { // it waits for something, and will be tried every now and then
			a.log.Debug("item has to wait", "scope", f.Scope, "item", f.Key.String(), "reason", f.Message)
			return
		}
		a.log.Warn("item refused", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Accepted:
		a.log.Info("item accepted again", "scope", f.Scope, "item", f.Key.String())
	case engine.HoldStarted:
		if f.Scope == "" { // a later process must know that the hub's store is not trusted
			a.rememberNow()
		}
		a.log.Warn("deletions are held back until somebody confirms them on the hub", "scope", f.Scope, "count", f.Held.Count,
			"of", f.Held.Of, "reason", f.Held.Reason, "id", f.Held.ID)
	case engine.HoldEnded:
		a.log.Info("nothing is held back any more", "scope", f.Scope)
	case engine.StoreAccepted:
		a.memory.accepted.Store(true)
		a.rememberNow()
		a.log.Info("the hub's store is accepted as it is", "store", f.Store.UID, "revision", f.Store.Revision)
	case engine.Aliased:
		a.log.Warn("an item is not stored as the hub has it", "scope", f.Scope, "item", f.Key.String(), "reason", f.Message)
	}
}

// rememberNow has the Lease written without waiting for the next beat.
func (a *agent) rememberNow() {
	select {
	case a.news <- struct{}{}:
	default: // it is about to be
	}
}

// persistHubStore writes down how far the hub's store has been seen: at a slow beat, and
// at once when it is met for the first time, is not trusted, or is accepted.
func (a *agent) persistHubStore(ctx context.Context) error {
	beat := time.NewTicker(persistInterval)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		case <-a.news:
		}
		var known reconcile.Memory
		if err := a.host.Do(ctx, func(n *reconcile.Reconciler) { known = n.Memory() }); err != nil {
			return nil
		}
		if err := a.memory.save(ctx, known); err != nil {
			a.log.WarnContext(ctx, "cannot remember how far the hub's store has been seen", "error", err)
		}
	}
}

// persistInterval is how often that is. It is written only when it has changed.
const persistInterval = time.Minute
