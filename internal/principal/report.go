package principal

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// report tells people what happened, once.
func (p *principal) report(r reconcile.Report) {
	if r.Event.Type == engine.Refused && r.Event.Code == engine.WrongCluster {
		r.Event.Hello = &engine.Hello{ClusterUID: p.claimedClusterUID(r.Agent)}
	}
	f := r.Event
	if f.Type == engine.InSync && p.status.inSyncKnown(r.Agent) {
		return // as each minute of each agent
	}
	log := p.log.With("agent", r.Agent)
	f.Message = p.message(r)
	p.confirmations.handleEvent(r.Agent, f)
	status, _ := p.live.reconciler.Status(r.Agent)
	p.status.handleEvent(r.Agent, f, status)
	p.traceFact(r.Agent, f, status.Epoch)
	p.live.changed(r)
	p.shared.changed(r)
	switch f.Type {
	case engine.Opened:
		delete(p.lastRefusal, r.Agent)
		log.Info("agent connected", "mode", f.Hello.Mode, "version", f.Hello.Version, "cluster", f.Hello.ClusterUID)
	case engine.Closed:
		log.Info("agent disconnected", "code", f.Code, "reason", f.Message)
	case engine.Refused:
		why := string(f.Code) + ": " + f.Message
		level := slog.LevelWarn
		if p.lastRefusal[r.Agent] == why { // it tries again and again
			level = slog.LevelDebug
		}
		p.lastRefusal[r.Agent] = why
		log.Log(context.Background(), level, "agent refused", "code", f.Code, "reason", f.Message)
	case engine.Rejected:
		level := slog.LevelWarn
		if f.Code == engine.Unavailable && p.runner.WriteStats().Outage { // which is told once for all
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "item refused", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Accepted:
		log.Info("item accepted again", "scope", f.Scope, "item", f.Key.String())
	case engine.HoldStarted:
		if f.Held.Cause == engine.CauseFleet {
			log.Info("Removals wait for the check across agents", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of)
			break
		}
		log.Warn("deletions are held back until somebody confirms them", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of,
			"reason", f.Held.Reason, "confirm", p.status.confirmCommand(r.Agent)(f.Held.ID))
	case engine.HoldEnded:
		log.Info("nothing is held back any more", "scope", f.Scope)
	case engine.StoreAccepted:
		log.Info("the agent's store is accepted as it is", "store", f.Store.UID, "revision", f.Store.Revision)
	case engine.Aliased:
		log.Warn("an item is not stored as the agent has it", "scope", f.Scope, "item", f.Key.String(), "reason", f.Message)
	}
}

// message is what a fact says. A goodbye is the agent's, and why it was refused has
// parts of its greeting in it.
func (p *principal) message(r reconcile.Report) string {
	f := r.Event
	switch f.Type {
	case engine.Closed:
		return oneLine(cmp.Or(f.Message, p.sessions.takeEndReason(r.Agent)))
	case engine.Refused:
		if f.Code == engine.WrongCluster {
			return oneLine(f.Message) + ": " + p.status.confirmCommand(r.Agent)(v1alpha1.ConfirmCluster+f.Hello.ClusterUID)
		}
		return oneLine(f.Message)
	}
	return f.Message
}
