package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// EventSubject returns how the hub knows an Application of the spoke: its key, and the UID on the side that owns it. It
// returns false if the Application is not replicated, or if the UID is that of an earlier one of the same name.
func (n *Reconciler) EventSubject(namespace, name, uid string) (key engine.Key, owner string, ok bool) {
	l := n.syncs[""]
	o := n.cache.get(kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name})
	if l == nil || o == nil || o.UID() != uid {
		return engine.Key{}, "", false
	}
	item, ok := l.publish(l.scope(kind.StatusScope), o)
	if !ok {
		return engine.Key{}, "", false
	}
	if l.env.Agent.Mode == kind.Managed {
		uid = kind.ReadOwnership(o, &l.env).Source
	}
	return item.Key, uid, uid != ""
}

// EventApplication returns the hub's Application that an agent reports an Event of, in its current session. It returns nil
// if the Application does not belong to the agent or is not the one with the owner's UID.
func (n *Reconciler) EventApplication(agent string, session uint64, key engine.Key, owner string) *kind.Object {
	l := n.syncs[agent]
	if l == nil || owner == "" || l.env.Agent.Excludes(kind.StatusScope) {
		return nil
	}
	if current, open := l.peer.Session(); !open || current != session {
		return nil
	}
	o := l.object(l.scope(kind.StatusScope), key)
	if o == nil {
		return nil
	}
	if placed, ok := kind.StatusKey(o, &l.env); !ok || placed != key {
		return nil
	}
	uid := kind.PublishedUID(o, &l.env)
	if l.env.Agent.Mode == kind.Autonomous {
		uid = kind.ReadOwnership(o, &l.env).Source
	}
	if uid != owner {
		return nil
	}
	return o
}
