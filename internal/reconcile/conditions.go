package reconcile

import (
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file shows on Applications what is wrong with them: on the hub's, and on
// the spoke's copy that its deletion is held back.
//
// That an Application is frozen follows from the hub's objects alone: every
// replica of the principal shows it, and removes it when it is over, with or
// without a session; see frozen.go. Of everything else on the hub,
// only the replica of the principal that has the agent's session does: another
// one knows nothing, or what was true in a session of its own long ago, and the
// two would take turns. What is wrong is asked of the engine each time that an
// Application is looked at. And only what is known to be over is taken back: of an
// item that was accepted in this session, or of any once the whole scope is proven.

// updateConditions makes an Application's conditions what they should be.
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
		// Another replica may still have a session that it does not know to be
		// over, and think otherwise. The two must not outdo each other.
		l.reconciler.requeueAfter(ref, 0)
		return
	}
	setNote(&l.conditionsWrittenAt, key, l.reconciler.now)
	l.reconciler.enqueue(ref, job{name: l.name + "/conditions", why: "show what is wrong", agent: l.name,
		decide: func(local *kind.Object) decision {
			if local == nil {
				return decision{}
			}
			if shown := l.withConditions(key, local); shown != local {
				return decision{verb: Update, object: shown}
			}
			return decision{}
		}, done: l.requeueOnFailure(ref)})
}

// withConditions returns the Application with our conditions as they should be:
// the same object if they are.
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
	if l.env.Agent.Mode == kind.Autonomous {
		o = kind.ShowDropped(o, &l.env, time.UnixMilli(int64(l.reconciler.now)))
	}
	r, wrong := l.peer.Rejection(kind.ApplicationScope, key)
	if reason := l.unsendable[itemName{kind.ApplicationScope, key}]; reason != "" {
		r, wrong = engine.Rejection{Code: engine.Invalid, Message: reason}, true
	}
	if !wrong {
		if l.inSync || l.peer.Accepted(kind.ApplicationScope, key) {
			return kind.ClearCondition(o, kind.ConditionError)
		}
		return o
	}
	if wasFrozen(r, o) {
		return o
	}
	message := string(r.Code) + ": " + r.Message
	o = kind.SetCondition(o, kind.ConditionError, message, time.UnixMilli(int64(l.reconciler.now)))
	if r.Code == engine.NotAdopted {
		o = kind.SetDegraded(o, message)
	}
	return o
}

// setLive notes that the session has begun, or is over.
func (l *agentSync) setLive(live bool) {
	l.live, l.inSync = live, false
	l.sessions++
	clear(l.conditionsWrittenAt)
}

// onInSync looks at conditions that were left by an earlier session.
func (l *agentSync) onInSync() {
	if !l.inSync {
		l.inSync = true
		l.updateAllConditions()
	}
}

// updateAllConditions looks at every Application of this agent.
func (l *agentSync) updateAllConditions() {
	for _, o := range l.objects(kind.Applications) {
		l.tendConditionsOf(o)
	}
}

func (l *agentSync) tendConditionsOf(o *kind.Object) {
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

// heldChanged takes note of which deletions of Applications are held back on
// this side. (On the hub of a managed agent it is the agent that holds them.)
func (l *agentSync) heldChanged(f engine.Event) {
	if l.scope(kind.ApplicationScope).cfg.Role != engine.Replica {
		return
	}
	if l.heldApplications = f.Held; f.Type == engine.HoldEnded {
		l.heldApplications = nil
	}
	l.updateAllConditions()
}

// withHeld returns the Application with the condition that its deletion is held
// back, or without it: the same object if that is as it is. An earlier session
// may have left it, so it goes only when all are known that are held.
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
		return fmt.Sprintf("%s does not have this Application any more. Its deletion here is held back, as one of %d: %s", owner, l.heldApplications.Count, l.heldApplications.Reason)
	}
	return fmt.Sprintf("%s does not have this Application any more. Its deletion here is held back, as one of %d: %s. To let them go, on the hub: kubectl annotate agents.argocd-agent.argoproj-labs.io -n %s %s --overwrite %s=%s",
		owner, l.heldApplications.Count, l.heldApplications.Reason, l.env.HubArgoNamespace, l.env.Agent.Name, kind.Confirmation, l.heldApplications.ID)
}
