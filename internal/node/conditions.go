package node

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file shows on the hub's Applications what is wrong with them.
//
// Only the replica of the principal that has the agent's session does: another
// one knows nothing, or what was true in a session of its own long ago, and the
// two would take turns. And it takes back only what it knows to be over: an item
// that was cured in this session, or any other once the whole scope is proven.

// tendConditions makes an Application's conditions what they should be.
func (l *link) tendConditions(key engine.Key, ref kind.Ref, o *kind.Object) {
	written, recently := l.shown[key]
	recently = recently && l.node.now-written < tendAfter
	if l.withConditions(key, o) == o {
		delete(l.cured, key)
		if !recently {
			delete(l.shown, key)
		}
		return
	}
	if recently {
		// Another replica may still have a session that it does not know to be
		// over, and think otherwise. The two must not outdo each other.
		l.node.tendLater(ref, 0)
		return
	}
	l.shown[key] = l.node.now
	l.node.enqueue(ref, job{name: l.name + "/conditions", why: "show what is wrong",
		decide: func(local *kind.Object) decision {
			if local == nil {
				return decision{}
			}
			if shown := l.withConditions(key, local); shown != local {
				return decision{verb: Update, object: shown}
			}
			return decision{}
		}, done: l.orTendLater(ref)})
}

// withConditions returns the Application with our conditions as they should be:
// the same object if they are.
func (l *link) withConditions(key engine.Key, o *kind.Object) *kind.Object {
	if !l.live {
		return o
	}
	f, wrong := l.rejects[key]
	if !wrong {
		if l.proven || l.cured[key] {
			return kind.ClearCondition(o, kind.ConditionError)
		}
		return o
	}
	message := string(f.Code) + ": " + f.Message
	o = kind.SetCondition(o, kind.ConditionError, message, time.UnixMilli(int64(l.node.now)))
	if f.Code == engine.NotAdopted {
		o = kind.SetDegraded(o, message)
	}
	return o
}

// setLive notes that the session has begun, or is over.
func (l *link) setLive(live bool) {
	l.live, l.proven = live, false
	l.sessions++
	clear(l.cured)
	clear(l.shown)
}

// provenEqual looks at conditions that were left by an earlier session.
func (l *link) provenEqual() {
	if l.proven || l.node.cfg.Side != kind.Hub {
		return
	}
	l.proven = true
	for _, o := range sortedObjects(l.node.cache.tables[kind.Applications].objects) {
		if key, ok := kind.Reports(o, &l.world); ok {
			l.tendConditions(key, refOf(kind.Applications, o), o)
		}
	}
}
