package principal

import (
	"cmp"
	"context"
	"log/slog"
	"slices"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// report handles an event of a session. It is called by the goroutine that owns the reconciler.
func (p *principal) report(r reconcile.Report) {
	if r.Event.Type == engine.Refused && r.Event.Code == engine.WrongCluster {
		r.Event.Hello = &engine.Hello{ClusterUID: p.conns.claimedClusterUID(r.Agent)}
	}
	f := r.Event
	if f.Type == engine.InSync && p.search != nil {
		status, _ := p.reconciler.Status(r.Agent)
		if at, ok := fleet.LastInSync(status); ok {
			p.search.InSync(r.Agent, at)
		}
	}
	if f.Type == engine.InSync && p.status.InSyncKnown(r.Agent) {
		return // InSync events repeat every minute
	}
	log := p.log.With("agent", r.Agent)
	f.Message = p.message(r)
	p.confirmations.HandleEvent(r.Agent, f)
	status, _ := p.reconciler.Status(r.Agent)
	p.status.HandleEvent(r.Agent, f, status)
	p.traceEvent(r.Agent, f, status.Epoch)
	p.live.HandleEvent(r.Agent, f)
	p.shared.HandleEvent(r.Agent, f)
	p.auditEvent(r.Agent, f, status)
	switch f.Type {
	case engine.Opened:
		p.lastRefusal.Reset(r.Agent)
		log.Info("Agent connected", "mode", f.Hello.Mode, "version", f.Hello.Version, "cluster", f.Hello.ClusterUID)
	case engine.Closed:
		log.Info("Agent disconnected", "code", f.Code, "reason", f.Message)
	case engine.Refused:
		level := slog.LevelWarn
		if !p.lastRefusal.Changed(r.Agent, string(f.Code)+": "+f.Message) { // the agent retries
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "Agent refused", "code", f.Code, "reason", f.Message)
	case engine.Rejected:
		level := slog.LevelWarn
		if f.Code == engine.Unavailable && p.runner.WriteStats().Outage { // the outage is logged once
			level = slog.LevelDebug
		}
		log.Log(context.Background(), level, "Item rejected", "scope", f.Scope, "item", f.Key.String(), "code", f.Code, "reason", f.Message)
	case engine.Accepted:
		log.Info("Item accepted", "scope", f.Scope, "item", f.Key.String())
	case engine.HoldStarted:
		if f.Held.Cause == engine.CauseFleet {
			log.Info("Removals held for the check across agents", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of)
			break
		}
		log.Warn("Deletions held until a user confirms them", "scope", f.Scope, "count", f.Held.Count, "of", f.Held.Of,
			"reason", f.Held.Reason, "confirm", fleet.ConfirmCommand(p.cfg.Namespace, r.Agent, f.Held.ID))
	case engine.HoldEnded:
		log.Info("Deletions no longer held", "scope", f.Scope)
	case engine.StoreAccepted:
		log.Info("Agent store accepted", "store", f.Store.UID, "revision", f.Store.Revision)
	case engine.Aliased:
		log.Warn("Item is stored differently than on the agent", "scope", f.Scope, "item", f.Key.String(), "reason", f.Message)
	}
}

// auditEvent records that an agent rejects or accepts an item of the hub. Events of the hub's own replicas have no line.
func (p *principal) auditEvent(agent string, f engine.Event, status engine.Status) {
	if !slices.ContainsFunc(status.Scopes, func(s engine.ScopeStatus) bool { return s.Name == f.Scope && s.Role == engine.Owner }) {
		return
	}
	switch f.Type {
	case engine.Rejected:
		p.commands.Rejected(agent, f.Scope, f.Key, f.Code, f.Message)
	case engine.Accepted:
		p.commands.Accepted(agent, f.Scope, f.Key)
	}
}

// message returns the message of an event. Text that an agent can choose is reduced to one line.
func (p *principal) message(r reconcile.Report) string {
	f := r.Event
	switch f.Type {
	case engine.Closed:
		return fleet.OneLine(cmp.Or(f.Message, p.sessions.takeEndReason(r.Agent)))
	case engine.Refused:
		if f.Code == engine.WrongCluster {
			return fleet.OneLine(f.Message) + ": " + fleet.ConfirmCommand(p.cfg.Namespace, r.Agent, v1alpha1.ConfirmCluster+f.Hello.ClusterUID)
		}
		return fleet.OneLine(f.Message)
	}
	return f.Message
}

// traceEvent continues the trace of a connection with its session.
func (p *principal) traceEvent(agent string, f engine.Event, epoch engine.Epoch) {
	if p.cfg.Trace == nil || f.Type != engine.Opened && f.Type != engine.InitialSyncDone {
		return // the trace of a refused session ends with its connection
	}
	for _, c := range p.conns.of(agent) {
		if c.hello == nil || c.hello.Epoch != epoch {
			continue
		}
		if f.Type == engine.Opened {
			c.Steps.Next("compare")
		} else {
			c.Steps.End()
		}
	}
}
