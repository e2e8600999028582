package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/link"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// Run runs a principal until the context ends.
func Run(ctx context.Context, cfg Config) error {
	log := cfg.Log
	client, err := kube.NewClient(cfg.Cluster)
	if err != nil {
		return err
	}
	uid, err := waitForCluster(ctx, client, log)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "this is the hub", "cluster", uid, "namespace", cfg.Namespace, "version", cfg.Version)

	p := &principal{cfg: cfg, client: client, log: log, chores: make(chan func(context.Context), 1024),
		listed: map[kind.Resource]bool{}, ready: make(chan struct{})}
	n := node.New(node.Config{
		Side: kind.Hub, ArgoNamespace: cfg.Namespace, ClusterUID: uid, PrincipalUID: uid,
		InstanceLabel: cfg.InstanceLabel, Version: cfg.Version,
		Settings: kind.Settings{AllowedNamespaces: cfg.AllowedNamespaces, LabelSelector: cfg.LabelSelector,
			ShareUnscopedRepositories: cfg.ShareUnscopedRepositories, SyncRepositoryTrust: cfg.SyncRepositoryTrust},
	})
	p.host = kube.NewHost(client, kube.HostConfig{
		Node: n, Watches: watches(cfg), Parallel: parallelWrites, Jitter: cfg.Jitter, Log: log,
		ToPeer: func(e node.ToPeer) { p.sessions.deliver(e) }, Report: p.report, Applied: p.applied,
	})
	p.registry = &registry{client: client, namespace: cfg.Namespace, mapping: cfg.Mapping, proxy: cfg.ResourceProxy,
		post: p.host.Post, log: log, agents: map[string]registration{}, ready: make(chan struct{})}
	p.sessions = &sessions{ctx: ctx, registry: p.registry, storeUID: uid, require: cfg.RequireRegistration,
		post: p.host.Post, log: log, conns: map[uint64]*link.Conn{},
		fresh: &fresh{ask: func(ctx context.Context) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, greetTimeout)
			defer cancel()
			return client.Revision(ctx, cfg.Namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
		}}}
	return p.run(ctx)
}

// parallelWrites is how many requests a principal has under way at once.
const parallelWrites = 64

type principal struct {
	cfg      Config
	client   *kube.Client
	log      *slog.Logger
	host     *kube.Host
	registry *registry
	sessions *sessions

	chores chan func(context.Context)
	server atomic.Pointer[link.Server]

	listedMu sync.Mutex
	listed   map[kind.Resource]bool
	ready    chan struct{} // closed when everything was read once
}

// watches lists what the hub's node reads.
func watches(cfg Config) []kube.Watch {
	return []kube.Watch{
		{Resource: kind.Applications},
		{Resource: kind.AppProjects, Namespace: cfg.Namespace},
		{Resource: kind.Secrets, Namespace: cfg.Namespace, Selector: "argocd.argoproj.io/secret-type in (repository,repo-creds)"},
		{Resource: kind.ConfigMaps, Namespace: cfg.Namespace},
	}
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
	start("node", p.host.Run)
	registrations := kube.NewWatcher(p.client, p.registry.watch(), p.registry.take, p.log, p.cfg.Jitter)
	start("registrations", registrations.Run)
	start("connections", p.serve)
	start("memory", p.remember)
	start("chores", p.doChores)
	for _, run := range kube.FollowSecrets(p.client, p.cfg.Namespace, p.cfg.Secrets, p.log, p.cfg.Jitter) {
		start("certificates", run)
	}
	if p.cfg.Revocations != nil {
		start("revocations", p.followRevocations)
	}
	if p.cfg.HealthListener != nil {
		start("probes", p.serveHealth)
	}
	if p.cfg.MetricsListener != nil {
		start("metrics", p.serveMetrics)
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// serve lets agents in once the hub's objects have been read: what is not known
// yet must not be taken for gone.
func (p *principal) serve(ctx context.Context) error {
	for _, read := range []<-chan struct{}{p.ready, p.registry.ready} {
		select {
		case <-read:
		case <-ctx.Done():
			return nil
		}
	}
	server := link.NewServer(link.ServerConfig{
		TLS: p.cfg.TLS, Authenticate: p.cfg.Authenticate, Events: p.sessions, Log: p.log, Explain: p.cfg.Explain,
		Keepalive: link.Keepalive{MinInterval: p.cfg.KeepaliveMinInterval},
	})
	p.server.Store(server)
	p.log.InfoContext(ctx, "listening for agents", "address", p.cfg.Listener.Addr().String())
	return server.Run(ctx, p.cfg.Listener)
}

// blocklist is the ConfigMap whose keys are the fingerprints of revoked
// certificates.
const blocklist = "argocd-agent-tls-blocklist"

// followRevocations keeps the set of revoked certificates, and cuts whoever is
// connected with one.
func (p *principal) followRevocations(ctx context.Context) error {
	ref := kind.Ref{Resource: kind.ConfigMaps, Namespace: p.cfg.Namespace, Name: blocklist}
	return kube.Follow(ctx, p.client, ref, p.log, p.cfg.Jitter, func(o *kind.Object) {
		var fingerprints []string
		if o != nil {
			data, _ := raw.StringMap(o.Get("data"))
			fingerprints = slices.Sorted(maps.Keys(data))
		}
		added, err := p.cfg.Revocations.Set(fingerprints)
		if err != nil {
			p.log.WarnContext(ctx, "the list of revoked certificates has entries that are none", "configmap", blocklist, "error", err)
		}
		p.sessions.revoke(added)
	})
}

// applied notes which resources have been read, for readiness.
func (p *principal) applied(in node.Input) {
	var r kind.Resource
	switch in := in.(type) {
	case node.List:
		r = in.Resource
	case node.Register:
		p.ensureNamespace(in.Agent)
		return
	case node.Blind:
		r = in.Resource // it is known that it can not be read; the rest works
	default:
		return
	}
	p.listedMu.Lock()
	defer p.listedMu.Unlock()
	_, blind := in.(node.Blind)
	first := len(p.listed) < len(node.Resources())
	p.listed[r] = !blind
	if first && len(p.listed) == len(node.Resources()) {
		close(p.ready)
	}
}

// report tells people what happened, once.
func (p *principal) report(r node.Report) {
	f := r.Fact
	log := p.log.With("agent", r.Agent)
	switch f.Event {
	case engine.Opened:
		log.Info("agent connected", "mode", f.Hello.Mode, "version", f.Hello.Version, "cluster", f.Hello.ClusterUID)
	case engine.Closed:
		log.Info("agent disconnected", "code", f.Code, "reason", f.Message)
	case engine.Refused:
		log.Warn("agent refused", "code", f.Code, "reason", f.Message)
	case engine.Rejected:
		log.Warn("item refused", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Cured:
		log.Info("item accepted again", "scope", f.Scope, "item", f.Key.String())
	case engine.HeldEvent:
		log.Warn("deletions are held back until somebody confirms them", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of,
			"reason", f.Held.Reason, "confirm", fmt.Sprintf("kubectl annotate secret -n %s cluster-%s --overwrite %s=%s", p.cfg.Namespace, r.Agent, confirmAnnotation, f.Held.ID))
	case engine.Unheld:
		log.Info("nothing is held back any more", "scope", f.Scope)
	case engine.Aliased:
		log.Warn("something keeps changing an item back; both versions are taken as equal now", "scope", f.Scope, "item", f.Key.String())
	}
}

// remember writes down, at a slow beat, how far agents' stores have been seen.
func (p *principal) remember(ctx context.Context) error {
	beat := time.NewTicker(rememberEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
		}
		for _, agent := range p.registry.names() {
			reg, ok := p.registry.get(agent)
			if !ok || reg.Agent.Mode != kind.Autonomous {
				continue // only what an autonomous agent says can delete anything here
			}
			var status engine.Status
			if err := p.host.Do(ctx, func(n *node.Node) { status, ok = n.Status(agent) }); err != nil {
				return nil
			}
			if !ok || !status.Connected || status.Suspect != "" {
				continue
			}
			if err := p.registry.remember(ctx, agent, status.Other); err != nil {
				p.log.WarnContext(ctx, "can not note how far an agent's store has been seen", "agent", agent, "error", err)
			}
		}
	}
}

// rememberEvery is how often that is. What lies between two beats is what a
// restored store may hide from a principal that was restarted at the same time.
const rememberEvery = 5 * time.Minute

// ensureNamespace creates an agent's namespace, if that is wanted.
func (p *principal) ensureNamespace(a kind.Agent) {
	nc := p.cfg.NamespaceCreate
	if !nc.Enable || a.Mapping == kind.ByDestination && a.Mode == kind.Managed {
		return
	}
	if ok, err := regexp.MatchString("^(?:"+nc.Pattern+")$", a.HubNamespace); nc.Pattern != "" && (err != nil || !ok) {
		p.log.Warn("the agent's namespace does not match the pattern for namespaces to create", "agent", a.Name, "namespace", a.HubNamespace, "pattern", nc.Pattern)
		return
	}
	p.chore(func(ctx context.Context) {
		_, err := p.client.Create(ctx, kind.Ref{Resource: kube.Namespaces, Name: a.HubNamespace}, map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": a.HubNamespace, "labels": nc.Labels}})
		if err != nil && !kube.IsConflict(err) {
			p.log.WarnContext(ctx, "can not create the agent's namespace", "agent", a.Name, "namespace", a.HubNamespace, "error", err)
		}
	})
}

// chore has something done on the cluster that nobody waits for. A full list of
// chores means that the API server does not answer; what is then dropped comes
// up again with the next change of the registration or the next start.
func (p *principal) chore(do func(context.Context)) {
	select {
	case p.chores <- do:
	default:
		p.log.Warn("too much to do on the hub's cluster; something is left for later")
	}
}

func (p *principal) doChores(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case do := <-p.chores:
			limited, cancel := context.WithTimeout(ctx, greetTimeout)
			do(limited)
			cancel()
		}
	}
}

// waitForCluster waits until the API server answers, and says so once.
func waitForCluster(ctx context.Context, c *kube.Client, log *slog.Logger) (string, error) {
	said := false
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		uid, err := c.ClusterUID(ctx)
		if err == nil {
			return uid, nil
		}
		if !said {
			said = true
			log.WarnContext(ctx, "waiting for the API server", "error", err)
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
