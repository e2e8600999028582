package node

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what the hub does for objects beside replicating them.

// refresh is a refresh that somebody asked for on the hub's Application, and
// the name under which it goes out and comes back.
type refresh struct {
	refresh, hydrate string // as the annotations have them
	nonce            string
}

// refreshNonce implements kind.World.RefreshNonce.
func (l *link) refreshNonce(key engine.Key) string { return l.refreshes[key].nonce }

// byDestination returns the links that an Application names as its destination,
// by name or by URL.
func (n *Node) byDestination(o *kind.Object) []*link {
	to := kind.DestinationOf(o)
	if l := n.links[to]; l != nil && to != "" {
		return []*link{l}
	}
	return n.byURL[to]
}

func (n *Node) tendHub(r kind.Resource, o *kind.Object) {
	switch r {
	case kind.Applications:
		for _, l := range n.concerned(r, nil, o) {
			l.tendApplication(o)
		}
	case kind.AppProjects:
		n.tendProject(o)
	}
}

// tendApplication sees to commands, finalizers and conditions.
func (l *link) tendApplication(o *kind.Object) {
	key, placement, _ := kind.Place(o, &l.world)
	ref := refOf(kind.Applications, o)
	if placement != kind.Placed {
		if placement == kind.Frozen {
			l.tendFrozen(key, ref, o)
		}
		return
	}
	delete(l.frozen, key)
	commands, _ := kind.Pending(o, &l.world)
	if !commands.Unstamped {
		delete(l.unstamped, key)
	} else {
		l.noteUnstamped(key, o)
		l.node.enqueue(ref, job{name: l.name + "/stamp", why: "give the command an ID", agent: l.name, decide: l.stamp, done: l.orTendLater(ref)})
	}
	if uid := l.ends[key]; uid != "" {
		delete(l.ends, key)
		if uid == o.UID() {
			l.ended(key)
		}
	}
	if l.world.Agent.Mode == kind.Autonomous && o.IsDeleting() && kind.ReadMark(o, &l.world).Owned {
		l.node.enqueue(ref, job{name: l.name + "/let-go", why: "the copy goes, to be put back", agent: l.name, decide: l.letGo, done: l.orTendLater(ref)})
	}
	if !commands.Empty() {
		l.tendRefusal(key, ref, o)
	}
	l.tendConditions(key, ref, o)
}

// noteRefresh gives a refresh that has appeared on the hub's Application a name,
// before the command that goes with it is published.
func (l *link) noteRefresh(o *kind.Object) {
	key, ok := kind.Reports(o, &l.world)
	if !ok {
		if key, ok = l.scope(kind.CommandScope).kind.Key(o, &l.world); ok {
			delete(l.refreshes, key)
		}
		return
	}
	c, _ := kind.Pending(o, &l.world)
	if !c.NeedsNonce() {
		delete(l.refreshes, key)
		return
	}
	before := l.refreshes[key]
	now := refresh{refresh: c.Refresh, hydrate: c.Hydrate, nonce: before.nonce}
	asked := func(was, is string) bool { return is != "" && is != was }
	if asked(before.refresh, now.refresh) || asked(before.hydrate, now.hydrate) { // else a part of it is done
		l.nonces++
		now.nonce = nonce(l.node.now, l.nonces)
	}
	if now != before {
		note(&l.refreshes, key, now)
	}
}

// stamp gives a new command its ID.
func (l *link) stamp(local *kind.Object) decision {
	if local == nil {
		return decision{}
	}
	key, ok := kind.Reports(local, &l.world)
	if c, _ := kind.Pending(local, &l.world); !ok || !c.Unstamped {
		return decision{}
	}
	stamped, err := kind.Stamp(local, commandID(local, l.noteUnstamped(key, local)))
	if err != nil {
		return decision{}
	}
	return decision{verb: Update, object: stamped}
}

// letGo removes the finalizers that keep a copy on the hub from going.
func (l *link) letGo(local *kind.Object) decision {
	if local == nil || !local.IsDeleting() || !kind.ReadMark(local, &l.world).Owned {
		return decision{}
	}
	if stripped, changed := kind.StripFinalizers(local); changed {
		return decision{verb: Update, object: stripped}
	}
	return decision{}
}

// hubFact shows on the hub's Application what the spoke says of it. What that is,
// tendApplication asks the engine: also when it looks again because a write failed.
func (l *link) hubFact(f engine.Fact) {
	switch {
	case f.Event == engine.Ended && f.Scope == kind.ApplicationScope:
		l.ended(f.Key)
		return
	case f.Scope != kind.ApplicationScope && f.Scope != kind.CommandScope:
		return
	}
	if o := l.localApplication(f.Key); o != nil {
		l.tendApplication(o)
	}
}

func (l *link) localApplication(key engine.Key) *kind.Object {
	ref, err := l.scope(kind.CommandScope).kind.Target(key, &l.world)
	if err != nil {
		return nil
	}
	return l.node.cache.get(ref)
}

// ended lets an Application go whose resources the spoke has deleted.
func (l *link) ended(key engine.Key) {
	o := l.localApplication(key)
	if o == nil {
		return
	}
	ref := refOf(kind.Applications, o)
	uid := o.UID()
	l.node.enqueue(ref, job{name: l.name + "/ended", why: "the spoke has deleted it", agent: l.name,
		decide: func(local *kind.Object) decision {
			if local == nil || local.UID() != uid || !local.IsDeleting() {
				return decision{}
			}
			if stripped, changed := kind.StripCascade(local); changed {
				return decision{verb: Update, object: stripped}
			}
			return decision{}
		},
		done: func(r result) {
			if r.fail != nil {
				note(&l.ends, key, uid)
				l.node.tendLater(ref, r.fail.RetryAfter)
			}
		}})
}

// tendRefusal ends a command that the spoke will never carry out.
func (l *link) tendRefusal(key engine.Key, ref kind.Ref, o *kind.Object) {
	if _, ok := l.refusal(key, o); !ok {
		return
	}
	l.node.enqueue(ref, job{name: l.name + "/refuse", why: "the spoke refuses the command", agent: l.name,
		decide: func(local *kind.Object) decision {
			reason, ok := l.refusal(key, local)
			if !ok {
				return decision{}
			}
			commands, _ := kind.Pending(local, &l.world)
			if refused, changed := kind.Refuse(local, commands.ID, reason, time.UnixMilli(int64(l.node.now))); changed {
				return decision{verb: Update, object: refused}
			}
			return decision{}
		}, done: l.orTendLater(ref)})
}

// refusal returns why the spoke will never carry out the commands that a hub's
// Application has now: they cannot be sent, or it has refused them. False: it has
// said nothing of the kind in this session, or about other commands.
func (l *link) refusal(key engine.Key, o *kind.Object) (string, bool) {
	if o == nil {
		return "", false
	}
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

func (l *link) orTendLater(ref kind.Ref) func(result) {
	return func(r result) {
		if r.fail != nil {
			l.node.tendLater(ref, r.fail.RetryAfter)
		}
	}
}

// tendProject lets a project go that is being deleted on the hub and that
// nobody uses any more: there is no controller on the hub that would.
func (n *Node) tendProject(o *kind.Object) {
	if !o.IsDeleting() || n.cache.inUse(o.Name()) || len(o.Finalizers()) == 0 {
		return
	}
	ref := refOf(kind.AppProjects, o)
	n.enqueue(ref, job{name: "let-go", why: "no Application uses it any more",
		decide: func(local *kind.Object) decision {
			if local == nil || !local.IsDeleting() || n.cache.inUse(local.Name()) {
				return decision{}
			}
			if stripped, changed := kind.StripCascade(local); changed {
				return decision{verb: Update, object: stripped}
			}
			return decision{}
		},
		done: func(r result) {
			if r.fail != nil {
				n.tendLater(ref, r.fail.RetryAfter)
			}
		}})
}

// afterLoss looks at what an object's end makes possible.
func (n *Node) afterLoss(r kind.Resource, old *kind.Object) {
	if n.cfg.Side != kind.Hub || r != kind.Applications {
		return
	}
	if p := n.cache.get(kind.Ref{Resource: kind.AppProjects, Namespace: n.cfg.ArgoNamespace, Name: kind.ProjectOf(old)}); p != nil {
		n.tendProject(p)
	}
}
