package reconcile

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what the hub does for objects in addition to replication.

// refresh is a refresh that a user requested on the hub's Application, and the nonce that names it.
type refresh struct {
	refresh, hydrate string // values of the annotations, with their times
	nonce            string
}

// refreshNonce implements kind.Env.RefreshNonce.
func (l *agentSync) refreshNonce(key engine.Key) string { return l.refreshes[key].nonce }

// byDestination returns the syncs that an Application names as its destination, by name or by URL.
func (n *Reconciler) byDestination(o *kind.Object) []*agentSync {
	to := kind.DestinationOf(o)
	if l := n.syncs[to]; l != nil && to != "" {
		return []*agentSync{l}
	}
	return n.byURL[to]
}

func (n *Reconciler) reconcileOnHub(r kind.Resource, o *kind.Object) {
	switch r {
	case kind.Applications:
		for _, l := range n.affectedSyncs(r, nil, o) {
			l.reconcileApplication(o)
		}
	case kind.AppProjects:
		n.finalizeProject(o)
	}
	if l := n.syncs[o.Annotation(kind.AgentNameAnnotation)]; l != nil {
		l.removeRefused(r, o)
	}
}

// removeRefused removes from a replica what its autonomous agent is not allowed to set, without waiting for the agent:
// the Agent has changed, or an earlier release wrote it. The owner then sends the item again, and an alias records that
// it is equal.
func (l *agentSync) removeRefused(r kind.Resource, o *kind.Object) {
	if l.env.Agent.Mode != kind.Autonomous {
		return
	}
	change := func(local *kind.Object) *kind.Object {
		if !kind.ReadOwnership(local, &l.env).Owned {
			return local
		}
		return kind.WithoutRefused(r, local, &l.env)
	}
	if change(o) != o {
		l.enqueueChange(refOf(r, o), "refused", "remove what the agent may not set", change)
	}
}

// reconcileApplication reconciles commands, finalizers and conditions.
func (l *agentSync) reconcileApplication(o *kind.Object) {
	if l.elsewhere || o.IsReduced() {
		return // the replica with the session does
	}
	key, placement, _ := kind.Place(o, &l.env)
	ref := refOf(kind.Applications, o)
	switch placement {
	case kind.Placed:
	case kind.Frozen:
		l.updateFrozen(key, ref, o)
		return
	case kind.Undecided:
		l.reconciler.placements.undecided[ref] = true
		return
	default:
		return
	}
	delete(l.frozen, key)
	commands, _ := kind.Pending(o, &l.env)
	if !commands.MissingID {
		delete(l.withoutID, key)
	} else {
		l.recordWithoutID(key, o)
		l.enqueueChange(ref, "command-id", "assign command ID", l.assignCommandID)
	}
	if l.recordApproval(o) != o {
		l.enqueueChange(ref, "approval", "record what an approval is for", l.recordApproval)
	}
	if uid := l.finalized[key]; uid != "" {
		delete(l.finalized, key)
		if uid == o.UID() {
			l.finalize(key)
		}
	}
	if (l.env.Agent.Mode == kind.Autonomous || kind.IsChildReplica(o)) && o.IsDeleting() && kind.ReadOwnership(o, &l.env).Owned {
		l.enqueueChange(ref, "finalizers", "remove finalizers of the replica", l.removeFinalizers)
	}
	if !commands.Empty() {
		l.failRejectedCommand(key, ref, o)
	}
	l.updateConditions(key, ref, o)
}

// recordRefresh gives a new refresh on the hub's Application a nonce, before its command is published.
func (l *agentSync) recordRefresh(o *kind.Object) {
	key, ok := kind.StatusKey(o, &l.env)
	if !ok {
		if key, ok = l.scope(kind.CommandScope).kind.Key(o, &l.env); ok {
			delete(l.refreshes, key)
		}
		return
	}
	c, _ := kind.Pending(o, &l.env)
	if !c.NeedsNonce() {
		delete(l.refreshes, key)
		return
	}
	before := l.refreshes[key]
	now := refresh{refresh: c.Refresh + c.RefreshAt, hydrate: c.Hydrate + c.HydrateAt, nonce: before.nonce}
	asked := func(was, is string) bool { return is != "" && is != was }
	if asked(before.refresh, now.refresh) || asked(before.hydrate, now.hydrate) { // otherwise a part of it is done
		l.nonces++
		now.nonce = nonce(l.reconciler.now, l.nonces)
	}
	if now != before {
		setNote(&l.refreshes, key, now)
	}
}

// assignCommandID gives a new command its ID.
func (l *agentSync) assignCommandID(local *kind.Object) *kind.Object {
	key, ok := kind.StatusKey(local, &l.env)
	if c, _ := kind.Pending(local, &l.env); !ok || !c.MissingID {
		return local
	}
	named, err := kind.SetCommandID(local, commandID(local, l.recordWithoutID(key, local)))
	if err != nil {
		return local
	}
	return named
}

// recordApproval records what a user approved on the hub's Application.
func (l *agentSync) recordApproval(local *kind.Object) *kind.Object {
	return kind.RecordApproval(local, &l.env, time.UnixMilli(int64(l.reconciler.now)))
}

// removeFinalizers removes the finalizers that keep a replica on the hub from being deleted.
func (l *agentSync) removeFinalizers(local *kind.Object) *kind.Object {
	if !local.IsDeleting() || !kind.ReadOwnership(local, &l.env).Owned {
		return local
	}
	stripped, _ := kind.StripFinalizers(local)
	return stripped
}

// handleHubEvent shows on the hub's Application what the spoke reports. reconcileApplication asks the engine for the
// details, also after a failed write.
func (l *agentSync) handleHubEvent(f engine.Event) {
	switch {
	case f.Type == engine.Finalized && f.Scope == kind.ApplicationScope:
		l.finalize(f.Key)
		return
	case f.Scope == kind.StatusScope && (f.Code == engine.TooLarge || f.Type == engine.Accepted):
	case f.Scope != kind.ApplicationScope && f.Scope != kind.CommandScope:
		return
	}
	if o := l.object(l.scope(kind.CommandScope), f.Key); o != nil {
		l.reconcileApplication(o)
	}
}

// finalize removes the finalizers of an Application whose resources the spoke has deleted.
func (l *agentSync) finalize(key engine.Key) {
	o := l.object(l.scope(kind.CommandScope), key)
	if o == nil {
		return
	}
	ref := refOf(kind.Applications, o)
	uid := o.UID()
	l.reconciler.enqueue(ref, job{name: l.name + "/finalized", why: "remove finalizers after deletion on the spoke", agent: l.name,
		decide: ifChanged(func(local *kind.Object) *kind.Object {
			if local.UID() != uid || !local.IsDeleting() {
				return local
			}
			stripped, _ := kind.StripCascade(local)
			return stripped
		}),
		done: func(r result) {
			if r.fail != nil {
				setNote(&l.finalized, key, uid)
				l.reconciler.requeueAfter(ref, r.fail.RetryAfter)
			}
		}})
}

// failRejectedCommand fails a command that the spoke will never execute.
func (l *agentSync) failRejectedCommand(key engine.Key, ref kind.Ref, o *kind.Object) {
	if _, ok := l.rejectedCommand(key, o); !ok {
		return
	}
	l.enqueueChange(ref, "fail-command", "fail rejected command", func(local *kind.Object) *kind.Object {
		reason, ok := l.rejectedCommand(key, local)
		if !ok {
			return local
		}
		commands, _ := kind.Pending(local, &l.env)
		failed, _ := kind.FailCommand(local, commands.ID, reason, time.UnixMilli(int64(l.reconciler.now)))
		return failed
	})
}

// rejectedCommand returns why the spoke will never execute the current commands of a hub's Application: they cannot be
// sent, or were rejected. It returns false if nothing of the kind is known in this session for these commands.
func (l *agentSync) rejectedCommand(key engine.Key, o *kind.Object) (string, bool) {
	item, ok := l.publish(l.scope(kind.CommandScope), o)
	if !ok || item.Key != key {
		return "", false
	}
	if item.Unsendable != "" {
		return item.Unsendable, true
	}
	r, ok := l.peer.Rejection(kind.CommandScope, key)
	return r.Message, ok && !r.Code.Retryable() && engine.VersionOf(item.Content) == r.Version
}

// enqueueChange enqueues a change of an object of the agent. If it fails, the object is reconciled again later.
func (l *agentSync) enqueueChange(ref kind.Ref, name, why string, change func(*kind.Object) *kind.Object) {
	l.reconciler.enqueue(ref, job{name: l.name + "/" + name, why: why, agent: l.name, decide: ifChanged(change), done: l.reconciler.requeueOnFailure(ref)})
}

func (n *Reconciler) requeueOnFailure(ref kind.Ref) func(result) {
	return func(r result) {
		if r.fail != nil {
			n.requeueAfter(ref, r.fail.RetryAfter)
		}
	}
}

// unused reports whether no Application uses a project. While not all Applications can be read, that is unknown.
func (n *Reconciler) unused(project string) bool {
	return n.cache.tables[kind.Applications].parts.complete() && !n.cache.inUse(project)
}

// finalizeProjects calls finalizeProject for all projects.
func (n *Reconciler) finalizeProjects() {
	if t := n.cache.tables[kind.AppProjects]; t != nil && n.cfg.Side == kind.Hub && !n.isStandby() {
		for _, o := range sortedObjects(t.objects) {
			n.finalizeProject(o)
		}
	}
}

// finalizeProject removes the finalizers of a project that is being deleted on the hub and that no Application uses: no
// controller on the hub does.
func (n *Reconciler) finalizeProject(o *kind.Object) {
	if !o.IsDeleting() || !n.unused(o.Name()) || len(o.Finalizers()) == 0 {
		return
	}
	ref := refOf(kind.AppProjects, o)
	n.enqueue(ref, job{name: "finalizers", why: "remove finalizers of unused project",
		decide: ifChanged(func(local *kind.Object) *kind.Object {
			if !local.IsDeleting() || !n.unused(local.Name()) {
				return local
			}
			stripped, _ := kind.StripCascade(local)
			return stripped
		}), done: n.requeueOnFailure(ref)})
}

// afterLoss reconciles what the end of an object makes possible.
func (n *Reconciler) afterLoss(r kind.Resource, old *kind.Object) {
	if n.cfg.Side != kind.Hub || r != kind.Applications {
		return
	}
	if p := n.cache.get(n.projectRef(kind.ProjectOf(old))); p != nil {
		n.finalizeProject(p)
	}
}
