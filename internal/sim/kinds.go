package sim

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is about settings that decide on what is exchanged at all: the kinds of an Agent, and the label by which
// the hub's Argo CD tracks resources.

var kindActions = []actionType{
	{name: "change kinds", weight: 3, fault: true, rare: 5, do: changeKinds},
	{name: "change instance label", weight: 3, fault: true, rare: 5, do: changeInstanceLabel},
}

// changeKinds takes one kind of a managed agent out of the exchange, or puts it back.
func changeKinds(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !s.managed() {
		return // copies on the hub stay as they are
	}
	scope := "," + []string{"appproject", "repository", "gpgkey"}[a.n[1]%3] + ","
	if s.agent.ExcludedScopes != "" {
		scope = ""
	}
	w.tracef("%s: %s is without %q", userName, s.agent.Name, scope)
	s.agent.ExcludedScopes = scope
	w.ledger.reconsider()
	w.reregister(s)
}

// replicates reports whether an agent and the hub exchange a kind of object.
func (s *spoke) replicates(r kind.Resource) bool {
	return !strings.Contains(s.agent.ExcludedScopes, ","+scopeOf(r)+",")
}

// changeInstanceLabel has Argo CD on the hub track by another label, which then stays on its side.
func changeInstanceLabel(w *world, _ action) {
	if w.instanceLabel = "tier"; w.argoSettings {
		w.instanceLabel = ""
	}
	w.argoSettings = !w.argoSettings
	w.tracef("%s: the hub's Argo CD tracks by label %q", userName, w.instanceLabel)
	for _, p := range w.principals {
		w.afterWatch(p, func() { p.step(reconcile.ArgoSettings{InstanceLabel: w.instanceLabel}) })
	}
}
