package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// This file opens, checks and closes sessions.

// connected handles a new connection. The agent sends Hello, the hub waits for it.
func (p *Peer) connected(in Connected) {
	p.own, p.ownRead = in.Store, true
	if p.cfg.Hub {
		return
	}
	if p.phase != closed && p.session != in.Session {
		p.emit(CloseSession{Session: p.session, Code: Superseded, Message: "reconnected"})
	}
	p.close(Superseded, "reconnected")
	p.phase, p.session, p.epoch = helloSent, in.Session, in.Epoch
	hello := *p.cfg.Hello
	hello.Epoch, hello.Store, hello.Known, hello.Seen = in.Epoch, in.Store, p.other, p.Seen()
	hello.Mode, hello.Mapping = p.cfg.Mode, p.cfg.Mapping
	hello.Protocol = Range{ProtocolMin, ProtocolMax}
	hello.Projection = Range{ProjectionMin, ProjectionMax}
	hello.ClockMillis, hello.Facts = int64(p.now), in.Facts
	hello.Capabilities = p.announceScopes(hello.Capabilities)
	p.send(hello)
}

// close ends the session, if there is one. The next session finds out what became of items in flight.
func (p *Peer) close(code Code, message string) { p.closeWith(Bye{Code: code, Message: message}) }

func (p *Peer) closeWith(m Bye) {
	was := p.phase
	p.phase = closed
	p.early, p.earlyBytes = nil, 0
	if p.cfg.Hub {
		p.writeOutage = "" // known only in a session
	}
	if was == opened || was == awaitingBegin {
		p.emit(Event{Type: Closed, Code: m.Code, Message: m.Message})
	}
}

// Session returns the session that is open or about to open.
func (p *Peer) Session() (uint64, bool) { return p.session, p.phase != closed }

func (p *Peer) received(in Received) {
	if hello, ok := in.Message.(Hello); ok && p.cfg.Hub {
		p.handleHello(in.Session, hello)
		return
	}
	if in.Session != p.session || p.phase == closed {
		return
	}
	p.lastReceived = p.now
	switch m := in.Message.(type) {
	case Bye:
		p.closeWith(m)
		if !p.cfg.Hub {
			p.emit(Event{Type: Refused, Code: m.Code, Message: m.Message})
		}
		p.emit(CloseSession{Session: in.Session, Code: m.Code, Message: m.Message, RetryAfter: max(0, Time(m.RetryAfterMillis))})
	case Welcome:
		if !p.cfg.Hub && p.phase == helloSent && m.Epoch == p.epoch {
			p.handleWelcome(m)
		}
	default:
		switch p.phase {
		case opened:
			p.route(in.Message)
		case awaitingBegin:
			p.bufferEarly(in.Message)
		}
	}
}

// bufferEarly keeps messages that the hub sends after Welcome while this side is not ready to compare. Otherwise the
// first roots, tombstones and commands would be lost and come again only after a minute.
func (p *Peer) bufferEarly(m Message) {
	if p.cfg.Hub {
		return // the agent sends nothing before Welcome
	}
	size := 0
	if d, ok := m.(Delta); ok {
		for _, it := range d.Items {
			size += windowCost(it)
		}
	}
	if len(p.early) < maxEarlyMessages && p.earlyBytes+size <= maxQueuedWindows*p.tune.Window {
		p.early = append(p.early, m)
		p.earlyBytes += size
	}
}

const maxEarlyMessages = 1024

// handleHello opens or refuses a session on the hub.
func (p *Peer) handleHello(session uint64, m Hello) {
	if session == p.session && (p.phase != closed || m.Epoch == p.epoch) {
		return // duplicate or late
	}
	protocol, ok := common(m.Protocol, Range{ProtocolMin, ProtocolMax})
	projection, ok2 := common(m.Projection, Range{ProjectionMin, ProjectionMax})
	switch {
	case !ok || !ok2:
		p.refuse(session, WrongProtocol, fmt.Sprintf("no protocol version in common: the agent speaks %d to %d (projections %d to %d), the hub %d to %d (%d to %d); upgrade the older side",
			m.Protocol.Min, m.Protocol.Max, m.Projection.Min, m.Projection.Max, ProtocolMin, ProtocolMax, ProjectionMin, ProjectionMax))
	case m.Mode != p.cfg.Mode:
		p.refuse(session, WrongMode, fmt.Sprintf("this agent is registered as %s but runs as %s; change one of the two", p.cfg.Mode, m.Mode))
	case p.cfg.KnownCluster != "" && m.ClusterUID != p.cfg.KnownCluster:
		p.refuse(session, WrongCluster, fmt.Sprintf("this name belongs to cluster %s, not to %s; confirm the new cluster on the hub if it replaces the old one", p.cfg.KnownCluster, m.ClusterUID))
	case p.phase != closed && !m.Epoch.Newer(p.epoch):
		p.refuse(session, Superseded, "a newer session of this agent is connected")
	case !p.ownRead: // the connection was reported before this registration. A Welcome without a store looks like a restore
		p.refuse(session, ShuttingDown, "the agent's registration has changed")
	default:
		if p.phase != closed {
			old := p.session
			p.emit(Send{Session: old, Message: Bye{Code: Superseded, Message: "a newer session of this agent has connected"}})
			p.close(Superseded, "a newer session of this agent has connected")
			p.emit(CloseSession{Session: old, Code: Superseded, Message: "a newer session of this agent has connected"})
		}
		for _, scope := range p.remoteHoldScopes() { // the agent reports what it still holds
			p.handleHeld(Held{Scope: scope})
		}
		p.cfg.KnownCluster = m.ClusterUID
		p.phase, p.session, p.epoch = awaitingBegin, session, m.Epoch
		p.protocol, p.projection = protocol, projection
		p.setShared(m.Capabilities)
		p.compareHistory(m.Known)
		p.checkStore(m.Store)
		p.emit(Event{Type: Opened, Hello: &m, Store: m.Store, Unshared: p.unsharedScopes()})
	}
}

func (p *Peer) refuse(session uint64, code Code, message string) {
	p.emit(Send{Session: session, Message: Bye{Code: code, Message: message}})
	p.emit(CloseSession{Session: session, Code: code, Message: message})
	p.emit(Event{Type: Refused, Code: code, Message: message})
}

// handleWelcome opens the session on the agent.
func (p *Peer) handleWelcome(m Welcome) {
	if m.Protocol < ProtocolMin || m.Protocol > ProtocolMax || m.Projection < ProjectionMin || m.Projection > ProjectionMax {
		p.refuseWelcome(WrongProtocol, "the hub chose a protocol version that this agent did not offer")
		return
	}
	if m.Mode != p.cfg.Mode {
		p.refuseWelcome(WrongMode, fmt.Sprintf("the hub has this agent as %s, but it runs as %s; change one of the two", m.Mode, p.cfg.Mode))
		return
	}
	if p.cfg.Mappings != nil && !slices.Contains(p.cfg.Mappings, m.Mapping) {
		p.refuseWelcome(WrongMode, fmt.Sprintf("the hub maps Applications by %.40q, which this agent does not support; upgrade the agent", m.Mapping))
		return
	}
	if code, message := p.wrongHub(m); code != OK {
		p.refuseWelcome(code, message)
		return
	}
	p.phase, p.protocol, p.projection = awaitingBegin, m.Protocol, m.Projection
	p.setGeneration(m)
	p.setPredecessor(m)
	p.fleetHold = slices.Contains(m.Capabilities, FleetHold)
	p.setShared(m.Capabilities)
	p.compareHistory(m.Known)
	p.checkStore(m.Store)
	p.emit(Event{Type: Opened, Welcome: &m, Store: m.Store, Unshared: p.unsharedScopes()})
}

func (p *Peer) refuseWelcome(code Code, message string) {
	p.refuse(p.session, code, message)
	p.phase = closed
}

// unresponsive reports whether the peer is connected but does not answer: it leaves an item unacknowledged and has sent
// no message for a long time. A peer that cannot read its own cluster sends no beacons but acknowledges.
func (p *Peer) unresponsive() bool {
	if p.now-p.lastReceived < p.tune.PeerTimeout {
		return false
	}
	for _, o := range p.owners {
		if it := o.lists[inFlight].head; it != nil && p.now-it.since >= p.tune.Resend {
			return true
		}
	}
	return false
}

func (p *Peer) closeUnresponsive() {
	message := fmt.Sprintf("no message for %d s and items are unacknowledged: the peer is connected but unresponsive", (p.now-p.lastReceived)/Second)
	p.emit(CloseSession{Session: p.session, Code: Unavailable, Message: message})
	p.close(Unavailable, message)
}

// begin starts the comparison of all scopes.
func (p *Peer) begin() {
	if p.phase != awaitingBegin {
		return
	}
	p.phase, p.initialSyncDone, p.lastReceived = opened, false, p.now
	if p.cfg.Hub {
		w := p.cfg.Welcome
		w.Epoch, w.Store, w.Known, w.Seen = p.epoch, p.own, p.other, p.Seen()
		w.Mode, w.Mapping = p.cfg.Mode, p.cfg.Mapping
		w.Protocol, w.Projection = p.protocol, p.projection
		w.ClockMillis = int64(p.now)
		w.Capabilities = p.announceScopes(w.Capabilities)
		p.send(w)
	}
	p.continueStore()
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			o.start()
		} else {
			p.replicas[cfg.Name].start()
		}
	}
	p.beaconNow()
	p.lastAnswer = p.now // the first beacons of both sides cross
	p.resendHoldsAt = p.now + p.tune.Beacon
	p.holdReported = map[string]bool{}
	if p.storeUntrusted {
		p.reportHold(p.storeHold(), "")
	}
	if p.outageReported = false; !p.cfg.Hub {
		p.resendWriteOutage()
	}
	early := p.early
	p.early, p.earlyBytes = nil, 0
	for _, m := range early {
		p.route(m)
	}
}

// checkStore compares the other side's store with what is known about it.
func (p *Peer) checkStore(store Store) {
	known := p.other
	if known.UID != "" && (store.UID != known.UID || store.Revision < known.Revision || known.Mark.lostIn(store.Mark)) {
		p.markStoreUntrusted()
	}
	p.current = store
	if !p.storeUntrusted { // otherwise the known store stays the reference until a user accepts the new one
		p.other = store
		p.other.Mark = known.Mark.Newer(store.Mark) // a process of an older release does not report its marks
	}
}

// known handles what is recorded about the other side.
func (p *Peer) known(in Known) {
	before, distrusted := p.recorded, p.recordedUntrusted
	p.recorded, p.recordedUntrusted = in.Store, in.StoreUntrusted
	if p.phase != closed {
		if in.Cluster != "" && in.Cluster != p.cfg.KnownCluster {
			p.closeClone(in.Cluster)
		}
		return
	}
	p.cfg.KnownCluster = in.Cluster
	accepted := distrusted && !in.StoreUntrusted
	switch {
	case in.Store == before: // the record is older than what this end has seen
	case p.other.UID == before.UID && in.Store.UID == before.UID && in.Store.Revision >= before.Revision && !before.Mark.lostIn(in.Store.Mark):
		p.other.Revision = max(p.other.Revision, in.Store.Revision)
		p.other.Mark = p.other.Mark.Newer(in.Store.Mark)
	default: // a user has accepted another store, or this one
		p.other, accepted = in.Store, true
	}
	if accepted {
		p.storeUntrusted, p.storeHoldID = false, ""
	}
	if in.StoreUntrusted {
		p.markStoreUntrusted()
	}
}

// remembered adds what another process of this agent knows about the hub. It only adds: knowing too much holds changes until
// a user confirms them, knowing too little accepts an older store.
func (p *Peer) remembered(in Remembered) {
	if p.phase != closed {
		return
	}
	if p.generation.Hub == "" {
		p.generation = in.Generation
	}
	p.generation, p.former = MergeGenerations(p.generation, slices.Concat(p.former, in.FormerGenerations, []HubGeneration{in.Generation})...)
	p.setInvented(in)
	defer func() {
		p.removals = KnownRemovals(MergeRemovals(p.removals, in.Removals), p.generation, p.other, p.storeUntrusted)
	}()
	if in.Store.UID == "" {
		return
	}
	if p.other.UID == "" {
		p.other = in.Store
	}
	if in.Store.UID == p.other.UID {
		p.other.Revision = max(p.other.Revision, in.Store.Revision)
		p.other.Mark = p.other.Mark.Newer(in.Store.Mark)
		for _, s := range in.Seen {
			if r := p.replicas[s.Scope]; r != nil {
				r.seen = max(r.seen, s.Revision)
			}
		}
	}
	if in.StoreUntrusted && !p.storeUntrusted {
		p.markStoreUntrusted()
	}
}

// closeClone closes a session that was opened before another cluster was recorded for this agent name.
func (p *Peer) closeClone(recorded string) {
	message := fmt.Sprintf("this name belongs to cluster %s, not to %s; confirm the new cluster on the hub if it replaces the old one", recorded, p.cfg.KnownCluster)
	p.cfg.KnownCluster = recorded
	p.emit(Send{Session: p.session, Message: Bye{Code: WrongCluster, Message: message}})
	p.close(WrongCluster, message)
	p.emit(CloseSession{Session: p.session, Code: WrongCluster, Message: message})
}

// sawRevision records how new the owner's objects are, unless its store is untrusted.
func (p *Peer) sawRevision(r *replica, revision uint64) {
	if p.storeUntrusted {
		p.successor.store.Revision = max(p.successor.store.Revision, revision)
		return
	}
	r.seen = max(r.seen, revision)
	p.other.Revision = max(p.other.Revision, revision)
}

// Seen returns the newest known revision of the other side's objects by scope. If nothing is known for a scope, it is
// the revision of the store when this process started.
func (p *Peer) Seen() []Seen {
	var out []Seen
	for _, r := range p.orderedReplicas {
		if r.cfg.Style != OneShot {
			out = append(out, Seen{r.cfg.Name, cmp.Or(r.seen, p.floor)})
		}
	}
	return out
}

func (p *Peer) markStoreUntrusted() {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", p.other.UID, p.other.Revision))
	p.storeUntrusted, p.storeHoldID = true, "store-"+hex.EncodeToString(sum[:8])
}

// common returns the highest version in both ranges.
func common(a, b Range) (int, bool) {
	top := min(a.Max, b.Max)
	return top, top >= max(a.Min, b.Min)
}
