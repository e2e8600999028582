package agent

import (
	"context"
	"errors"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/policy"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// inSync reports whether both sides have proved in this session that they are in sync, and nothing is held or rejected.
func (a *agent) inSync(ctx context.Context) bool {
	var status engine.Status
	if err := a.runner.Do(ctx, func(n *reconcile.Reconciler) { status, _ = n.Status("") }); err != nil {
		return false
	}
	return provenInSync(status)
}

func provenInSync(s engine.Status) bool {
	if !s.Connected || s.StoreHoldID != "" || len(s.Scopes) == 0 {
		return false
	}
	for _, sc := range s.Scopes {
		if sc.Unshared || sc.Name == kind.CommandScope { // commands are executed, not compared
			continue
		}
		if sc.InSyncAt == 0 || sc.Rejected > 0 || sc.Diverged > 0 || sc.Held > 0 {
			return false
		}
	}
	return true
}

// allowsUpgrade returns why AgentPolicies do not allow an upgrade now. If u is nil, it is about any upgrade.
func (p *policies) allowsUpgrade(u *policy.Upgrade) error {
	d := p.decided.Load()
	switch {
	case d == nil:
		return errors.New("AgentPolicies have not been read yet")
	case d.changed.Frozen != "":
		return errors.New(d.changed.Frozen)
	}
	violation := d.compiled.AllowsUpgrades()
	if u != nil {
		violation = d.compiled.Upgrade(*u)
	}
	if violation != nil {
		return violation
	}
	return nil
}
