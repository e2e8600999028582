package reconcile

import (
	"bytes"
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file publishes repositories, which follow their project. Secret and project come from two watches, and either
// may lag. A new password may arrive before the project stops permitting an agent, or a project may permit an agent
// before the Secret leaves the project. Then credentials would reach the wrong agent. So a repository is published only
// when there was a moment at which both were as they are cached. Until then, what was published before stays.
//
// An idle watch reports its progress once a minute, which is too late. So the other object is read: one request for a
// Secret that is new or changed, and one for each Secret of a project whose rules have changed.

// repositoryTracker is what is known of repositories in addition to the cache.
type repositoryTracker struct {
	deferred       map[kind.Ref]bool        // Secrets that wait
	reads          map[kind.Ref]pendingRead // pending reads
	verifiedAt     map[kind.Ref]uint64      // revision up to which a read has shown the cached object to be current
	rulesChangedAt map[string]uint64        // when a project's rules changed, if Secrets are not known as of then
}

// pendingRead is a pending read and the revision that its answer is at least as new as.
type pendingRead struct {
	id  uint64
	rev uint64
	at  engine.Time
}

// maxReads bounds the pending reads. Beyond that one list is cheaper.
const maxReads = 16

// deferRepository defers a changed Secret if the Secret or its project is not known as of the same moment.
func (n *Reconciler) deferRepository(was, is *kind.Object) bool {
	o, project := is, ""
	if is == nil {
		o = was
	} else if n.cfg.Side == kind.Hub && (kind.RepositoryKind{}).Matches(is) {
		project = kind.RepositoryProject(is)
	}
	ref := refOf(kind.Secrets, o)
	if project == "" {
		delete(n.repositories.deferred, ref)
		return false
	}
	known := n.knownAsOf(n.projectRef(project), revision(o))
	if !n.knownAsOf(ref, n.repositories.rulesChangedAt[project]) || !known {
		n.repositories.deferred[ref] = true
		return true
	}
	delete(n.repositories.deferred, ref)
	return false
}

func (n *Reconciler) projectRef(name string) kind.Ref {
	return kind.Ref{Resource: kind.AppProjects, Namespace: n.cfg.ArgoNamespace, Name: name}
}

// knownAsOf reports whether an object is known as of a revision. If not, it requests the object.
func (n *Reconciler) knownAsOf(ref kind.Ref, rev uint64) bool {
	t := n.cache.tables[ref.Resource]
	if o := n.cache.get(ref); rev <= t.parts.frontier() || rev <= n.repositories.verifiedAt[ref] || o != nil && rev <= revision(o) {
		return true
	}
	if t.parts.complete() { // otherwise a list is pending
		n.ask(ref, rev)
	}
	return false
}

func (n *Reconciler) ask(ref kind.Ref, rev uint64) {
	f := &n.repositories
	if _, ok := f.reads[ref]; ok {
		return // its answer may be too old, and then it is requested again
	}
	if len(f.reads) >= maxReads {
		n.relist(ref.Resource)
		return
	}
	f.reads[ref] = pendingRead{id: n.emitRead(ref), rev: rev, at: n.now}
	n.scheduleHousekeeping(n.now + rereadAfter)
}

// answered records what a read proves, before its answer is handled. It returns false if it was not requested here, or
// the object is gone since.
func (n *Reconciler) answered(ref kind.Ref, id uint64) bool {
	a, ok := n.repositories.reads[ref]
	if !ok || a.id != id {
		return false
	}
	delete(n.repositories.reads, ref)
	n.repositories.verifiedAt[ref] = max(n.repositories.verifiedAt[ref], a.rev)
	return true
}

// retryDeferred publishes deferred Secrets if enough is known now.
func (n *Reconciler) retryDeferred() {
	f := &n.repositories
	if len(f.deferred)+len(f.reads)+len(f.verifiedAt) == 0 {
		return
	}
	for _, ref := range sortedRefs(f.deferred) {
		o := n.cache.get(ref)
		n.notifySyncs(kind.Secrets, o, o, true)
	}
	if len(f.deferred) == 0 {
		clear(f.reads)
		clear(f.verifiedAt)
		n.beginAll()
	}
}

// retryReads reads again what was not answered and is still needed.
func (n *Reconciler) retryReads() {
	before := len(n.repositories.reads)
	maps.DeleteFunc(n.repositories.reads, func(_ kind.Ref, a pendingRead) bool { return n.now-a.at >= rereadAfter })
	if len(n.repositories.reads) < before {
		n.retryDeferred()
	}
}

// projectChanged publishes the repositories of a project again.
func (n *Reconciler) projectChanged(was, is *kind.Object) {
	if n.cfg.Side != kind.Hub || was != nil && is != nil && sameRules(was, is) {
		return
	}
	o, rev := is, uint64(0)
	if o != nil {
		rev = revision(o)
	} else {
		o = was
		for _, t := range n.cache.tables { // the revision of the deletion is unknown, but not older than any known revision
			for _, p := range t.parts.all {
				rev = max(rev, p.frontier+1, p.newest+1)
			}
		}
	}
	name := o.Name()
	secrets := n.cache.tables[kind.Secrets]
	if rev > secrets.parts.frontier() {
		n.repositories.rulesChangedAt[name] = rev
	}
	for _, o := range sortedObjects(secrets.objects) {
		if kind.RepositoryProject(o) == name {
			n.notifySyncs(kind.Secrets, o, o, true)
		}
	}
}

// sameRules reports whether two states of a project permit the same agents.
func sameRules(a, b *kind.Object) bool {
	return a.IsDeleting() == b.IsDeleting() && bytes.Equal(a.Get("spec"), b.Get("spec")) &&
		bytes.Equal(a.Get("metadata", "labels"), b.Get("metadata", "labels"))
}

// forgetRules drops what the watch of Secrets has passed.
func (n *Reconciler) forgetRules() {
	seen := n.cache.tables[kind.Secrets].parts.frontier()
	maps.DeleteFunc(n.repositories.rulesChangedAt, func(_ string, rev uint64) bool { return rev <= seen })
}

// lacksRepositories reports whether Secrets are deferred, so that the published repositories are not complete. A
// comparison would find some missing.
func (n *Reconciler) lacksRepositories() bool {
	return len(n.repositories.deferred) > 0 && n.cache.tables[kind.Secrets].parts.complete() && n.cache.tables[kind.AppProjects].parts.complete()
}
