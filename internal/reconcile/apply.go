package reconcile

import (
	"errors"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file carries out what the engine wants done to the replica's objects.

// apply writes received content, executes a command, or deletes with cascade.
func (l *agentSync) apply(e engine.Apply) {
	s := l.scope(e.Scope)
	ref, err := s.kind.Target(e.Key, &l.env)
	if err == nil && l.env.Agent.Excludes(e.Scope) {
		err = &kind.RejectError{Code: engine.NotAllowed, Message: "the hub does not exchange objects of this kind with this agent (spec.kinds of its Agent)"}
	}
	if err != nil {
		l.applied(e.Scope, e.Key, e.Ticket, e.Content, result{fail: failure(err)})
		return
	}
	l.beginApply(s, e)
	decide := func(local *kind.Object) decision { return l.merge(s, ref, e, local) }
	var wrote func(*kind.Object)
	if l.cascades(s, e) {
		c := &cascade{sync: l, apply: e}
		decide = func(local *kind.Object) decision { return l.noteRemoval(e.Scope, e.Key, local, "", c.decide(local)) }
		wrote = c.wrote
	}
	if s.cfg.Style == engine.OneShot {
		decide = func(local *kind.Object) decision { return l.execute(e, local) }
	}
	l.reconciler.enqueue(ref, job{name: l.itemJob(e.Scope, e.Key), why: "apply " + e.Scope, agent: l.name, origin: Origin{e.Scope, e.Key, e.Version}, open: true, decide: l.whileOpen(decide),
		wrote: wrote,
		done: func(r result) {
			if s.cfg.Style == engine.OneShot && r.fail == nil {
				l.begun(e)
			}
			l.endApply(s, e, r.object)
			l.applied(e.Scope, e.Key, e.Ticket, l.permitted(s, e), r)
			l.recordRefusedProject(s, e.Key.Name, r)
		}})
}

// itemJob names the job that applies or removes an item. Each item has its own job: two keys of an autonomous agent may
// name one object of the hub, and both must be answered.
func (l *agentSync) itemJob(scope string, key engine.Key) string {
	return l.name + "/" + scope + "/" + key.String()
}

// merge decides how the local object becomes what the owner has.
func (l *agentSync) merge(s *scope, ref kind.Ref, e engine.Apply, local *kind.Object) decision {
	if local != nil && !s.kind.Matches(local) {
		return decision{fail: &Failure{Code: engine.NameTaken, Message: "something else has the name " + ref.Name}}
	}
	if l.isStandby() {
		return l.mergeStandby(s, e, local)
	}
	if s.cfg.Name == kind.StatusScope && local != nil {
		local = l.recordApproval(local) // before its status changes: a user approves what it shows
	}
	if s.cfg.Name == kind.ApplicationScope && l.reconciler.cfg.Side == kind.Spoke && kind.IsFrozen(e.Content) {
		return l.leaveUnchanged(s, local)
	}
	if fail := l.refusedByPolicy(s, e); fail != nil {
		return decision{fail: fail}
	}
	if fail := l.refusedWithProject(s, e); fail != nil {
		return decision{fail: fail}
	}
	if l.holdsCreation(s, e, local) {
		return onHoldCreation
	}
	ownership, replaces := kind.Ownership{Owned: true}, false
	switch {
	case local == nil && s.cfg.Style == engine.Attached:
		return decision{fail: &Failure{Code: engine.NoObject, Message: "the object does not exist on this side"}}
	case local != nil && s.cfg.Style == engine.Mirror:
		// A replica of another object of that name: what happens to it is the end of that one, which the hub has deleted.
		was, uid := kind.ReadOwnership(local, &l.env), kind.ContentUID(e.Content)
		replaces = was.Owned && was.Source != "" && uid != "" && was.Source != uid
		claimed, instead := l.decideOwnership(s, e, local)
		if instead != nil {
			if replaces {
				return l.noteRemoval(e.Scope, e.Key, local, "", *instead)
			}
			return *instead
		}
		ownership = claimed
	}
	merged, err := l.mergeNarrowed(s, local, e, ownership)
	if err == nil && s.cfg.Style == engine.Mirror && (local == nil || !kind.Same(local, merged)) {
		ownership.SourceRevision, ownership.SourceGeneration = e.SourceRevision, e.SourceGeneration // a source revision alone is no reason to write
		if l.reconciler.cfg.Side == kind.Spoke {
			ownership.Version = e.Version
		}
		merged, err = l.mergeNarrowed(s, local, e, ownership)
	}
	if err != nil {
		return decision{fail: failure(err)}
	}
	switch {
	case local == nil:
		created := l.withReceipt(ref, e, merged)
		return decision{verb: Create, object: created, mustStore: l.mustStore(s, created)}
	case !kind.Same(local, merged):
		update := decision{verb: Update, object: merged, mustStore: l.mustStore(s, merged)}
		if replaces {
			return l.noteRemoval(e.Scope, e.Key, local, "", update)
		}
		return update
	}
	return decision{}
}

// withReceipt returns an Application that is created again with the receipts of the deleted one.
func (l *agentSync) withReceipt(ref kind.Ref, e engine.Apply, merged *kind.Object) *kind.Object {
	m, ok := l.reconciler.deleted[ref]
	if !ok || m.source != kind.ContentUID(e.Content) {
		return merged
	}
	merged = kind.WithReceipt(merged, m.record)
	if l.reconciler.cfg.Policy.ResyncRecreated && !m.ours {
		merged = kind.WithSync(merged)
	}
	return merged
}

// decideOwnership returns the ownership with which an existing object becomes or stays ours, or another decision.
func (l *agentSync) decideOwnership(s *scope, e engine.Apply, local *kind.Object) (kind.Ownership, *decision) {
	ownership := kind.ReadOwnership(local, &l.env)
	if ownership.Owned && l.peer.IsLater(s.cfg.Name, ownership.SourceGeneration, ownership.SourceRevision, e.View) {
		return ownership, &decision{fail: &Failure{Code: engine.Unavailable, Message: engine.StaleView}}
	}
	if !ownership.Owned && l.reconciler.cfg.Side == kind.Spoke {
		if s.cfg.Name == kind.ApplicationScope && kind.IsChild(local, &l.env) {
			return ownership, &decision{fail: &Failure{Code: engine.NameTaken, Message: "an Application of the workload cluster deploys an Application of this name there; rename one of the two"}}
		}
		if by := l.forbidsAdoption(local, e.Content); by != "" {
			return ownership, &decision{fail: &Failure{Code: engine.NotAdopted, Message: "it exists on the spoke, is not managed by this hub, and the adoption policy is never (" + by + ")"}}
		}
		if ownership.Foreign && e.StoreUntrusted {
			return ownership, &ofOtherHub
		}
		ownership.Adopted = ownership.Adopted || !ownership.Foreign
	}
	if ownership.Owned && l.recreates(s, ownership, e.Content) {
		instead := onHold
		if !e.StoreUntrusted {
			instead = l.discard(local)
		}
		return ownership, &instead
	}
	ownership.Owned, ownership.Foreign = true, false
	if ownership.Alias.Written != e.Version {
		ownership.Alias = kind.Alias{} // of another version
	}
	return ownership, nil
}

// forbidsAdoption returns what forbids that an object which we do not own is adopted, or "". The strictest wins: neither
// side can allow what the other one forbids.
func (l *agentSync) forbidsAdoption(local *kind.Object, content []byte) string {
	switch {
	case l.reconciler.cfg.Policy.AdoptNever:
		return "--adoption-policy of the agent"
	case l.reconciler.policy.Policy != nil && l.reconciler.policy.Policy.NeverAdopts():
		return "adoption of an AgentPolicy"
	case local.Annotation(kind.AdoptionPolicy) == "never":
		return "annotation of the spoke's object"
	case kind.ContentAnnotation(content, kind.AdoptionPolicy) == "never":
		return "annotation of the hub's object"
	}
	return ""
}

// onHold is the decision for a deletion that the hub alone may not order.
var onHold = decision{fail: &Failure{Code: engine.OnHold, Message: "the hub's API server was restored from a backup or replaced; deletions wait for a confirmation"}}

// onHoldCreation is the decision for an item whose replica was deleted here for a hub that knew more than this one may know.
var onHoldCreation = decision{fail: &Failure{Code: engine.OnHold, Message: "the hub ordered its deletion before, and may have lost that in a failover or a restore; it is created after a confirmation"}}

// holdsCreation reports whether an item is not created before a user confirms the hub's store.
func (l *agentSync) holdsCreation(s *scope, e engine.Apply, local *kind.Object) bool {
	if l.reconciler.cfg.Side != kind.Spoke || s.cfg.Style != engine.Mirror || local != nil && kind.ReadOwnership(local, &l.env).Owned {
		return false
	}
	return l.peer.HoldsCreation(s.cfg.Name, e.Key, kind.ContentUID(e.Content))
}

// noteRemoval records that a replica ends because the hub ordered it: it is deleted, released, or is terminating already.
func (l *agentSync) noteRemoval(scope string, key engine.Key, local *kind.Object, deletedUID string, d decision) decision {
	if l.reconciler.cfg.Side != kind.Spoke || d.fail != nil || d.gone {
		return d
	}
	replica := kind.ReadOwnership(local, &l.env)
	byUser, source := deletedByUser(replica, deletedUID), replica.Source
	if deletedUID != "" && !byUser {
		source = "" // the hub has deleted another object than the one that the replica names
	}
	l.step(engine.Removing{Scope: scope, Key: key, Source: source, ByUser: byUser})
	d.ends = true
	return d
}

// ofOtherHub is the decision for an object of another hub. That hub may be lost, and this one may be a new hub in its place
// that does not have its identity yet.
var ofOtherHub = decision{fail: &Failure{Code: engine.OnHold, Message: "it exists on the spoke, another hub wrote it, and this hub's API server is not the one that the agent knows; it is adopted after a confirmation"}}

// recreates reports whether an Application came from another source object of the same name and the policy is to
// replace it. An adopted object is never replaced.
func (l *agentSync) recreates(s *scope, ownership kind.Ownership, content []byte) bool {
	if s.cfg.Name != kind.ApplicationScope || ownership.Adopted || ownership.Source == kind.ContentUID(content) || l.reconciler.cfg.Side == kind.Hub {
		return false
	}
	switch kind.ContentAnnotation(content, kind.UIDMismatchPolicy) {
	case "recreate":
		return true
	case "upsert":
		return false
	}
	return l.reconciler.cfg.Policy.Recreate
}

// discard deletes an object without its workloads and without running its delete hooks. It decides again after each of
// its two writes.
func (l *agentSync) discard(local *kind.Object) decision {
	if fail := l.refusedDeletion(kind.ApplicationScope, local); fail != nil {
		return decision{fail: fail}
	}
	if stripped, changed := kind.StripArgoFinalizers(local); changed {
		return decision{verb: Update, object: stripped, again: true}
	}
	if local.IsDeleting() {
		return decision{fail: &Failure{Code: engine.Busy, Message: "it is being deleted", RetryAfter: engine.Second}}
	}
	return decision{verb: Delete, object: local, again: true}
}

// remove deletes an object that the owner no longer has. Workloads stay: absence never deletes one.
func (l *agentSync) remove(e engine.Remove) {
	s := l.scope(e.Scope)
	ref, err := s.kind.Target(e.Key, &l.env)
	if err == nil && l.env.Agent.Excludes(e.Scope) {
		err = &kind.RejectError{Code: engine.NotAllowed, Message: "the hub does not exchange objects of this kind with this agent (spec.kinds of its Agent)"}
	}
	if err != nil {
		l.applied(e.Scope, e.Key, e.Ticket, nil, result{fail: failure(err)})
		return
	}
	l.giveUp(s, e.Key)
	meant := l.storedVersion(s, l.reconciler.cache.get(ref))
	byUser := false
	decide := func(local *kind.Object) decision {
		byUser = local != nil && deletedByUser(kind.ReadOwnership(local, &l.env), e.DeletedUID)
		if local != nil && l.storedVersion(s, local) != meant {
			return decision{fail: &Failure{Code: engine.Unavailable, Message: "it has changed since its removal was decided"}}
		}
		if l.isStandby() {
			return l.removeOnStandby(s, local)
		}
		d := l.noteRemoval(e.Scope, e.Key, local, e.DeletedUID, l.decideRemoval(s, local, e.DeletedUID))
		if m, ok := l.reconciler.deleted[ref]; ok && d.gone {
			m.ours = true
			l.reconciler.deleted[ref] = m
		}
		return d
	}
	l.reconciler.enqueue(ref, job{name: l.itemJob(e.Scope, e.Key), why: "remove " + e.Scope, agent: l.name, origin: Origin{Scope: e.Scope, Key: e.Key}, open: true, decide: l.whileOpen(decide),
		wrote: func(o *kind.Object) { meant = l.storedVersion(s, o) },
		done: func(r result) {
			if byUser && r.fail == nil && r.object != nil && r.object.IsDeleting() && l.reconciler.cfg.Side == kind.Spoke {
				setNote(&l.ending, itemName{e.Scope, e.Key}, true)
			}
			l.applied(e.Scope, e.Key, e.Ticket, nil, r)
		}})
}

// storedVersion returns the version of what a replica object contains.
func (l *agentSync) storedVersion(s *scope, o *kind.Object) engine.Version {
	if o == nil {
		return engine.Version{}
	}
	held, ok := s.kind.ReadReplica(o, &l.env)
	if !ok {
		return engine.Version{}
	}
	return l.versionOf(s, o, held)
}

// whileOpen ends a job with its session. Another session, maybe with another principal replica, may decide otherwise.
func (l *agentSync) whileOpen(decide func(*kind.Object) decision) func(*kind.Object) decision {
	session := l.sessions
	return func(local *kind.Object) decision {
		if l.sessions != session {
			return decision{fail: &Failure{Code: engine.Unavailable, Message: "the session ended"}}
		}
		return decide(local)
	}
}

// deletedByUser reports whether a user deleted the object that a replica was written from.
func deletedByUser(replica kind.Ownership, deletedUID string) bool {
	return deletedUID != "" && deletedUID == replica.Source
}

// decideRemoval decides how an object that we own is deleted. Its workloads always stay. If a user deleted the owner's
// object that the local one was written from, the delete hooks of the local one run, as in Argo CD. Otherwise none runs:
// the user may have deleted a new object of the same name.
func (l *agentSync) decideRemoval(s *scope, local *kind.Object, deletedUID string) decision {
	if local == nil || !s.kind.Matches(local) {
		return decision{gone: true}
	}
	ownership := kind.ReadOwnership(local, &l.env)
	if !ownership.Owned {
		return decision{gone: true}
	}
	byUser := deletedByUser(ownership, deletedUID)
	remover, ok := s.kind.(kind.Remover)
	if !ok {
		return decision{gone: true}
	}
	if frozen := l.reconciler.policy.Frozen; frozen != "" && !local.IsDeleting() {
		return decision{fail: &Failure{Code: engine.NotAllowed, Message: frozen}}
	}
	// An adopted object existed before. It is released when it leaves the scope. Only an Application that a user deletes
	// on the hub is deleted here too.
	if deletable := byUser && s.cfg.Name == kind.ApplicationScope; remover.Keeps(local) && !deletable && !local.IsDeleting() {
		return decision{verb: Update, object: remover.Release(local, &l.env)}
	}
	if fail := l.refusedDeletion(s.cfg.Name, local); fail != nil {
		return decision{fail: fail}
	}
	if s.cfg.Name == kind.AppProjectScope && l.reconciler.cache.inUse(local.Name()) {
		return decision{fail: &Failure{Code: engine.InUse, Message: "an Application still uses this project", RetryAfter: 2 * engine.Second}}
	}
	strip := kind.StripArgoFinalizers
	if byUser {
		strip = kind.StripCascade
	}
	if stripped, changed := strip(local); changed {
		return decision{verb: Update, object: stripped, again: true}
	}
	if local.IsDeleting() {
		return decision{} // our part is done; finalizers of others stay
	}
	return decision{verb: Delete, object: local}
}

// applied reports the result to the engine. If content is nil, it was a removal.
func (l *agentSync) applied(scope string, key engine.Key, ticket uint64, content []byte, r result) {
	in := engine.Applied{Scope: scope, Key: key, Ticket: ticket, Written: r.written, Gone: r.gone, LeftUnchanged: r.left}
	if r.fail != nil {
		in.Code, in.Message, in.RetryAfter = r.fail.Code, r.fail.Message, r.fail.RetryAfter
	}
	s := l.scope(scope)
	in.Deleting = r.object != nil && r.object.IsDeleting() && !l.isStandby()
	if r.object != nil && s.cfg.Style != engine.OneShot {
		if held, ok := s.kind.ReadReplica(r.object, &l.env); ok && (held.Ownership.Owned || s.cfg.Style == engine.Attached) {
			in.Stored, in.Size = l.versionOf(s, r.object, held), len(held.Content)
			in.SourceRevision, in.SourceGeneration = held.Ownership.SourceRevision, held.Ownership.SourceGeneration
			in.Lost = droppedFields(s, content, held.Content)
		}
	}
	if r.replaced != nil && s.cfg.Style != engine.OneShot {
		if held, ok := s.kind.ReadReplica(r.replaced, &l.env); ok {
			in.Replaced = l.versionOf(s, r.replaced, held)
			in.Contested = droppedFields(s, content, held.Content)
		}
	}
	l.step(in)
}

// failure converts a kind's rejection to a failure.
func failure(err error) *Failure {
	if r, ok := errors.AsType[*kind.RejectError](err); ok {
		return &Failure{Code: r.Code, Message: r.Message}
	}
	return &Failure{Code: engine.Invalid, Message: err.Error()}
}
