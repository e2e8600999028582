package sim

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what breaks.

var faultActions = []actionType{
	{name: "partition", weight: 8, fault: true, do: partition},
	{name: "cut connection", weight: 8, fault: true, do: cutConnection},
	{name: "half-open connection", weight: 5, fault: true, do: halfOpen},
	{name: "slow network", weight: 4, fault: true, do: slowNetwork},
	{name: "agent crash", weight: 8, fault: true, do: crashAgent},
	{name: "principal crash", weight: 8, fault: true, do: crashPrincipal},
	{name: "all principals down", weight: 3, fault: true, do: crashAll},
	{name: "compaction", weight: 5, fault: true, do: func(w *world, a action) { w.pickCluster(a.n[0]).st.compact() }},
	{name: "watch cut", weight: 4, fault: true, do: func(w *world, a action) { w.pickCluster(a.n[0]).st.cutWatches() }},
	{name: "watch lag", weight: 6, fault: true, do: watchLag},
	{name: "API errors", weight: 8, fault: true, do: apiErrors},
	{name: "API server down", weight: 4, fault: true, do: apiDown},
	{name: "clock jump", weight: 4, fault: true, do: clockJump},
	{name: "hub restored", weight: 6, fault: true, rare: 12, do: restoreHub},
	{name: "spoke restored", weight: 6, fault: true, rare: 10, do: restoreSpoke},
	{name: "spoke emptied", weight: 3, fault: true, rare: 6, do: emptySpoke},
	{name: "hub emptied", weight: 3, fault: true, rare: 6, do: emptyHub},
	{name: "clone of an agent", weight: 4, fault: true, rare: 10, do: cloneAgent},
	{name: "local changes without the hub", weight: 6, fault: true, do: changeCutOff},
	{name: "clone in another cluster", weight: 3, fault: true, rare: 8, do: cloneCluster},
}

func (w *world) pickCluster(n uint32) *cluster {
	if n%2 == 0 {
		return w.hub
	}
	s, _ := pick(w.spokes, n/2)
	return s.cluster
}

// span is how long a fault lasts: mostly seconds, sometimes minutes.
func span(n uint32) engine.Time {
	if n%4 == 0 {
		return engine.Time(n>>2%300) * second
	}
	return engine.Time(n>>2%40_000) * millisecond
}

func partition(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	s.partitionUntil = w.now + span(a.n[1])
	for _, c := range w.liveConns() {
		if c.spoke == s {
			w.after(w.between(20*second, 40*second), func() {
				if s.cutOff() {
					c.cut()
				}
			})
		}
	}
}

func cutConnection(w *world, a action) {
	if c, ok := pick(w.liveConns(), a.n[0]); ok {
		c.broken = true
		for _, e := range []*end{c.agent, c.hub} {
			e.p.in(e.life, w.between(1, second), e.lost)
		}
	}
}

// halfOpen lets one end find out at once and the other after a long time.
func halfOpen(w *world, a action) {
	if c, ok := pick(w.liveConns(), a.n[0]); ok {
		c.broken = true
		first, last := c.agent, c.hub
		if a.n[1]%4 == 0 {
			first, last = last, first
		}
		first.p.in(first.life, w.between(1, second), first.lost)
		last.p.in(last.life, w.between(30*second, 3*minute), last.lost)
	}
}

func slowNetwork(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	s.slowUntil = w.now + span(a.n[1])
}

func crashAgent(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	s.process.skew = skewOf(a.n[2])
	s.process.restartIn(span(a.n[1]) / 2)
}

// skewOf is mostly none.
func skewOf(n uint32) engine.Time {
	if n%5 != 0 {
		return 0
	}
	return engine.Time(n>>3%7_200_000) - hour
}

func crashPrincipal(w *world, a action) {
	p, _ := pick(w.principals, a.n[0])
	p.skew = skewOf(a.n[2])
	p.restartIn(span(a.n[1]) / 2)
}

func crashAll(w *world, a action) {
	for _, p := range w.principals {
		p.restartIn(span(a.n[0]) + w.between(0, 5*second))
	}
}

func watchLag(w *world, a action) {
	c := w.pickCluster(a.n[0])
	c.lag = second + engine.Time(a.n[1]%40)*second
	c.lagUntil = w.now + span(a.n[2])
}

func apiErrors(w *world, a action) {
	c := w.pickCluster(a.n[0])
	c.faultRate = 5 + int(a.n[1]%60)
	c.faultUntil = w.now + span(a.n[2])
}

func apiDown(w *world, a action) {
	c := w.pickCluster(a.n[0])
	c.downUntil = w.now + span(a.n[1])
	c.st.cutWatches()
}

// clockJump suspends a process: for it, time jumps.
func clockJump(w *world, a action) {
	p := w.principals[0]
	if a.n[0]%2 == 0 {
		s, _ := pick(w.spokes, a.n[1])
		p = s.process
	}
	p.pausedUntil = max(p.pausedUntil, w.now+2*span(a.n[2])) // a second jump does not end the first: what waits for it stays late
}

// restoreHub takes a backup first if there is none: then it goes back later.
func restoreHub(w *world, a action) {
	if len(w.hub.backups) == 0 || a.n[0]%3 == 0 {
		w.hub.backups = append(w.hub.backups, w.hub.st.snapshot())
		w.tracef("hub: backup at %d", w.hub.st.rev)
		return
	}
	b, _ := pick(w.hub.backups, a.n[1])
	before := w.hub.st.rev
	w.restoreHub(b)
	if a.n[2]%2 == 0 {
		w.writePast(before + uint64(a.n[2]%50))
	}
}

// writePast keeps the agents away from a hub that was restored until its revision is later than any that they know. The
// writes are of objects that the product does not read.
func (w *world) writePast(rev uint64) {
	for _, s := range w.spokes {
		s.partitionUntil = max(s.partitionUntil, w.now+w.between(40*second, 3*minute))
		for _, c := range w.liveConns() {
			if c.spoke == s {
				c.cut()
			}
		}
	}
	w.after(30*second, func() { // the principals have restarted
		w.tracef("hub: writes past %d", rev)
		w.hub.st.rev = max(w.hub.st.rev, rev)
	})
}

func (w *world) restoreHub(b *backup) {
	w.tracef("hub: restored from %d to %d", w.hub.st.rev, b.rev)
	w.hub.st.restore(b)
	w.ledger.marksRestored(w.hub, b.rev)
	w.ledger.hubRestored()
	// The API server was away for that; principals do not outlive it.
	for _, p := range w.principals {
		p.restartIn(w.between(second, 20*second))
	}
	for _, s := range w.spokes {
		if w.hub.recall(w.registrations(), s.agent.Name).KnownCluster != "" {
			continue
		}
		for _, p := range s.clones { // who comes first has the name
			if p.spoke.stranger {
				p.crash()
			}
		}
	}
}

func restoreSpoke(w *world, a action) {
	s, _ := pick(w.spokes, a.n[2])
	c := s.cluster
	if len(c.backups) == 0 || a.n[0]%3 == 0 {
		c.backups = append(c.backups, c.st.snapshot())
		return
	}
	b, _ := pick(c.backups, a.n[1])
	w.restoreSpoke(s, b)
}

func (w *world) restoreSpoke(s *spoke, b *backup) {
	w.tracef("%s: restored from %d to %d", s.agent.Name, s.cluster.st.rev, b.rev)
	s.cluster.st.restore(b)
	w.ledger.marksRestored(s.cluster, b.rev)
	w.ledger.spokeRestored(s)
	for _, r := range s.cluster.applications(func(*kind.Object) bool { return true }) {
		s.ctl.noticed(r)
	}
	for _, p := range append(s.clones, s.process) {
		if p.cluster == s.cluster {
			p.restartIn(w.between(second, 20*second))
		}
	}
}

// emptySpoke is an Argo CD that was removed and installed again, agent and all.
func emptySpoke(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	w.emptySpoke(s)
}

func (w *world) emptySpoke(s *spoke) {
	w.tracef("%s: everything is removed and installed again", s.agent.Name)
	empty := &backup{rev: s.cluster.st.rev + 50, uid: s.cluster.st.uid}
	s.process.restartIn(w.between(second, 20*second))
	w.ledger.removedAll(s)
	s.cluster.st.restore(empty)
	w.ledger.spokeRestored(s)
	s.ctl.workloads = map[string]string{}
	w.install(s.cluster)
}

// emptyHub is a hub whose storage was lost: another store altogether.
func emptyHub(w *world, a action) {
	uid := w.hub.st.uid
	if a.n[0]%2 == 0 {
		w.names++
		uid = fmt.Sprintf("kube-system-hub-%d", w.names)
	}
	w.restoreHub(&backup{rev: 10, uid: uid})
	w.install(w.hub)
}

// cloneAgent starts a second process of an agent, as a rollout may.
func cloneAgent(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	p := &process{w: w, name: fmt.Sprintf("%s-clone-%d", s.agent.Name, len(s.clones)), cluster: s.cluster, spoke: s}
	s.clones = append(s.clones, p)
	p.start()
	w.after(span(a.n[1]), p.crash)
}

// cloneCluster is another cluster that was given an agent's credentials. It must not get in once the hub knows the
// first.
func cloneCluster(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if w.hub.recall(w.registrations(), s.agent.Name).KnownCluster == "" {
		return // who comes first has the name
	}
	clone := newCluster(w, fmt.Sprintf("clone-%d", len(s.clones)), s.cluster.argo)
	ghost := &spoke{w: w, agent: s.agent, cluster: clone, settings: s.settings, stranger: true}
	ghost.ctl = newController(clone)
	clone.spoke = ghost
	w.install(clone)
	p := &process{w: w, name: clone.name, cluster: clone, spoke: ghost}
	ghost.process = p
	s.clones = append(s.clones, p)
	p.start()
	w.after(2*minute+span(a.n[1]), p.crash)
}
