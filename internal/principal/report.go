package principal

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/node"
)

// report tells people what happened, once.
func (p *principal) report(r node.Report) {
	f := r.Fact
	log := p.log.With("agent", r.Agent)
	p.confirm.fact(r.Agent, f)
	p.live.changed(r)
	switch f.Event {
	case engine.Opened:
		agent, uid := r.Agent, f.Hello.ClusterUID
		delete(p.turned, agent)
		if reg, ok := p.registry.get(agent); ok && reg.KnownCluster == "" {
			p.chores.add("cluster of "+agent, func(ctx context.Context) error { return p.registry.recordCluster(ctx, agent, uid) })
		}
		log.Info("agent connected", "mode", f.Hello.Mode, "version", f.Hello.Version, "cluster", f.Hello.ClusterUID)
	case engine.Closed:
		if reg, ok := p.registry.get(r.Agent); ok && reg.Agent.Mode == kind.Autonomous {
			p.chores.add("store of "+r.Agent, func(ctx context.Context) error { return p.rememberStore(ctx, r.Agent) })
		}
		log.Info("agent disconnected", "code", f.Code, "reason", cmp.Or(f.Message, p.sessions.end(r.Agent)))
	case engine.Refused:
		why := string(f.Code) + ": " + f.Message
		level := slog.LevelWarn
		if p.turned[r.Agent] == why { // it tries again and again
			level = slog.LevelDebug
		}
		p.turned[r.Agent] = why
		log.Log(context.Background(), level, "agent refused", "code", f.Code, "reason", f.Message)
	case engine.Rejected:
		log.Warn("item refused", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Cured:
		log.Info("item accepted again", "scope", f.Scope, "item", f.Key.String())
	case engine.HeldEvent:
		log.Warn("deletions are held back until somebody confirms them", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of,
			"reason", f.Held.Reason, "confirm", fmt.Sprintf("kubectl annotate secret -n %s cluster-%s --overwrite %s=%s", p.cfg.Namespace, r.Agent, confirmAnnotation, f.Held.ID))
	case engine.Unheld:
		log.Info("nothing is held back any more", "scope", f.Scope)
	case engine.StoreAccepted:
		log.Info("the agent's store is accepted as it is", "store", f.Store.UID, "revision", f.Store.Revision)
	case engine.Aliased:
		log.Warn("something keeps changing an item back; both versions are taken as equal now", "scope", f.Scope, "item", f.Key.String())
	}
}
