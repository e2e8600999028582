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
	if commands.Unstamped {
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

// stamp gives a new command its ID. The ID is made of when and what: two clicks
// are two commands, whichever replica of the principal sees them first.
func (l *link) stamp(local *kind.Object) decision {
	if local == nil {
		return decision{}
	}
	if c, _ := kind.Pending(local, &l.world); !c.Unstamped {
		return decision{}
	}
	stamped, err := kind.Stamp(local, commandID(l.node.now, local))
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

// hubFact shows on the hub's Application what the spoke says of it.
func (l *link) hubFact(f engine.Fact) {
	switch {
	case f.Event == engine.Ended && f.Scope == kind.ApplicationScope:
		l.ended(f.Key)
		return
	case f.Scope == kind.CommandScope && f.Event == engine.Rejected && !f.Code.Retryable():
		l.refuseCommand(f)
		return
	case f.Scope != kind.ApplicationScope:
		return
	case f.Event == engine.Rejected:
		if !l.isFrozen(f.Key) { // else the hub itself has decided so, and says more
			note(&l.rejects, f.Key, f)
		}
	case f.Event == engine.Cured:
		delete(l.rejects, f.Key)
		note(&l.cured, f.Key, true)
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

// refuseCommand ends a command that the spoke will never carry out.
func (l *link) refuseCommand(f engine.Fact) {
	o := l.localApplication(f.Key)
	if o == nil {
		return
	}
	ref := refOf(kind.Applications, o)
	commands, _ := kind.Pending(o, &l.world)
	id := commands.ID
	l.node.enqueue(ref, job{name: l.name + "/refuse", why: "the spoke refuses the command", agent: l.name,
		decide: func(local *kind.Object) decision {
			if local == nil {
				return decision{}
			}
			if refused, changed := kind.Refuse(local, id, f.Message, time.UnixMilli(int64(l.node.now))); changed {
				return decision{verb: Update, object: refused}
			}
			return decision{}
		}, done: l.orTendLater(ref)})
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
