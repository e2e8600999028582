package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file checks what two hubs may do. One hub writes to an agent at a time, a hub that is not active serves no agent, and
// a standby deletes nothing that the active hub has not deleted.

const standbyKey = "argocd-agent.argoproj-labs.io/standby"

// guardStates checks that two active hubs never have the same generation.
func (g *group) guardStates() {
	a, b := g.sites[0].hub(), g.sites[1].hub()
	g.w.check(a.Role != hubstate.Active || b.Role != hubstate.Active || a.Generation != b.Generation, "both hubs are active with generation %d", a.Generation)
}

// overdue reports whether a process had the time to hear of the role of its hub.
func (p *process) overdue() bool {
	c := p.cluster
	return p.w.now > max(p.site.changedAt, c.downUntil, c.faultUntil, c.lagUntil+c.lag, p.pausedUntil)+30*second
}

// guardSend checks that a hub that is not active sends nothing to agents.
func (g *group) guardSend(e *end, m engine.Message) {
	if _, ended := m.(engine.Bye); ended || e == e.c.agent || e.c.spoke == nil {
		return
	}
	g.w.check(e.p.site.isActive() || !e.p.overdue(), "%s serves %s, and its hub is not active", e.p.name, e.c.name())
}

// opened is a session as the agent sees it.
func (g *group) opened(p *process, f engine.Event) {
	now := uint64(0)
	for _, id := range sortedIDs(p.conns) {
		e := p.conns[id]
		e.opened, now = true, e.c.generation
		g.w.check(now >= e.atLeast, "%s follows a hub of generation %d, and its Lease has %d", p.name, now, e.atLeast)
	}
	g.w.check(now >= p.generation, "%s follows a hub of generation %d after one of generation %d", p.name, now, p.generation)
	p.generation = now
	s := p.spoke
	for _, c := range g.w.hubs() {
		if c.st.uid == f.Store.UID && now > s.generation {
			s.generation = now
			g.w.tracef("%s: follows %s", p.name, c.name)
			if s.follows != c {
				g.w.ledger.leaveStore(s)
			}
			s.follows = c
			g.w.ledger.switched(s) // also if it is the same one: it may have been a standby in between
		}
	}
}

// switched is an agent that begins to follow another hub. No user has given up what the new one lacks.
func (l *ledger) switched(s *spoke) {
	l.recounts = true
	defer func() { l.recounts = false }()
	if s.managed() {
		for key := range l.now {
			if strings.HasSuffix(key, "@"+s.agent.Name) {
				delete(l.now, key)
			}
		}
	}
	c := s.follows
	view := l.w.group.views[c]
	for uid := range view.cascade {
		l.cascade[uid], l.cascadeAt[uid] = true, view.cascadeAt[uid]
	}
	for _, all := range []struct{ to, from map[string]bool }{{l.deleted, view.deleted}, {l.goneFromHub, view.goneFromHub}, {l.might, view.might}, {l.cascadeFrozen, view.cascadeFrozen}} {
		maps.Copy(all.to, all.from)
	}
	for key := range view.placed {
		if strings.HasSuffix(key, "@"+s.agent.Name) {
			l.placed[key] = true
		}
	}
	for _, r := range l.w.resources() {
		for _, o := range c.st.list(r) {
			l.track(c, change{ref: refOf(r, o), new: o})
		}
	}
	for key := range view.left {
		if uid, agent, _ := strings.Cut(key, "@"); agent == s.agent.Name && s.managed() {
			l.left[key], l.gaveUp[uid] = true, true
		}
	}
}

// observe follows a change as if all agents followed this hub: one that will be promoted, or was and has no agents yet.
func (g *group) observe(c *cluster, who actor, ch change) {
	var follow []*cluster
	for _, s := range g.w.spokes {
		follow = append(follow, s.follows)
		s.follows = c
	}
	g.views[c].track(c, ch)
	if who.proc == nil && removal(ch) {
		g.views[c].deletedByUser(c, ch)
	}
	for i, s := range g.w.spokes {
		s.follows = follow[i]
	}
}

// received is a write of a standby whose hub was active before. A process of it that has not heard of the demotion sends the
// object to agents that do not follow the active hub yet, which has it too.
func (l *ledger) received(c *cluster, ch change) {
	if ch.new == nil {
		return
	}
	view := l.w.group.views[c]
	l.turn++
	for _, s := range l.w.spokes {
		if s.hub() != c {
			continue
		}
		l.regain(s, c, ch)
		if key := c.id(ch.new) + "@" + s.agent.Name; view.placed[key] {
			l.placed[key] = true
		}
		if spec := specOf(c, ch.new) + "@" + s.agent.Name; view.might[spec] {
			l.might[spec] = true
		}
	}
}

// regain notes that a hub that was demoted gets an older spec from the other hub, which was promoted although it lacks the newer
// one: an operator has accepted this loss, or a Lease decided. If the hub is promoted again, an agent that has not met the other
// hub in between finds the older spec at a later revision of the store that it follows, and trusts it. ARCHITECTURE.md lists
// this as not covered. Only for such an agent the spec counts as new, and only until users come to another one.
func (l *ledger) regain(s *spoke, c *cluster, ch change) {
	if ch.old == nil || ch.ref.Resource != kind.Applications || !l.w.group.siteOf(c).other().lossy {
		return
	}
	from, to := unquote(ch.old.Get("spec", "source", "targetRevision")), unquote(ch.new.Get("spec", "source", "targetRevision"))
	if source := c.id(ch.new); source == c.id(ch.old) && l.goesBack(s.agent.Name, source, from, to) {
		l.regained[specOf(c, ch.new)+"@"+s.agent.Name] = l.turn
	}
}

// leaveStore is an agent that begins to follow another store. What the former one got back is no excuse for this one.
func (l *ledger) leaveStore(s *spoke) {
	for key := range l.regained {
		if strings.HasSuffix(key, "@"+s.agent.Name) {
			delete(l.regained, key)
		}
	}
}

// concerns reports whether a change on a hub is one for an agent that follows this hub.
func (l *ledger) concerns(c *cluster, ch change) bool {
	if !c.hub || l.w.group == nil {
		return true
	}
	o := ch.new
	if o == nil {
		o = ch.old
	}
	return slices.ContainsFunc(l.w.spokes, func(s *spoke) bool {
		return s.hub() == c && (l.placed[c.id(o)+"@"+s.agent.Name] || l.w.claims(s, ch.ref, o))
	})
}

// changed follows a change, and guards it if it is the write of a standby. It reports whether others have to look at it.
func (g *group) changed(c *cluster, who actor, ch change) bool {
	byReceiver := who.proc != nil && who.proc.part == receiver
	if c.hub && ch.ref.Resource == kind.ConfigMaps && ch.ref.Name == hubstate.ConfigMap {
		return false // guardStates looks at it
	}
	if c.hub {
		g.observe(c, who, ch)
		if byReceiver {
			g.guardReceiver(who, ch)
			g.w.ledger.received(c, ch)
		}
		switch {
		case ch.new != nil && (!ch.new.IsDeleting() || byReceiver):
			g.had[c][origin(ch.new)] = true
			if g.gone[c][origin(ch.new)] != 0 {
				delete(g.gone[c], origin(ch.new))
				g.back[origin(ch.new)] = g.w.now
			}
		case !byReceiver:
			g.gone[c][origin(ch.old)] = ch.rev
		}
		return !byReceiver
	}
	if who.proc != nil && ch.ref.Resource != leases {
		g.guardWriter(who, ch)
		g.guardReturn(c.spoke, who, ch)
	}
	return true
}

// guardReturn checks that an agent does not create again what it has deleted for one hub, because another hub, which was
// promoted since, still has it. A user may agree to that.
func (g *group) guardReturn(s *spoke, who actor, ch change) {
	if ch.ref.Resource != kind.Applications || !s.managed() || who.generation != s.generation {
		return
	}
	switch {
	case removal(ch) && ownedByAgent(ch.old) && g.gone[s.follows][ch.old.Annotation(sourceKey)] != 0:
		g.ended[ch.old.Annotation(sourceKey)+"@"+s.agent.Name] = s.follows
	case ch.old == nil && ownedByAgent(ch.new):
		hub := g.ended[ch.new.Annotation(sourceKey)+"@"+s.agent.Name]
		kept := g.kept[s.follows][ch.new.Annotation(sourceKey)]
		g.w.check(hub == nil || hub == s.follows || kept, "%s creates %s for another hub than the one for which it deleted it (%s)", who.what, short(ch.ref), who.why)
	}
}

// noteKept notes the Applications that a promoted hub kept as its own, although it has received their deletion on the other hub. That
// hub has no record that it received them as they are, for example after a promotion with --accept-loss. docs/hubs.md: they stay, and
// belong to this hub again after its promotion. A deletion that this hub has not received excuses nothing.
func (g *group) noteKept(s *site) {
	g.kept[s.cluster] = map[string]bool{}
	other, received := s.other(), s.hub().Predecessor
	for _, o := range s.cluster.st.list(kind.Applications) {
		deleted := g.gone[other.cluster][origin(o)]
		if deleted != 0 && received.UID == other.cluster.st.uid && received.Revision >= deleted && g.mayStay(other, s, o) {
			g.kept[s.cluster][origin(o)] = true
		}
	}
}

// agreed is a user who accepts the store of a hub, with all that it brings back.
func (g *group) agreed(s *spoke) {
	for key := range g.ended {
		if strings.HasSuffix(key, "@"+s.agent.Name) {
			delete(g.ended, key)
		}
	}
}

// guardWriter checks that an agent that follows an earlier generation does not replace or delete what was written for a
// later one.
func (g *group) guardWriter(who actor, ch change) {
	o := ch.new
	if o == nil {
		o = ch.old
	}
	g.w.check(ch.old == nil || who.generation >= g.wrote[ch.old.UID()], "%s writes %s for generation %d (%s), which was written for generation %d",
		who.what, short(ch.ref), who.generation, who.why, g.wrote[o.UID()])
	if ownedByAgent(o) {
		g.wrote[o.UID()] = max(g.wrote[o.UID()], who.generation)
	}
}

// guardReceiver watches a standby.
func (g *group) guardReceiver(who actor, ch change) {
	bad := func(what string) { g.w.violate("%s %s %s (%s)", who.what, what, short(ch.ref), who.why) }
	g.w.checks++
	other := who.proc.site.other().cluster
	if who.proc.site.isActive() && who.proc.overdue() {
		bad("writes on a hub that is active:")
	}
	if ch.ref.Resource == kind.Secrets && ch.ref.Name == "argocd-secret" {
		bad("writes what a hub does not share:")
	}
	switch {
	case ch.new == nil || removal(ch):
		if id := origin(ch.old); g.gone[other][id] == 0 && !ch.old.IsDeleting() && !g.recently(id) {
			bad("deletes what the active hub has not deleted:")
		}
	case ch.old == nil:
		if id := origin(ch.new); !g.had[other][id] {
			bad("creates what the active hub never had:")
		}
	case origin(ch.old) != origin(ch.new) && !g.had[other][origin(ch.old)] && !g.installed(ch) && !sameContent(ch.old, ch.new):
		bad("replaces an object of this hub:")
	}
}

// sameContent reports whether two objects of a standby have the same content, so that one may take the place of the other. What is
// never copied is not part of it.
func sameContent(a, b *kind.Object) bool {
	return text(contentOf(decode(a))) == text(contentOf(decode(b)))
}

// contentOf returns the content of an object that both hubs have, without the metadata. An operation without a name could run twice
// and is not copied, so that it stays on its hub, or is lost with the object.
func contentOf(t tree) tree {
	out := tree{}
	for key, v := range t {
		unnamed := key == "operation" && infoOf(v, "argocd-agent/command") == "" && infoOf(v, "argocd-agent/mirror") == ""
		if key != "metadata" && !unnamed {
			out[key] = v
		}
	}
	return out
}

// recently reports whether an object is back on a hub since a short time, so that the other one may still remove it.
func (g *group) recently(id string) bool {
	at, back := g.back[id]
	for _, c := range g.w.hubs() {
		at = max(at, c.downUntil, c.faultUntil, c.lagUntil+c.lag)
	}
	return back && g.w.now-max(at, g.partitionUntil) <= minute
}

// origin is the UID of the first object from which those of the hubs were made: of a hub, or of an agent.
func origin(o *kind.Object) string {
	if ownedByAgent(o) {
		return o.Annotation(sourceKey)
	}
	return o.UID()
}

// installed reports whether every installation has an object of this name.
func (g *group) installed(ch change) bool {
	return ch.ref.Resource == kind.AppProjects && ch.ref.Name == "default" || ch.ref.Resource == kind.ConfigMaps && ch.ref.Name == "argocd-gpg-keys-cm"
}

// hubs compares the two hubs.
func (d *differ) hubs(g *group) {
	var active, standby *site
	for _, s := range g.sites {
		if s.isActive() {
			active = s
		} else {
			standby = s
		}
	}
	if active == nil || standby == nil || active.cluster != g.w.hub {
		d.add("there is not one active hub and one standby")
		return
	}
	for _, s := range g.w.spokes {
		if s.follows != active.cluster {
			d.add("%s follows %s", s.agent.Name, s.follows.name)
		}
	}
	for _, r := range g.w.resources() {
		for _, o := range active.cluster.st.list(r) {
			if shared(r, o) {
				d.sameOnStandby(g, active, standby, refOf(r, o), o)
			}
		}
		for _, o := range standby.cluster.st.list(r) {
			at := refOf(r, o)
			if active.cluster.st.get(at) == nil && shared(r, o) && !g.mayStay(active, standby, o) {
				d.add("%s on the standby %s has gone on the active hub", short(at), standby.cluster.name)
			}
		}
	}
}

// shared reports whether both hubs must have an object.
func shared(r kind.Resource, o *kind.Object) bool {
	switch r {
	case kind.Secrets:
		return o.Label("argocd.argoproj.io/secret-type") != ""
	case kind.ConfigMaps:
		return o.Name() == "argocd-gpg-keys-cm"
	}
	return true
}

// mayStay reports whether an object that the active hub lacks stays on the standby: the active hub never had it, or not as it
// was when that hub was promoted.
func (g *group) mayStay(active, standby *site, o *kind.Object) bool {
	id := origin(o)
	if !g.had[active.cluster][id] {
		return true
	}
	revision, _ := strconv.ParseUint(o.ResourceVersion(), 10, 64)
	received := active.hub().Predecessor
	return o.Annotation(standbyKey) == "" && (received.UID != standby.cluster.st.uid || revision > received.Revision)
}

// sameOnStandby compares an object of the active hub with that of the standby.
func (d *differ) sameOnStandby(g *group, active, standby *site, r kind.Ref, o *kind.Object) {
	copied := standby.cluster.st.get(r)
	if copied == nil {
		d.add("%s is missing on the standby %s", short(r), standby.cluster.name)
		return
	}
	if origin(copied) != origin(o) && g.mayStay(active, standby, copied) {
		return // an object of the standby itself, which is not replaced
	}
	if a, b := onEveryHub(decode(o)), onEveryHub(decode(copied)); a != b {
		d.add("%s is %s, and %s on the standby %s", short(r), a, b, standby.cluster.name)
	}
}

// onEveryHub is an object without what differs between hubs.
func onEveryHub(t tree) string {
	metadata := digTree(t, "metadata")
	annotations := tree{}
	for key, v := range digTree(metadata, "annotations") {
		if key != standbyKey && key != sourceKey && key != principalKey {
			annotations[key] = v
		}
	}
	cut(t, "status", "reconciledAt") // moves with every comparison of Argo CD
	kept := tree{"annotations": annotations, "deleting": metadata["deletionTimestamp"] != nil}
	if labels := digTree(metadata, "labels"); len(labels) > 0 {
		kept["labels"] = labels
	}
	if list := finalizers(t); len(list) > 0 {
		kept["finalizers"] = list
	}
	out := contentOf(t)
	out["metadata"] = kept
	return text(out)
}
