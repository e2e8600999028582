package reconcile

import (
	"cmp"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file handles frozen Applications (kind.Place): those that belong to an agent by the mapping and must not run
// there.

// placements is the hub's state for the placement of Applications.
type placements struct {
	rules     map[string]*kind.ProjectRules // of existing AppProjects
	undecided map[kind.Ref]bool             // Applications that wait until AppProjects are read
	again     []kind.Ref                    // Applications that were decided again in this step
}

// projectRules implements kind.Env.Rules. Nothing is decided before AppProjects were read once. If they become
// unreadable, known rules stay, and nothing is concluded about unknown ones.
func (n *Reconciler) projectRules(project string) (*kind.ProjectRules, bool) {
	t := n.cache.tables[kind.AppProjects]
	if !t.parts.read() {
		return nil, false
	}
	if known := n.placements.rules[project]; known != nil {
		return known, true
	}
	rules := kind.ReadProjectRules(project, n.envWithoutAgent())
	if rules == nil {
		return nil, t.parts.complete()
	}
	n.placements.rules[project] = rules
	return rules, true
}

// decided reports whether an Application of the hub can be published. While its AppProject is unknown it cannot, and
// what was published before stays.
func (l *agentSync) decided(was, is *kind.Object) bool {
	_, placement, _ := kind.Place(is, &l.env)
	switch {
	case placement == kind.Undecided: // also if the agent is elsewhere
		l.reconciler.placements.undecided[refOf(kind.Applications, is)] = true
		return false
	case placement == kind.NotPlaced && was != nil && kind.ShowsFrozen(is):
		l.reconciler.clearFrozen(refOf(kind.Applications, is)) // it has left the agent
	}
	return true
}

// decideAll decides the Applications that waited for AppProjects.
func (n *Reconciler) decideAll() {
	waiting := n.placements.undecided
	n.placements.undecided = map[kind.Ref]bool{}
	for _, ref := range sortedRefs(waiting) {
		if o := n.cache.get(ref); o != nil {
			n.decideAgain(o)
		}
	}
}

// decideAgain publishes an Application again after something else that decides its placement has changed.
func (n *Reconciler) decideAgain(o *kind.Object) {
	if n.cfg.Side != kind.Hub {
		return
	}
	n.placements.again = append(n.placements.again, refOf(kind.Applications, o))
	for _, l := range n.affectedSyncs(kind.Applications, nil, o) {
		l.notify(kind.Applications, o, o, true)
		l.reconcileApplication(o)
	}
	n.pushChanged(o, o)
}

// DecidedAgain returns the Applications of the hub whose placement may have changed in the last Step although they did
// not change. The list is valid until the next Step.
func (n *Reconciler) DecidedAgain() []kind.Ref { return n.placements.again }

// rulesChanged decides the Applications of an AppProject again.
func (n *Reconciler) rulesChanged(was, is *kind.Object) {
	project := cmp.Or(is, was).Name()
	delete(n.placements.rules, project)
	if n.cfg.Side != kind.Hub || was != nil && is != nil && kind.SameRules(was, is) {
		return
	}
	for _, o := range slices.Clone(n.cache.byProject[project]) {
		n.decideAgain(o)
	}
}

// decideAllAgain decides every Application again, because global projects have changed.
func (n *Reconciler) decideAllAgain() {
	clear(n.placements.rules)
	for _, o := range sortedObjects(n.cache.tables[kind.Applications].objects) {
		n.decideAgain(o)
	}
}

// decides returns the resources without which a scope is incomplete: those that it reads and, for Applications that the
// hub sends, AppProjects. Credentials to push need Applications too.
func (l *agentSync) decides(k kind.Kind) []kind.Resource {
	if k.Scope() == kind.ApplicationScope && l.reconciler.cfg.Side == kind.Hub && l.env.Agent.Mode == kind.Managed {
		return []kind.Resource{kind.Applications, kind.AppProjects}
	}
	if k.Scope() == kind.RepositoryScope && l.env.Settings.SyncWriteCredentials {
		return append(slices.Clone(reads(k)), kind.Applications) // before they are read, no Application would push
	}
	return reads(k)
}

// wasFrozen reports whether an Application was rejected while it was frozen. Such a rejection no longer applies.
func (l *agentSync) wasFrozen(r engine.Rejection, o *kind.Object) bool {
	return r.Version == engine.VersionOf(kind.FrozenContent(o, &l.env))
}

// updateFrozen shows that an Application is frozen. It waits a little: an AppProject that was created or changed
// together with the Application comes from another watch.
func (l *agentSync) updateFrozen(key engine.Key, ref kind.Ref, o *kind.Object) {
	since, known := l.frozen[key]
	if !known {
		since = l.reconciler.now
		setNote(&l.frozen, key, since)
	}
	if l.reconciler.now-since < requeueDelay {
		l.reconciler.requeueAfter(ref, 0)
		return
	}
	l.updateConditions(key, ref, o)
}

// withFrozen returns the Application with or without the condition that it is frozen. It returns the same object if
// that is right. If it is placed on another agent, it is not frozen. Replicas of an autonomous agent have no such
// condition: the edit that froze them is undone.
func (l *agentSync) withFrozen(o *kind.Object) (shown *kind.Object, frozen bool) {
	if l.env.Agent.Mode == kind.Managed && !l.env.Agent.Excludes(kind.ApplicationScope) {
		_, placement, why := kind.Place(o, &l.env)
		if placement == kind.Frozen && !l.reconciler.placedElsewhere(o) {
			return kind.SetCondition(o, kind.ConditionError, kind.FrozenMessage(o, why), time.UnixMilli(int64(l.reconciler.now))), true
		}
	}
	if kind.ShowsFrozen(o) {
		return kind.ClearCondition(o, kind.ConditionError), false
	}
	return o, false
}

func (n *Reconciler) placedElsewhere(o *kind.Object) bool {
	return slices.ContainsFunc(n.affectedSyncs(kind.Applications, nil, o), func(l *agentSync) bool {
		_, placement, _ := kind.Place(o, &l.env)
		return placement == kind.Placed
	})
}

// clearFrozen removes the condition from an Application that no longer belongs to an agent.
func (n *Reconciler) clearFrozen(ref kind.Ref) {
	n.enqueue(ref, job{name: "not-frozen", why: "clear frozen condition",
		decide: ifChanged(func(local *kind.Object) *kind.Object {
			if !kind.ShowsFrozen(local) {
				return local
			}
			for _, l := range n.affectedSyncs(kind.Applications, nil, local) {
				if _, placement, _ := kind.Place(local, &l.env); placement != kind.NotPlaced {
					return local // that agent's sync shows it
				}
			}
			return kind.ClearCondition(local, kind.ConditionError)
		})})
}

// leaveUnchanged is what the spoke does for a frozen Application. The ownership annotation decides: an object that we
// own stays as it is and counts as equal. Otherwise the item is rejected, and nothing is created, adopted or deleted. A
// stale view of the hub does not matter.
func (l *agentSync) leaveUnchanged(s *scope, local *kind.Object) decision {
	if local != nil {
		if held, ok := s.kind.ReadReplica(local, &l.env); ok && held.Ownership.Owned {
			return decision{leftUnchanged: true}
		}
	}
	return decision{fail: &Failure{Code: engine.NotAllowed, Message: "the hub has frozen it, and it is not on this cluster; a condition of the hub's Application says why"}}
}
