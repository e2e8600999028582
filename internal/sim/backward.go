package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about specs that go back, and what that deletes.

// goesBack reports whether users of the owner were done with a revision before they came to the one that it replaces on an agent.
func (l *ledger) goesBack(agent, source, from, to string) bool {
	a, b := l.first[source+"/"+from], max(l.last[source+"/"+to], l.regained[source+"/"+to+"@"+agent])
	return a > 0 && b > 0 && b < a
}

// trusts reports whether an agent may act on the hub's store: it never regressed, a user accepted it, or the regression
// cannot be detected.
func (l *ledger) trusts(agent string) bool {
	return l.hubEra == 0 || l.acceptedHub[agent] == l.hubEra
}

// guardBackward checks that an older spec never replaces a newer one. It would come from a stale view, or from a store
// that regressed.
func (w *world) guardBackward(s *spoke, ch change, bad func(string)) {
	if ch.old == nil || !ownedByAgent(ch.old) || w.ledger.trusts(s.agent.Name) && w.ledger.hubEra > 0 || w.ledger.acceptedStore[s.agent.Name] && w.group != nil {
		return
	}
	from, to := unquote(ch.old.Get("spec", "source", "targetRevision")), unquote(ch.new.Get("spec", "source", "targetRevision"))
	if source := ch.new.Annotation(sourceKey); source == ch.old.Annotation(sourceKey) && w.ledger.goesBack(s.agent.Name, source, from, to) {
		bad("goes back from " + from + " to " + to + " with")
	}
}

// pruned is Argo CD deleting what a new revision lacks.
func (l *ledger) pruned(c *cluster, r kind.Ref, source, from, to string) {
	if !l.goesBack(c.spoke.agent.Name, source, from, to) || !c.spoke.managed() || l.spokeEra[c.spoke.agent.Name] > 0 {
		return
	}
	l.w.check(l.hubEra > 0 && l.trusts(c.spoke.agent.Name) || l.w.group != nil && l.acceptedStore[c.spoke.agent.Name], "%s on %s is synced back from %s to %s, and resources are pruned", short(r), c.name, from, to)
}

// hookRan is Argo CD running the delete hooks of an Application.
func (l *ledger) hookRan(c *cluster, r kind.Ref, t tree, which string) {
	uid := digText(t, "metadata", "uid")
	source := digText(t, "metadata", "annotations", sourceKey)
	if source == "" {
		source = l.sources[uid]
	}
	l.w.tracef("%s on %s: runs the %s hooks of %s", controllerName, c.name, which, short(r))
	l.w.check(l.deleted[uid] || l.deleted[source] || l.mayCascade(c.spoke, source),
		"%s hooks of %s on %s run, and no user has deleted it", which, short(r), c.name)
}
