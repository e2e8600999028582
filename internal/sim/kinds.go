package sim

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// This file is about settings that decide on what is exchanged at all: the kinds of an Agent, what the hub takes from an
// autonomous agent, and the label by which the hub's Argo CD tracks resources.

var kindActions = []actionType{
	{name: "change kinds", weight: 3, fault: true, rare: 5, do: changeKinds},
	{name: "change instance label", weight: 3, fault: true, rare: 5, do: changeInstanceLabel},
}

// changeKinds takes one kind of a managed agent out of the exchange, or puts it back. Copies of an autonomous agent on
// the hub would stay as they are, so it changes what that agent is allowed to set.
func changeKinds(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !s.managed() {
		changeAllow(w, s, a.n[1])
		return
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

// changeAllow changes whether the hub takes roles and subscriptions from an autonomous agent.
func changeAllow(w *world, s *spoke, n uint32) {
	s.agent.Allow = kind.Allow{Roles: n%2 == 1, Notifications: n>>1%2 == 1}
	w.tracef("%s: %s is allowed %+v", userName, s.agent.Name, s.agent.Allow)
	w.reregister(s)
}

// subscription is an annotation that the hub does not take from an autonomous agent unless it is allowed.
const subscription = "notifications.argoproj.io/subscribe.on-sync-failed.slack"

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
