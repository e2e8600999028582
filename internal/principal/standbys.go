package principal

import (
	"context"
	"fmt"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// standbyTuning lets a standby know within seconds that it is equal.
var standbyTuning = engine.Tuning{Beacon: 4 * engine.Second}

// standbys sends the objects of this hub to standby hubs. A standby gets every Secret, so its sessions have a Reconciler of
// their own, which only agents that are registered with the mode standby reach. It runs from the first connection of a
// standby on, with watches of its own.
type standbys struct {
	p             *principal
	reconciler    *reconcile.Reconciler
	runner        *kube.Runner
	confirmations *fleet.Confirmations
	begin         func() // closes begun
	begun         chan struct{}
}

func newStandbys(p *principal) *standbys {
	cfg, h := p.cfg, p.hub
	s := &standbys{p: p, begun: make(chan struct{})}
	s.begin = sync.OnceFunc(func() { close(s.begun) })
	s.reconciler = reconcile.New(reconcile.Config{Side: kind.Hub, Mode: kind.Standby, Kinds: kind.StandbyKinds(), ArgoNamespace: cfg.Namespace, PKINamespace: cfg.PKINamespace,
		ClusterUID: h.clusterUID, PrincipalUID: h.state.Identity, Generation: h.state.Generation, Predecessor: h.state.Predecessor, Version: cfg.Version,
		ApplicationNamespaces: cfg.ApplicationNamespaces, Tuning: standbyTuning})
	s.runner = kube.NewRunner(p.client, kube.RunnerConfig{Reconciler: s.reconciler, Watches: kube.StandbyWatches(cfg.Namespace, cfg.PKINamespace, cfg.ApplicationNamespaces),
		Parallel: 1, Jitter: cfg.Jitter, Log: cfg.Log, Trace: cfg.Trace}) // it writes nothing
	return s
}

func (s *standbys) run(ctx context.Context) error {
	select {
	case <-s.begun:
		return s.runner.Run(ctx, kube.Handlers{ToPeer: s.p.sessions.deliver, Report: s.report})
	case <-ctx.Done():
		return nil
	}
}

// running reports whether a standby has connected to this replica.
func (s *standbys) running() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

// has reports whether an agent is registered as a standby.
func (s *standbys) has(agent string) bool {
	reg, known := s.p.registry.Get(agent)
	return known && reg.Agent.Mode == kind.Standby
}

// refusal returns why a standby is not accepted, or "". Another release may have other fields, which one of the two hubs
// would lose.
func (s *standbys) refusal(agent string, hello engine.Hello) string {
	if s.has(agent) && hello.Version != s.p.cfg.Version {
		return fmt.Sprintf("the standby runs release %.40q, and the active hub %.40q: upgrade one of the two", hello.Version, s.p.cfg.Version)
	}
	return ""
}

// postRegistration passes an input of the registry to the Reconciler of the agent's mode. A registration ends that of another
// mode.
func (p *principal) postRegistration(ctx context.Context, in reconcile.Input) error {
	s := p.standbys
	switch in := in.(type) {
	case reconcile.Register:
		if in.Agent.Mode != kind.Standby {
			if err := s.post(ctx, reconcile.Unregister{Agent: in.Agent.Name}); err != nil {
				return err
			}
			return p.runner.Post(ctx, in)
		}
		if err := p.runner.Post(ctx, reconcile.Unregister{Agent: in.Agent.Name}); err != nil {
			return err
		}
		return s.post(ctx, in)
	case reconcile.Confirm:
		if s.has(in.Agent) {
			return s.post(ctx, in)
		}
	case reconcile.FromPeer:
		if s.has(in.Agent) {
			return s.post(ctx, in)
		}
	case reconcile.Unregister:
		if err := s.post(ctx, in); err != nil {
			return err
		}
	}
	return p.runner.Post(ctx, in)
}

// post passes an input on if a standby has connected. Its first connection registers it.
func (s *standbys) post(ctx context.Context, in reconcile.Input) error {
	if !s.running() {
		return nil
	}
	return s.runner.Post(ctx, in)
}

// postFromPeer passes an input of a connection to the Reconciler of the agent's mode.
func (p *principal) postFromPeer(ctx context.Context, done <-chan struct{}, in reconcile.Input) error {
	from, ok := in.(reconcile.FromPeer)
	if !ok || !p.standbys.has(from.Agent) {
		if _, ended := from.Input.(engine.Disconnected); ended && p.standbys.running() { // it may have been one
			_ = p.standbys.runner.PostFromPeer(ctx, done, in)
		}
		return p.runner.PostFromPeer(ctx, done, in)
	}
	if _, begins := from.Input.(engine.Connected); begins {
		p.standbys.begin()
		if reg, known := p.registry.Get(from.Agent); known && reg.Agent.Mode == kind.Standby {
			if err := p.standbys.runner.Post(ctx, reg.Register); err != nil {
				return err
			}
		}
	}
	return p.standbys.runner.PostFromPeer(ctx, done, in)
}

// do calls f with the Reconciler of agents and, if there is one, with that of standbys.
func (p *principal) do(ctx context.Context, f func(*reconcile.Reconciler)) error {
	if err := p.runner.Do(ctx, f); err != nil || !p.standbys.running() {
		return err
	}
	return p.standbys.runner.Do(ctx, f)
}

// report handles an event of a standby's session. It is called by the goroutine that owns the Reconciler.
func (s *standbys) report(r reconcile.Report) {
	p, f := s.p, r.Event
	if f.Type == engine.Refused && f.Code == engine.WrongCluster {
		f.Hello = &engine.Hello{ClusterUID: p.conns.claimedClusterUID(r.Agent)}
	}
	if f.Type == engine.InSync && p.status.InSyncKnown(r.Agent) {
		return
	}
	f.Message = p.message(reconcile.Report{Agent: r.Agent, Event: f})
	s.confirmations.HandleEvent(r.Agent, f)
	status, _ := s.reconciler.Status(r.Agent)
	p.status.HandleEvent(r.Agent, f, status)
	p.traceEvent(r.Agent, f, status.Epoch)
	log := p.log.With("standby", r.Agent)
	switch f.Type {
	case engine.Opened:
		log.Info("Standby connected", "version", f.Hello.Version, "cluster", f.Hello.ClusterUID)
	case engine.Closed:
		log.Info("Standby disconnected", "code", f.Code, "reason", f.Message)
	case engine.Refused:
		log.Warn("Standby refused", "code", f.Code, "reason", f.Message)
	case engine.Rejected:
		log.Warn("Standby rejected item", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.HoldStarted:
		log.Warn("Deletions on the standby held until a user confirms them", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of,
			"reason", f.Held.Reason, "confirm", fleet.ConfirmCommand(p.cfg.Namespace, r.Agent, f.Held.ID))
	}
}
