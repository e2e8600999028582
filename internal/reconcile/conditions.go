package reconcile

import (
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file writes conditions on Applications: on the hub, and on the spoke's replica if its deletion is held.
//
// Whether an Application is frozen follows from the hub's objects alone. Every principal replica sets and clears that
// condition, with or without a session (frozen.go).
//
// All other conditions on the hub are written only by the principal replica with the agent's session. Another replica
// knows nothing or something stale, and the two would overwrite each other. The engine is asked each time that an
// Application is reconciled. A condition is cleared only if that is certain: the item was accepted in this session, or
// the whole scope is in sync.

// updateConditions writes an Application's conditions.
func (l *agentSync) updateConditions(key engine.Key, ref kind.Ref, o *kind.Object) {
	written, recently := l.conditionsWrittenAt[key]
	recently = recently && l.reconciler.now-written < requeueDelay
	if l.withConditions(key, o) == o {
		if !recently {
			delete(l.conditionsWrittenAt, key)
		}
		return
	}
	if recently {
		// Another principal replica may still have a stale session and differ. The two must not overwrite each other.
		l.reconciler.requeueAfter(ref, 0)
		return
	}
	setNote(&l.conditionsWrittenAt, key, l.reconciler.now)
	l.enqueueChange(ref, "conditions", "update conditions", func(local *kind.Object) *kind.Object { return l.withConditions(key, local) })
}

// withConditions returns the Application with our conditions. It returns the same object if they are right.
func (l *agentSync) withConditions(key engine.Key, o *kind.Object) *kind.Object {
	if l.reconciler.cfg.Side == kind.Hub {
		var frozen bool
		if o, frozen = l.withFrozen(o); frozen {
			return o
		}
	}
	if !l.live {
		return o
	}
	o = l.withHeld(key, o)
	if l.reconciler.cfg.Side == kind.Spoke {
		return o
	}
	o = l.withHydrator(o)
	if l.env.Agent.Mode == kind.Autonomous {
		o = kind.ShowDropped(o, &l.env, time.UnixMilli(int64(l.reconciler.now)))
	}
	r, wrong := l.peer.Rejection(kind.ApplicationScope, key)
	if !wrong {
		// Its status is not stored. All other reasons belong to the status itself, and the next one may be stored.
		r, wrong = l.peer.Rejection(kind.StatusScope, key)
		wrong = wrong && r.Code == engine.TooLarge
	}
	if reason := l.unsendable[itemName{kind.ApplicationScope, key}]; reason != "" {
		r, wrong = engine.Rejection{Code: engine.Invalid, Message: reason}, true
	}
	if !wrong {
		if l.inSync || l.peer.Accepted(kind.ApplicationScope, key) {
			return kind.ClearCondition(o, kind.ConditionError)
		}
		return o
	}
	if l.wasFrozen(r, o) {
		return o
	}
	message := string(r.Code) + ": " + r.Message
	o = kind.SetCondition(o, kind.ConditionError, message, time.UnixMilli(int64(l.reconciler.now)))
	if r.Code == engine.NotAdopted {
		o = kind.SetDegraded(o, message)
	}
	return o
}

// setLive records that the session has begun or is closed.
func (l *agentSync) setLive(live bool) {
	l.live, l.inSync, l.proven = live, false, nil
	l.sessions++
	clear(l.conditionsWrittenAt)
}

// onInSync checks conditions that an earlier session left.
func (l *agentSync) onInSync() {
	if !l.inSync {
		l.inSync = true
		l.updateAllConditions()
	}
}

// updateAllConditions updates every Application of this agent.
func (l *agentSync) updateAllConditions() {
	for _, o := range l.objects(kind.Applications) {
		l.updateConditionsOf(o)
	}
}

func (l *agentSync) updateConditionsOf(o *kind.Object) {
	key, placement, _ := kind.Place(o, &l.env)
	ok := placement == kind.Placed
	if placement == kind.Frozen {
		l.updateFrozen(key, refOf(kind.Applications, o), o)
		return
	}
	if l.reconciler.cfg.Side == kind.Spoke {
		key, ok = l.scope(kind.ApplicationScope).kind.Key(o, &l.env)
		ok = ok && kind.ReadOwnership(o, &l.env).Owned
	}
	if ok {
		l.updateConditions(key, refOf(kind.Applications, o), o)
	}
}

// heldChanged records which deletions of Applications are held on this side. On the hub of a managed agent, the agent
// holds them.
func (l *agentSync) heldChanged(f engine.Event) {
	if l.scope(kind.ApplicationScope).cfg.Role != engine.Replica {
		return
	}
	if l.heldApplications = f.Held; f.Type == engine.HoldEnded {
		l.heldApplications = nil
	}
	l.updateAllConditions()
}

// withHeld returns the Application with or without the condition that its deletion is held. It returns the same object
// if that is right. An earlier session may have left the condition, so it is cleared only when all holds are known.
func (l *agentSync) withHeld(key engine.Key, o *kind.Object) *kind.Object {
	switch {
	case l.heldApplications != nil && l.peer.DeletionHeld(kind.ApplicationScope, key):
		return kind.SetCondition(o, kind.ConditionHeld, l.heldMessage(), time.UnixMilli(int64(l.reconciler.now)))
	case l.inSync:
		return kind.ClearCondition(o, kind.ConditionHeld)
	}
	return o
}

func (l *agentSync) heldMessage() string {
	owner := "The hub"
	if l.reconciler.cfg.Side == kind.Hub {
		owner = "The cluster of agent " + l.name
	}
	if l.heldApplications.Cause == engine.CauseFleet {
		return fmt.Sprintf("%s no longer has this Application. Its deletion is held, as one of %d: %s", owner, l.heldApplications.Count, l.heldApplications.Reason)
	}
	return fmt.Sprintf("%s no longer has this Application. Its deletion is held, as one of %d: %s. To confirm, on the hub: kubectl annotate agents.argocd-agent.argoproj-labs.io -n %s %s --overwrite %s=%s",
		owner, l.heldApplications.Count, l.heldApplications.Reason, l.env.HubArgoNamespace, l.env.Agent.Name, kind.Confirmation, l.heldApplications.ID)
}
