package reconcile

import (
	"slices"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file is what differs between a hub and its standby. A Reconciler of the mode standby has the kinds of
// kind.StandbyKinds and no others. It executes no commands, writes no conditions and restores nothing without a session.

// isStandby reports whether this Reconciler is one side of the connection between an active hub and its standby.
func (n *Reconciler) isStandby() bool { return n.cfg.Mode == kind.Standby }

func (l *agentSync) isStandby() bool { return l.env.Agent.Mode == kind.Standby }

// mergeStandby decides how the object of a standby becomes what the active hub has.
func (l *agentSync) mergeStandby(s *scope, e engine.Apply, local *kind.Object) decision {
	deleting, finalizers := kind.IsDeletingContent(e.Content)
	if deleting && len(finalizers) == 0 {
		return decision{fail: &Failure{Code: engine.Busy, Message: "it is being deleted on the active hub", RetryAfter: engine.Second}}
	}
	ownership := kind.Ownership{Owned: true}
	if local != nil {
		claimed, fail := l.claimOnStandby(s, e, local)
		if fail != nil {
			return decision{fail: fail}
		}
		ownership = claimed
		if local.IsDeleting() && (!deleting || ownership.Source != kind.ContentUID(e.Content)) || kind.ReplacesOnStandby(s.kind.Resource(), local, e.Content) {
			return l.discardOnStandby(local) // then it is created again
		}
	}
	merged, err := s.kind.Merge(local, e.Key, e.Content, nil, ownership, &l.env)
	if err == nil && (local == nil || !kind.Same(local, merged)) {
		ownership.SourceRevision, ownership.SourceGeneration = e.SourceRevision, e.SourceGeneration // a source revision alone is no reason to write
		merged, err = s.kind.Merge(local, e.Key, e.Content, nil, ownership, &l.env)
	}
	switch {
	case err != nil:
		return decision{fail: failure(err)}
	case local == nil:
		return decision{verb: Create, object: merged, again: deleting}
	case !kind.Same(local, merged):
		return decision{verb: Update, object: merged, again: deleting}
	case deleting && !local.IsDeleting():
		return decision{verb: Delete, object: local} // its finalizers keep it, as on the active hub
	}
	return decision{}
}

// claimOnStandby returns the ownership with which an object of a standby may be written, or why it may not.
func (l *agentSync) claimOnStandby(s *scope, e engine.Apply, local *kind.Object) (kind.Ownership, *Failure) {
	ownership := kind.ReadOwnership(local, &l.env)
	switch {
	case ownership.Owned && l.peer.IsLater(s.cfg.Name, ownership.SourceGeneration, ownership.SourceRevision, e.View):
		return ownership, &Failure{Code: engine.Unavailable, Message: engine.StaleView}
	case ownership.Owned:
		return ownership, nil
	case ownership.Foreign:
		return ownership, &Failure{Code: engine.NameTaken, Message: "it exists on the standby and is a copy from a hub of another group; delete it there"}
	}
	adopted, ok := kind.AdoptsOnStandby(s.kind.Resource(), local, e.Content, &l.env)
	if !ok {
		return ownership, &Failure{Code: engine.NameTaken, Message: "the standby has an object of its own with this name; delete it there, or rename one of the two"}
	}
	return kind.Ownership{Owned: true, Adopted: adopted, Source: kind.SourceOf(local, &l.env)}, nil
}

// discardOnStandby deletes an object of a standby, in up to two writes. Nothing else is deleted with it: no controller acts
// on finalizers there, and no agent is connected.
func (l *agentSync) discardOnStandby(local *kind.Object) decision {
	if stripped, changed := kind.StripFinalizers(local); changed {
		return decision{verb: Update, object: stripped, again: true}
	}
	if local.IsDeleting() {
		return decision{fail: &Failure{Code: engine.Busy, Message: "it is being deleted", RetryAfter: engine.Second}}
	}
	return decision{verb: Delete, object: local}
}

// removeOnStandby decides how an object that the active hub no longer has is deleted.
func (l *agentSync) removeOnStandby(s *scope, local *kind.Object) decision {
	if local == nil || !s.kind.Matches(local) || !kind.ReadOwnership(local, &l.env).Owned {
		return decision{gone: true}
	}
	if remover, ok := s.kind.(kind.Remover); ok && remover.Keeps(local) && !local.IsDeleting() {
		return decision{verb: Update, object: remover.Release(local, &l.env)}
	}
	if d := l.discardOnStandby(local); d.verb != Update || d.object == nil {
		return d
	}
	return l.discardOnStandby(kind.ClaimOnStandby(local, &l.env))
}

// receivedBy returns up to which revision of this cluster the active hub has received its objects, or 0 if that is unknown.
// It is unknown if this cluster was restored from a backup since: new objects then have revisions that were used before.
func (l *agentSync) receivedBy(m *engine.Welcome) uint64 {
	n := l.reconciler
	if !n.isStandby() || m.Predecessor.UID != n.cfg.ClusterUID {
		return 0
	}
	n.restoredSince = n.restoredSince || l.fresh.Revision < m.Predecessor.Revision || n.lacksMark(m.Predecessor.Mark)
	if n.restoredSince {
		return 0
	}
	return m.Predecessor.Revision
}

// lacksMark reports whether this cluster lacks a history mark that it has recorded for another hub.
func (n *Reconciler) lacksMark(m engine.HistoryMark) bool {
	if m.Number == 0 {
		return false
	}
	for _, o := range n.cache.tables[kind.Agents].objects {
		if rawjson.Text(o.Get("status"), "historyRecord") == m.Record {
			number, err := strconv.ParseUint(string(o.Get("status", "historyMark")), 10, 64)
			return err != nil || number < m.Number
		}
	}
	return true
}

// Received returns the active hub's store and the revision up to which a standby has received everything of it in this
// session. The result is zero if that is unknown.
func (n *Reconciler) Received() engine.Store {
	l := n.syncs[""]
	if l == nil || !l.live || !n.isStandby() {
		return engine.Store{}
	}
	store, untrusted := l.peer.Other()
	if untrusted {
		return engine.Store{}
	}
	var all []uint64
	for _, s := range l.scopes {
		all = append(all, l.proven[engine.Key{Name: s.cfg.Name}])
	}
	if store.Revision = slices.Min(all); store.Revision == 0 {
		return engine.Store{}
	}
	return store
}

// recordProven records that a scope had everything up to a revision of the owner's store. Equal digests are not enough:
// what is rejected or held, or loses fields, is agreed on and not received.
func (l *agentSync) recordProven(f engine.Event) {
	if !l.isStandby() || l.reconciler.cfg.Side != kind.Spoke {
		return
	}
	for _, s := range l.peer.Status().Scopes {
		if s.Name == f.Scope && s.Rejected+s.Held+s.Lossy == 0 {
			setNote(&l.proven, engine.Key{Name: f.Scope}, f.Revision)
		}
	}
	if oldest, open := l.openScopes(); open == 0 {
		l.equalAt = max(l.equalAt, oldest)
	}
}

// Receiving is how far a standby is behind the active hub.
type Receiving struct {
	EqualAt    engine.Time // when it last had all objects; 0 if not since the process started
	OpenScopes int         // scopes that are not proven equal in this session, or have items that were not received
}

// Receiving returns how far a standby is behind. On an active hub it is zero.
func (n *Reconciler) Receiving() Receiving {
	l := n.syncs[""]
	if l == nil || !n.isStandby() || n.cfg.Side != kind.Spoke {
		return Receiving{}
	}
	_, open := l.openScopes()
	return Receiving{EqualAt: l.equalAt, OpenScopes: open}
}

// openScopes returns the number of scopes that a standby has not received, and when the others were proven equal at least.
func (l *agentSync) openScopes() (oldest engine.Time, open int) {
	for _, s := range l.peer.Status().Scopes {
		if !l.live || s.InSyncAt == 0 || s.Rejected+s.Held+s.Lossy+s.Diverged > 0 {
			open++
		} else if oldest == 0 || s.InSyncAt < oldest {
			oldest = s.InSyncAt
		}
	}
	return oldest, open
}
