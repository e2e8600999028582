package reconcile

import (
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about frozen Applications, see kind.Place: those that belong to an
// agent by the mapping and must not run there.

// placements is what the hub keeps to decide about Applications.
type placements struct {
	rules     map[string]*kind.ProjectRules // of AppProjects that exist, as they are cached
	undecided map[kind.Ref]bool             // Applications that wait until AppProjects have been read
	again     []kind.Ref                    // Applications that were decided about again in this step
}

func newPlacements() placements {
	return placements{rules: map[string]*kind.ProjectRules{}, undecided: map[kind.Ref]bool{}}
}

// projectRules implements kind.World.Rules. Nothing is decided before AppProjects
// have been read once. If they cannot be read any more, those that are known
// count, and about others nothing is concluded.
func (n *Reconciler) projectRules(project string) (*kind.ProjectRules, bool) {
	t := n.cache.tables[kind.AppProjects]
	if !t.read {
		return nil, false
	}
	if known := n.placements.rules[project]; known != nil {
		return known, true
	}
	w := kind.Env{Side: kind.Hub, HubArgoNamespace: n.cfg.ArgoNamespace, Settings: n.cfg.Settings, GlobalProjects: n.argo.GlobalProjects, Find: n.cache.get}
	rules := kind.ReadProjectRules(project, &w)
	if rules == nil {
		return nil, t.complete
	}
	n.placements.rules[project] = rules
	return rules, true
}

// decided reports whether an Application of the hub can be told of: not while its
// AppProject is unknown. Until then, what was told before holds.
func (l *agentSync) decided(was, is *kind.Object) bool {
	ref := refOf(kind.Applications, is)
	_, placement, _ := kind.Place(is, &l.env)
	switch {
	case placement == kind.Undecided:
		l.reconciler.placements.undecided[ref] = true
		return false
	case placement == kind.NotPlaced && was != nil && kind.ShowsFrozen(is):
		l.reconciler.clearFrozen(ref) // it has just left
	}
	return true
}

// decideAll decides about the Applications that have waited for AppProjects.
func (n *Reconciler) decideAll() {
	waiting := n.placements.undecided
	n.placements.undecided = map[kind.Ref]bool{}
	for _, ref := range sortedRefs(waiting) {
		if o := n.cache.get(ref); o != nil {
			n.decideAgain(o)
		}
	}
}

// decideAgain tells of an Application again, after something else has changed that
// decides about it.
func (n *Reconciler) decideAgain(o *kind.Object) {
	if n.cfg.Side != kind.Hub {
		return
	}
	n.placements.again = append(n.placements.again, refOf(kind.Applications, o))
	for _, l := range n.affectedSyncs(kind.Applications, nil, o) {
		l.notify(kind.Applications, o, o, true)
		l.reconcileApplication(o)
	}
}

// DecidedAgain lists the Applications of the hub whose placement may have changed
// in the last Step although they have not changed themselves. The list is valid
// until the next Step.
func (n *Reconciler) DecidedAgain() []kind.Ref { return n.placements.again }

// rulesChanged looks again at the Applications of an AppProject.
func (n *Reconciler) rulesChanged(was, is *kind.Object) {
	o := is
	if o == nil {
		o = was
	}
	delete(n.placements.rules, o.Name())
	if n.cfg.Side != kind.Hub || was != nil && is != nil && kind.SameRules(was, is) {
		return
	}
	n.decideThoseOf(o.Name())
}

func (n *Reconciler) decideThoseOf(project string) {
	for _, o := range slices.Clone(n.cache.byProject[project]) {
		n.decideAgain(o)
	}
}

// decideAllAgain looks again at every Application: global projects have changed.
func (n *Reconciler) decideAllAgain() {
	clear(n.placements.rules)
	for _, o := range sortedObjects(n.cache.tables[kind.Applications].objects) {
		n.decideAgain(o)
	}
}

// decides lists the resources without which a scope is not known as a whole:
// those that it reads and, for Applications that the hub sends, AppProjects.
func (l *agentSync) decides(k kind.Kind) []kind.Resource {
	if k.Scope() == kind.ApplicationScope && l.reconciler.cfg.Side == kind.Hub && l.env.Agent.Mode == kind.Managed {
		return []kind.Resource{kind.Applications, kind.AppProjects}
	}
	return reads(k)
}

// wasFrozen reports whether an Application was rejected while it was frozen: that
// says nothing of it as it is now.
func wasFrozen(r engine.Rejection, o *kind.Object) bool {
	return r.Version == engine.VersionOf(kind.FrozenContent(o))
}

// updateFrozen shows that an Application is frozen. It waits a little: an AppProject
// that was created or changed together with the Application may be on its way, by
// a watch of its own.
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

// withFrozen returns the Application with the condition that it is frozen, or
// without it: the same object if that is as it is. Another agent's link may have
// placed it; then it is not frozen. For copies of an autonomous agent there is no
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

// clearFrozen removes the condition from an Application that no agent has any
// more.
func (n *Reconciler) clearFrozen(ref kind.Ref) {
	n.enqueue(ref, job{name: "not-frozen", why: "it is not frozen any more",
		decide: func(local *kind.Object) decision {
			if local == nil || !kind.ShowsFrozen(local) {
				return decision{}
			}
			for _, l := range n.affectedSyncs(kind.Applications, nil, local) {
				if _, placement, _ := kind.Place(local, &l.env); placement != kind.NotPlaced {
					return decision{} // it is that link's to show
				}
			}
			return decision{verb: Update, object: kind.ClearCondition(local, kind.ConditionError)}
		}})
}

// leaveUnchanged is what the spoke does for a frozen Application: nothing. Whose object it
// is says its mark. One of ours stays exactly as it is and counts as equal; in
// place of any other, and where there is none, the item is refused, and nothing is
// created, adopted or deleted. How old the hub's view is does not matter.
func (l *agentSync) leaveUnchanged(s *scope, local *kind.Object) decision {
	if local != nil {
		if held, ok := s.kind.ReadReplica(local, &l.env); ok && held.Ownership.Owned {
			return decision{leftUnchanged: true}
		}
	}
	return decision{fail: &Failure{Code: engine.NotAllowed, Message: "the hub has frozen it, and it is not on this cluster; a condition of the hub's Application says why"}}
}
