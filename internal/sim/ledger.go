package sim

import (
	"bytes"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// ledger remembers what the owners of things have done, so that the guards can report whether what the product does has
// a reason. It knows the contract, not the product.
type ledger struct {
	w             *world
	now           map[string]bool        // "uid@agent": the owner publishes this object to this agent
	placed        map[string]bool        // ... or has at some time
	left          map[string]bool        // ... and has stopped doing so, or lost it and a user has agreed to that
	back          map[string]engine.Time // ... and has begun again, at this time
	agreed        map[string]bool        // ... and a user has agreed to its removal
	agreedCopy    map[string]bool        // UID of a replica whose removal a user has agreed to, although its source has another replica
	gaveUp        map[string]bool        // UIDs of what an owner has ceased to publish to an agent at some time
	sources       map[string]string      // UID of a spoke's copy → that of the hub's Application
	cascade       map[string]bool        // UIDs of Applications seen deleting with a resources finalizer
	order         map[string][]uint64    // "uid/revision": the turns at which the owner came to it
	cascadeFrozen map[string]bool        // UIDs of Applications seen deleting so while they were frozen
	frozenAt      map[string]engine.Time // "uid@agent": when it was frozen
	frozenFor     map[string]bool        // "uid@agent": it is frozen for this agent
	wasFrozen     map[string]bool        // ... or was before
	might         map[string]bool        // "uid/revision@agent": the hub had this spec while it might run there
	deleted       map[string]bool        // UIDs of what a user has deleted, with or without resources
	goneFromHub   map[string]bool        // UIDs of Applications that a user has deleted on the hub
	children      map[string]bool        // "uid@agent": Argo CD deployed this Application on the agent's cluster for another one
	local         map[string]bool        // UIDs of Applications deleted with their resources on a spoke
	syncRequests  map[string]*syncRequest
	asked         map[string]bool // operations that a user terminated

	first     map[string]uint64      // "uid/revision": the turn at which a user first came to it
	last      map[string]uint64      // ... and last
	regained  map[string]uint64      // "uid/revision@agent": the turn at which the hub that the agent follows got it back from the other hub
	cascadeAt map[string]engine.Time // when an Application was first seen so
	recounts  bool                   // a store was replaced without a user's action

	turn          uint64
	hubEra        int            // grows when the hub's store goes back
	spokeEra      map[string]int // the same, by agent
	marks         map[engine.HistoryMark]recordedMark
	late          map[string]bool   // UIDs of stores that are untrusted because of a message that came late
	metHub        map[string]int    // the era in which an agent last had a session
	metSpoke      map[string]int    // the era of the agent in which the hub last had one
	acceptedHub   map[string]int    // the era of the hub's store that an agent's user has accepted, or that cannot be distinguished from the one before
	acceptedStore map[string]bool   // an agent's user has accepted a store of the hub at some time
	clusters      map[string]string // the cluster that an agent's name belongs to
	clustered     map[string]engine.Time
}

// syncRequest is a sync that a user requested.
type syncRequest struct {
	ref     kind.Ref
	uid     string
	source  string // of a copy: the UID of the spoke's Application
	number  int    // of the request
	runs    int
	ranOn   string // UID of the spoke's Application
	ranIn   int    // life of the agent
	ranAt   string // and its cluster: an Application may move
	refused bool
	late    bool // it was written by a call that had timed out: its agent could not know that
	excused bool // the Application, or the record of the click, was lost with a store or by hand
}

func newLedger(w *world) *ledger {
	return &ledger{w: w, goneFromHub: map[string]bool{}, children: map[string]bool{}, now: map[string]bool{}, placed: map[string]bool{}, order: map[string][]uint64{}, might: map[string]bool{}, frozenFor: map[string]bool{}, frozenAt: map[string]engine.Time{}, cascadeFrozen: map[string]bool{}, wasFrozen: map[string]bool{}, agreedCopy: map[string]bool{}, left: map[string]bool{}, back: map[string]engine.Time{}, agreed: map[string]bool{}, first: map[string]uint64{}, cascadeAt: map[string]engine.Time{}, last: map[string]uint64{}, regained: map[string]uint64{}, gaveUp: map[string]bool{}, cascade: map[string]bool{}, sources: map[string]string{},
		local: map[string]bool{}, deleted: map[string]bool{}, syncRequests: map[string]*syncRequest{}, asked: map[string]bool{}, spokeEra: map[string]int{},
		acceptedStore: map[string]bool{}, metHub: map[string]int{}, metSpoke: map[string]int{}, acceptedHub: map[string]int{}, clusters: map[string]string{},
		clustered: map[string]engine.Time{}, marks: map[engine.HistoryMark]recordedMark{}, late: map[string]bool{}}
}

// trackLate notes an operation that a call wrote after it had timed out.
func (l *ledger) trackLate(c *cluster, ch change) {
	if c.hub || ch.ref.Resource != kind.Applications || ch.new == nil || !l.w.late {
		return
	}
	if k := l.syncRequests[infoOf(decode(ch.new)["operation"], requestInfo)]; k != nil {
		k.late = true
	}
}

// trackCascade notes what is deleted with its resources.
func (l *ledger) trackCascade(c *cluster, ch change) {
	o := ch.new
	if o == nil || !l.concerns(c, ch) {
		return
	}
	id := c.id(o)
	switch {
	case o.IsDeleting() && slices.ContainsFunc(o.Finalizers(), isCascade) && c.hub && l.frozen(c, ch.ref, o):
		l.cascadeFrozen[id] = true
	case o.IsDeleting() && slices.ContainsFunc(o.Finalizers(), isCascade):
		if !l.cascade[id] {
			l.cascadeAt[id] = l.w.now
		}
		l.cascade[id] = true
	case !o.IsDeleting() && l.cascade[id]: // a backup has brought it back
		delete(l.cascade, id)
		l.back[id] = l.w.now
	}
}

// track follows a change in a cluster.
func (l *ledger) track(c *cluster, ch change) {
	if c.spoke != nil && c.spoke.stranger {
		return
	}
	o := ch.new
	if !c.hub && ch.ref.Resource == kind.Applications && o != nil && tracked(o) {
		l.children[o.UID()+"@"+c.spoke.agent.Name] = true
	}
	l.trackLate(c, ch)
	if c.hub && ch.ref.Resource == kind.Applications && l.concerns(c, ch) {
		if o == nil {
			l.goneFromHub[c.id(ch.old)] = true // a user deleted it
		} else {
			delete(l.goneFromHub, c.id(o)) // a backup may have brought it back
		}
	}
	l.trackCascade(c, ch)
	if o == nil {
		o = ch.old
	} else if ch.ref.Resource == kind.Applications && (ch.old == nil || !bytes.Equal(ch.old.Get("spec"), o.Get("spec"))) {
		l.turn++
		key := c.id(o) + "/" + unquote(o.Get("spec", "source", "targetRevision"))
		l.order[key] = append(l.order[key], l.turn)
		if !l.recounts {
			if l.first[key] == 0 {
				l.first[key] = l.turn
			}
			l.last[key] = l.turn
		}
	}
	if source := o.Annotation(sourceKey); source != "" && !c.hub {
		l.sources[o.UID()] = source
	}
	l.noteAll(c, ch.ref, c.id(o), ch.new)
	if c.hub && ch.ref.Resource == kind.AppProjects {
		for _, app := range c.st.list(kind.Applications) {
			l.track(c, change{ref: refOf(kind.Applications, app), old: app, new: app}) // it may have been frozen, or be
		}
		for _, secret := range c.st.list(kind.Secrets) {
			l.noteAll(c, refOf(kind.Secrets, secret), c.id(secret), secret)
		}
	}
}

// reconsider takes stock after an operator has changed what goes where.
func (l *ledger) reconsider() {
	for _, c := range l.w.clusters() {
		for _, r := range l.w.resources() {
			for _, o := range c.st.list(r) {
				l.noteAll(c, refOf(r, o), c.id(o), o)
			}
		}
	}
}

// noteAll records whose an object is now; nil: it is gone.
func (l *ledger) noteAll(c *cluster, r kind.Ref, uid string, o *kind.Object) {
	if !c.hub {
		l.note(uid, c.spoke.agent.Name, o != nil && shownBy(c.spoke, r, o))
		return
	}
	for _, s := range l.w.spokes {
		if s.hub() == c {
			l.noteFor(s, r, uid, o)
		}
	}
}

// noteFor records what an object of the hub is to an agent; nil: it is gone. One that is frozen is not given up.
func (l *ledger) noteFor(s *spoke, r kind.Ref, uid string, o *kind.Object) {
	sent := o != nil && l.w.sentTo(s, r, o)
	key := uid + "@" + s.agent.Name
	if o != nil && !sent && l.w.frozen(s, r, o) {
		if !l.frozenFor[key] {
			l.frozenAt[key] = l.w.now
		}
		l.frozenFor[key], l.wasFrozen[key] = true, true
		if l.w.consentedBefore(s, r, o) {
			l.placed[key], l.might[specOf(s.hub(), o)+"@"+s.agent.Name] = true, true
		}
		return
	}
	if !sent && l.frozenFor[key] { // the owner gives up what was frozen
		l.left[key], l.gaveUp[uid] = true, true
		delete(l.now, key)
	}
	delete(l.frozenFor, key)
	if sent && r.Resource == kind.Applications {
		l.might[specOf(s.hub(), o)+"@"+s.agent.Name] = true
	}
	l.note(uid, s.agent.Name, sent)
}

// specOf names the spec of an Application of the hub.
func specOf(c *cluster, o *kind.Object) string {
	return c.id(o) + "/" + unquote(o.Get("spec", "source", "targetRevision"))
}

// frozen reports whether an Application of the hub is frozen for some agent.
func (l *ledger) frozen(c *cluster, r kind.Ref, o *kind.Object) bool {
	return slices.ContainsFunc(l.w.spokes, func(s *spoke) bool { return s.hub() == c && l.w.frozen(s, r, o) })
}

// recount updates the ledger after a store was replaced: no user has given up anything.
func (l *ledger) recount(c *cluster) {
	l.recounts = true
	defer func() { l.recounts = false }()
	for key := range l.now {
		uid, _, _ := strings.Cut(key, "@")
		if uid[:strings.LastIndexByte(uid, '-')] == c.name {
			delete(l.now, key)
		}
	}
	for _, r := range l.w.resources() {
		for _, o := range c.st.list(r) {
			l.track(c, change{ref: refOf(r, o), new: o})
		}
	}
}

// deletedByUser notes what a user has deleted.
func (l *ledger) deletedByUser(c *cluster, ch change) {
	if l.concerns(c, ch) {
		l.deleted[c.id(ch.old)] = true
	}
}

func (l *ledger) hubRestored() {
	l.hubEra++
	for _, k := range l.syncRequests {
		k.excused = true
	}
	l.recount(l.w.hub)
}

func (l *ledger) spokeRestored(s *spoke) {
	l.spokeEra[s.agent.Name]++
	if l.hubEra > 0 {
		defer l.unknowable(s) // with its Lease it has lost what it knew of the hub
	}
	for _, k := range l.syncRequests {
		k.excused = true
		k.runs = 0
	}
	l.recount(s.cluster)
}

// removedAll is a user who removes everything on a spoke.
func (l *ledger) removedAll(s *spoke) {
	for _, r := range []kind.Resource{kind.AppProjects, kind.Applications} {
		for _, o := range s.cluster.st.list(r) {
			l.note(o.UID(), s.agent.Name, false)
		}
	}
}

// opened is a session as the agent sees it. A hub whose store regressed, as far as the agent could know, must not be
// trusted.
func (l *ledger) opened(p *process, f engine.Event) {
	if p.spoke.stranger {
		return
	}
	agent := p.spoke.agent.Name
	st, _ := p.reconciler.Status("")
	known := p.known
	if st.StoreHoldID == "" {
		p.known = f.Store
	}
	if l.w.group != nil {
		l.w.group.opened(p, f)
		return
	}
	l.checkHistory(p, known, f.Store, l.w.hub.historyMark(l.w.registrations(), agent), st.StoreHoldID != "", l.hubEra)
	if known.UID != "" && (f.Store.UID != known.UID || f.Store.Revision < known.Revision) {
		l.w.check(st.StoreHoldID != "", "%s trusts a hub whose store regressed from %v to %v", p.name, known, f.Store)
	}
	if met, ok := l.metHub[agent]; ok && met != l.hubEra && st.StoreHoldID == "" {
		// It is again at the revision that this agent last saw: the regression cannot be detected.
		l.w.tracef("%s cannot know that the hub regressed", p.name)
		l.unknowable(p.spoke)
	}
	l.metHub[agent] = l.hubEra
}

// recordSession is a session as the hub sees it: one name, one cluster.
func (l *ledger) recordSession(p *process, agent string, f engine.Event) {
	cluster := f.Hello.ClusterUID
	if known := l.clusters[agent]; known == "" {
		l.clusters[agent], l.clustered[agent] = cluster, l.w.now
	} else if l.w.now-l.clustered[agent] > minute && l.hubEra == 0 {
		l.w.check(cluster == known, "%s lets cluster %s in as agent %s, which is cluster %s", p.name, cluster, agent, known)
	}
	st, _ := p.reconciler.Status(agent)
	if s := l.w.spokeOf(agent); !s.managed() && !s.stranger {
		known := p.persisted[agent].KnownStore
		if st.Other.UID == f.Store.UID && st.Other.Revision <= s.cluster.st.rev { // seen since then, from another process of the agent
			known.Revision = max(known.Revision, st.Other.Revision)
		}
		l.checkHistory(p, known, f.Store, s.cluster.historyMark(leases, "agent"), st.StoreHoldID != "", l.spokeEra[agent]+l.hubEra)
	}
	if met := l.metSpoke[agent]; met != l.spokeEra[agent] && st.StoreHoldID == "" {
		l.accept(l.w.spokeOf(agent))
	}
	l.metSpoke[agent] = l.spokeEra[agent]
}

func (l *ledger) syncRequested(id string, r kind.Ref, o *kind.Object) {
	k := &syncRequest{number: l.w.lastRequest, ref: r, uid: l.w.hub.id(o)}
	if o.Annotation(agentKey) != "" {
		k.source = o.Annotation(sourceKey)
	}
	l.syncRequests[id] = k
}

// ran is Argo CD starting an operation.
func (l *ledger) ran(c *cluster, r kind.Ref, t tree, operation tree) {
	id := infoOf(operation, requestInfo)
	l.w.tracef("%s on %s: runs an operation of %s (click %q)", controllerName, c.name, short(r), id)
	k := l.syncRequests[id]
	if k == nil {
		return
	}
	k.runs++
	uid, life := digText(t, "metadata", "uid"), c.spoke.process.life
	again := k.excused && l.hubEra > 0 && l.acceptedHub[c.spoke.agent.Name] == l.hubEra
	if uid != k.ranOn && (life != k.ranIn || !c.spoke.managed() || c.name != k.ranAt) {
		again = true // the Application is another one, and with the old one its record is gone
	}
	k.ranOn, k.ranIn, k.ranAt = uid, life, c.name
	l.w.check(k.runs == 1 || again, "click %s on %s has run %d times", id, short(k.ref), k.runs)
	l.w.check(!k.refused || k.late, "click %s on %s was reported as refused, and runs", id, short(k.ref))
}

// refusals notes when the hub says that an operation was not carried out.
func (l *ledger) refusals(o *kind.Object) {
	operation := o.Get("status", "operationState", "operation")
	if operation == nil {
		return
	}
	t := dig(decode(o), "status", "operationState", "operation")
	if infoOf(t, "argocd-agent/refused") != "" {
		if k := l.syncRequests[infoOf(t, requestInfo)]; k != nil {
			k.refused = true
		}
	}
}

// operationName distinguishes an operation from others of the same Application.
func operationName(t tree) string {
	state := bySpokeClock(digTree(t, "status", "operationState"))
	if id := infoOf(dig(state, "operation"), requestInfo); id != "" {
		return id
	}
	return digText(state, "startedAt")
}

func (l *ledger) askedToTerminate(t tree) { l.asked[operationName(t)] = true }

// terminated is Argo CD ending an operation on request.
func (l *ledger) terminated(c *cluster, r kind.Ref, t tree) {
	l.w.tracef("%s on %s: terminates %s of %s", controllerName, c.name, operationName(t), short(r))
	l.w.check(l.asked[operationName(t)], "operation %s of %s on %s is terminated, without a request", operationName(t), short(r), c.name)
}

// cascaded is Argo CD deleting an Application's resources.
func (l *ledger) cascaded(c *cluster, r kind.Ref, t tree) {
	source, uid := digText(t, "metadata", "annotations", sourceKey), digText(t, "metadata", "uid")
	l.w.tracef("%s on %s: deletes the resources of %s", controllerName, c.name, short(r))
	if source == "" {
		source = l.sources[uid] // a user removed the ownership annotation
	}
	l.w.check(l.mayCascade(c.spoke, source) || l.local[uid], "the resources of %s on %s are deleted, without a request", short(r), c.name)
}

// mayCascade reports whether a user of the owner has deleted an Application with its resources, and it has not come
// back since.
func (l *ledger) mayCascade(s *spoke, source string) bool {
	if l.cascade[source] {
		return true
	}
	if l.cascadeFrozen[source] && !l.w.settled(s, l.frozenAt[source+"@"+s.agent.Name]) {
		return true // a principal may not know yet that it is frozen
	}
	at, again := l.back[source]
	return again && !l.w.settled(s, at)
}

// deletedBySpokeUser notes who asked.
func (l *ledger) deletedBySpokeUser(o *kind.Object, withResources bool) {
	if o == nil {
		return
	}
	if withResources {
		l.local[o.UID()] = true
	}
	for _, k := range l.syncRequests { // and commands that it was given go with it
		if k.uid == o.Annotation(sourceKey) || k.source == o.UID() {
			k.excused = true
		}
	}
}
