package reconcile

import (
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file keeps the Applications of agents that have their session with another principal replica in a reduced form
// (kind.Reduce), so that several replicas hold more agents than one.
//
// The engine's state of their scopes is compact: which Applications are published, and which were deleted. It is updated from
// the full object of each watch event, before the object is reduced. So deletions are known as without this file. When the agent
// is no longer elsewhere, its Applications are reported to the engine again.
//
// What a reduced object is never used for:
//   - agentSync.notify does not report it to the engine.
//   - Reconciler.work does not run a job on it, so that nothing is written or deleted because of it.
//   - A view with a reduced object is not complete (agentSync.reportView), and no session begins with it
//     (agentSync.tryBegin). So it never looks absent.
//
// When the content is needed, the namespace is read. The answer completes an object only if it has the UID and the
// resourceVersion of the reduced one: these two determine the content. So it does not matter how late an answer is, nor
// what the watch has shown since. A newer state, and a deletion, come from the watch alone.

// Elsewhere has the agents whose sessions other principal replicas have had for a while. It replaces the one before it.
// An agent with a session here, and one whose Applications can be in any namespace, is not affected.
type Elsewhere struct{ Agents map[string]bool }

// ReadApplications reads the Applications of a namespace. The caller answers with ApplicationsRead.
type ReadApplications struct {
	Namespace string
	Session   bool // a session waits for it
}

// ApplicationsRead answers ReadApplications.
type ApplicationsRead struct {
	Namespace string
	Objects   []*kind.Object
	Reason    string // why they could not be read; empty if they were
}

func (Elsewhere) input()         {}
func (ApplicationsRead) input()  {}
func (ReadApplications) effect() {}

// restore is a namespace with reduced Applications whose content is needed.
type restore struct {
	session bool        // a session waits for it
	askAt   engine.Time // when to ask again
	reason  string      // why the last read failed
}

const (
	restoreRetry  = 5 * engine.Second  // after an answer that was not enough
	restoreRepeat = 60 * engine.Second // without an answer. A request has a shorter timeout.
)

func (n *Reconciler) elsewhere(in Elsewhere) {
	n.reduces = n.reduces || len(in.Agents) > 0
	for _, l := range n.sortedSyncs() {
		if _, session := l.peer.Session(); in.Agents[l.name] && !session && l.inOneNamespace() {
			l.leave()
		} else {
			l.comeBack(session)
		}
	}
}

// leave records that another replica has the session of the agent.
func (l *agentSync) leave() {
	if l.elsewhere {
		return
	}
	l.setElsewhere(true)
	for _, o := range l.objects(kind.Applications) {
		l.reconciler.reduce(o)
	}
}

// setElsewhere records whether the agent is elsewhere, and makes the engine's state of its Applications compact during that.
func (l *agentSync) setElsewhere(elsewhere bool) {
	l.elsewhere = elsewhere
	for _, scope := range []string{kind.ApplicationScope, kind.StatusScope} {
		l.step(engine.SetCompact{Scope: scope, Compact: elsewhere})
	}
}

// comeBack records that this replica needs the agent's Applications. With session, a session waits for them.
func (l *agentSync) comeBack(session bool) {
	if l.elsewhere {
		l.setElsewhere(false)
		for _, o := range l.objects(kind.Applications) {
			l.reconciler.report(o)
		}
		l.reportView(kind.Applications)
	}
	l.restore(session)
}

// report reports an Application to its agents as if it had changed, and reconciles it.
func (n *Reconciler) report(o *kind.Object) {
	for _, l := range n.affectedSyncs(kind.Applications, nil, o) {
		l.notify(kind.Applications, o, o, true)
	}
	n.reconcileObject(kind.Applications, o)
}

// inOneNamespace reports whether the Applications of the agent are in its namespace on the hub.
func (l *agentSync) inOneNamespace() bool {
	return l.reconciler.cfg.Side == kind.Hub && (l.env.Agent.Mode == kind.Autonomous || l.env.Agent.Mapping == kind.ByNamespace)
}

// reduceAll reduces what could not be reduced before AppProjects were read.
func (n *Reconciler) reduceAll() {
	for _, l := range n.sortedSyncs() {
		if l.elsewhere {
			for _, o := range l.objects(kind.Applications) {
				n.reduce(o)
			}
		}
	}
}

// mayReduce reports whether no part of this replica needs the content of an Application: all its agents are elsewhere,
// no job is about to change it, and no source hydrator is involved, which matters to other agents. Before its AppProject is
// known, and while one of its agents is unread, it may not be published yet.
func (n *Reconciler) mayReduce(o *kind.Object) bool {
	if !n.reduces || !n.cache.tables[kind.AppProjects].parts.read() || n.objectQueues[refOf(kind.Applications, o)] != nil || pushingProject(o) != "" {
		return false
	}
	if n.placements.undecided[refOf(kind.Applications, o)] {
		return false
	}
	syncs := n.affectedSyncs(kind.Applications, nil, o)
	return len(syncs) > 0 && !slices.ContainsFunc(syncs, func(l *agentSync) bool { return !l.elsewhere || l.unread })
}

// reduce reduces a cached Application if that is possible.
func (n *Reconciler) reduce(o *kind.Object) {
	if o.IsReduced() || !n.mayReduce(o) {
		return
	}
	first := slices.DeleteFunc(n.affectedSyncs(kind.Applications, nil, o), (*agentSync).hasReduced)
	n.cache.replace(kind.Reduce(o))
	for _, l := range first {
		l.reportView(kind.Applications)
	}
}

// replace replaces an Application by another form of the same revision.
func (c *cache) replace(o *kind.Object) {
	c.tables[kind.Applications].objects[nameOf(o)] = o
	c.byNS.put(o.Namespace(), o)
	c.byDestination.put(kind.DestinationOf(o), o)
	c.byProject.put(kind.ProjectOf(o), o)
}

// hasReduced reports whether this side lacks the content of Applications of the agent.
func (l *agentSync) hasReduced() bool {
	if l.reconciler.cfg.Side != kind.Hub {
		return false
	}
	c := l.reconciler.cache
	return slices.ContainsFunc(c.byNS[l.env.Agent.HubNamespace], (*kind.Object).IsReduced) ||
		slices.ContainsFunc(c.byDestination[l.name], (*kind.Object).IsReduced) ||
		slices.ContainsFunc(c.byDestination[l.env.Agent.ClusterURL()], (*kind.Object).IsReduced)
}

// restore reads the reduced Applications of the agent.
func (l *agentSync) restore(session bool) {
	if !l.hasReduced() {
		return
	}
	for _, o := range l.objects(kind.Applications) {
		if o.IsReduced() {
			l.reconciler.restore(o.Namespace(), session)
		}
	}
}

// restore reads the Applications of a namespace, unless that is under way. For a session it is read again: the earlier
// read may wait behind others.
func (n *Reconciler) restore(namespace string, session bool) {
	if r := n.restores[namespace]; r == nil {
		n.restores[namespace] = &restore{session: session}
	} else if session && !r.session {
		r.session = true
	} else {
		return
	}
	n.readApplications(namespace)
}

func (n *Reconciler) readApplications(namespace string) {
	r := n.restores[namespace]
	r.askAt = n.now + restoreRepeat
	n.scheduleHousekeeping(r.askAt)
	n.emit(ReadApplications{Namespace: namespace, Session: r.session})
}

// retryRestores asks again for what was not answered.
func (n *Reconciler) retryRestores() {
	for _, namespace := range slices.Sorted(maps.Keys(n.restores)) {
		switch r := n.restores[namespace]; {
		case !n.needsRestore(namespace):
			delete(n.restores, namespace)
		case r.askAt <= n.now:
			n.readApplications(namespace)
		default:
			n.scheduleHousekeeping(r.askAt)
		}
	}
}

// needsRestore reports whether a namespace has a reduced Application whose content is needed.
func (n *Reconciler) needsRestore(namespace string) bool {
	return slices.ContainsFunc(n.cache.byNS[namespace], func(o *kind.Object) bool { return o.IsReduced() && !n.mayReduce(o) })
}

// applicationsRead handles the answer to ReadApplications. It never removes an object, and never adds one.
func (n *Reconciler) applicationsRead(in ApplicationsRead) {
	for _, o := range in.Objects {
		n.restoreObject(o)
	}
	r := n.restores[in.Namespace]
	if r == nil {
		return
	}
	if !n.needsRestore(in.Namespace) {
		delete(n.restores, in.Namespace)
		return
	}
	// The read failed, or the watch is about to show what it has shown.
	r.askAt, r.reason = n.now+restoreRetry, in.Reason
	n.scheduleHousekeeping(r.askAt)
	for _, l := range n.byNS[in.Namespace] {
		l.reportView(kind.Applications)
	}
}

// restoreObject replaces a reduced Application whose content is needed by the full one.
func (n *Reconciler) restoreObject(o *kind.Object) {
	cached := n.cache.get(refOf(kind.Applications, o))
	if cached == nil || !cached.IsReduced() || cached.UID() != o.UID() || cached.ResourceVersion() != o.ResourceVersion() || n.mayReduce(cached) {
		return
	}
	n.cache.replace(o)
	n.report(o)
	n.restored(cached, o)
}

// restored lets the agents of an Application that was reduced go on.
func (n *Reconciler) restored(was, is *kind.Object) {
	if was == nil || !was.IsReduced() || is != nil && is.IsReduced() {
		return
	}
	for _, l := range n.affectedSyncs(kind.Applications, was, is) {
		if !l.hasReduced() {
			l.reportView(kind.Applications)
			l.tryBegin()
			l.allRead()
		}
	}
}

// allRead ends that the agent is unread. If it is elsewhere, its Applications are reduced again.
func (l *agentSync) allRead() {
	if !l.unread {
		return
	}
	l.unread = false
	if l.elsewhere {
		for _, o := range l.objects(kind.Applications) {
			l.reconciler.reduce(o)
		}
	}
}

// notInMemory is why a view of Applications with reduced ones is not complete. It is one text for thousands of agents.
const notInMemory = "cannot read applications: another principal replica had the session, and they have not been read again yet"

// unreadApplications returns why a view of Applications with reduced ones is not complete.
func (l *agentSync) unreadApplications() string {
	if r := l.reconciler.restores[l.env.Agent.HubNamespace]; r != nil && r.reason != "" {
		return "cannot read applications: " + r.reason
	}
	return notInMemory
}

// Reduced returns the number of Applications of an agent whose content is not in memory.
func (n *Reconciler) Reduced(agent string) int {
	count := 0
	if l := n.syncs[agent]; l != nil && n.cfg.Side == kind.Hub {
		for _, o := range l.objects(kind.Applications) {
			if o.IsReduced() {
				count++
			}
		}
	}
	return count
}
