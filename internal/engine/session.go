package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// This file is about who is at the other end, and from when to when.

// connected begins a connection. The agent greets; the hub waits for that.
func (p *Peer) connected(in Connected) {
	p.own = in.Store
	if p.cfg.Hub {
		return
	}
	if p.phase != closed && p.session != in.Session {
		p.emit(CloseSession{Session: p.session, Code: Superseded, Message: "dialled again"})
	}
	p.close(Superseded, "dialled again")
	p.phase, p.session, p.epoch = greeting, in.Session, in.Epoch
	hello := p.cfg.Hello
	hello.Epoch, hello.Store, hello.Seen = in.Epoch, in.Store, p.Seen()
	hello.Mode, hello.Mapping = p.cfg.Mode, p.cfg.Mapping
	hello.Protocol = Range{ProtocolMin, ProtocolMax}
	hello.Projection = Range{ProjectionMin, ProjectionMax}
	hello.ClockMillis = int64(p.now)
	p.send(hello)
}

// close ends the session, if there is one. What was in flight is in doubt, and
// the next session settles it.
func (p *Peer) close(code Code, message string) {
	was := p.phase
	p.phase = closed
	p.early, p.earlyBytes = nil, 0
	if was == opened || was == opening {
		p.fact(Event{Event: Closed, Code: code, Message: message})
	}
}

// Session returns the session that is open or about to be.
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
		p.close(m.Code, m.Message)
		if !p.cfg.Hub {
			p.fact(Event{Event: Refused, Code: m.Code, Message: m.Message})
		}
		p.emit(CloseSession{Session: in.Session, Code: m.Code, Message: m.Message, RetryAfter: max(0, Time(m.RetryAfterMillis))})
	case Welcome:
		if !p.cfg.Hub && p.phase == greeting && m.Epoch == p.epoch {
			p.handleWelcome(m)
		}
	default:
		switch p.phase {
		case opened:
			p.route(in.Message)
		case opening:
			p.bufferEarly(in.Message)
		}
	}
}

// bufferEarly puts aside what the hub says after its Welcome while this side is not
// ready to compare. Else its first roots, tombstones and commands would be lost,
// and come again only after a minute.
func (p *Peer) bufferEarly(m Message) {
	if p.cfg.Hub {
		return // the agent cannot speak before it has been welcomed
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

// maxEarlyMessages is how many messages are put aside.
const maxEarlyMessages = 1024

// handleHello decides on the hub whether a session is let in.
func (p *Peer) handleHello(session uint64, m Hello) {
	if session == p.session && (p.phase != closed || m.Epoch == p.epoch) {
		return // doubled, or later than its own end
	}
	protocol, ok := common(m.Protocol, Range{ProtocolMin, ProtocolMax})
	projection, ok2 := common(m.Projection, Range{ProjectionMin, ProjectionMax})
	switch {
	case !ok || !ok2:
		p.refuse(session, WrongProtocol, fmt.Sprintf("no protocol version in common: the agent speaks %d to %d (projections %d to %d), the hub %d to %d (%d to %d); upgrade the older side",
			m.Protocol.Min, m.Protocol.Max, m.Projection.Min, m.Projection.Max, ProtocolMin, ProtocolMax, ProjectionMin, ProjectionMax))
	case m.Mode != p.cfg.Mode:
		p.refuse(session, WrongMode, fmt.Sprintf("this agent is registered as %s but runs as %s; change one of the two", p.cfg.Mode, m.Mode))
	case m.Mapping != p.cfg.Mapping:
		p.refuse(session, WrongMode, fmt.Sprintf("the hub maps Applications by %s but the agent by %s; change one of the two", p.cfg.Mapping, m.Mapping))
	case p.cfg.KnownCluster != "" && m.ClusterUID != p.cfg.KnownCluster:
		p.refuse(session, WrongCluster, fmt.Sprintf("this name belongs to cluster %s, not to %s; confirm the new cluster on the hub if it replaces the old one", p.cfg.KnownCluster, m.ClusterUID))
	case p.phase != closed && !m.Epoch.Newer(p.epoch):
		p.refuse(session, Superseded, "a newer session of this agent is connected")
	default:
		if p.phase != closed {
			old := p.session
			p.emit(Send{Session: old, Message: Bye{Code: Superseded, Message: "a newer session of this agent has connected"}})
			p.close(Superseded, "a newer session of this agent has connected")
			p.emit(CloseSession{Session: old, Code: Superseded, Message: "a newer session of this agent has connected"})
		}
		for _, scope := range p.heldScopes() { // the agent will say what it still holds
			p.heldReceived(Held{Scope: scope})
		}
		p.cfg.KnownCluster = m.ClusterUID
		p.phase, p.session, p.epoch = opening, session, m.Epoch
		p.protocol, p.projection = protocol, projection
		p.checkStore(m.Store)
		p.fact(Event{Event: Opened, Hello: &m, Store: m.Store})
	}
}

func (p *Peer) refuse(session uint64, code Code, message string) {
	p.emit(Send{Session: session, Message: Bye{Code: code, Message: message}})
	p.emit(CloseSession{Session: session, Code: code, Message: message})
	p.fact(Event{Event: Refused, Code: code, Message: message})
}

// handleWelcome opens the session on the agent.
func (p *Peer) handleWelcome(m Welcome) {
	if m.Protocol < ProtocolMin || m.Protocol > ProtocolMax || m.Projection < ProjectionMin || m.Projection > ProjectionMax {
		p.reject(WrongProtocol, "the hub chose a protocol version that this agent did not offer")
		return
	}
	if m.Mode != p.cfg.Mode || m.Mapping != p.cfg.Mapping {
		p.reject(WrongMode, fmt.Sprintf("the hub has this agent as %s by %s, but it runs as %s by %s", m.Mode, m.Mapping, p.cfg.Mode, p.cfg.Mapping))
		return
	}
	p.phase, p.protocol, p.projection = opening, m.Protocol, m.Projection
	p.fleetHold = slices.Contains(m.Capabilities, FleetHold)
	p.checkStore(m.Store)
	p.fact(Event{Event: Opened, Welcome: &m, Store: m.Store})
}

func (p *Peer) reject(code Code, message string) {
	p.send(Bye{Code: code, Message: message})
	p.emit(CloseSession{Session: p.session, Code: code, Message: message})
	p.fact(Event{Event: Refused, Code: code, Message: message})
	p.phase = closed
}

// unresponsive tells that the other side is most likely not listening although its
// connection lives: it leaves an item unanswered, and has not even sent a beacon
// for a long time. Who cannot read its own cluster sends none, but answers.
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

// closeUnresponsive ends a session that nobody listens to.
func (p *Peer) closeUnresponsive() {
	message := fmt.Sprintf("nothing was heard for %d s and items are left unanswered, although the connection lives: the other side hangs, or does not read", (p.now-p.lastReceived)/Second)
	p.emit(CloseSession{Session: p.session, Code: Unavailable, Message: message})
	p.close(Unavailable, message)
}

// begin starts the comparison of all scopes.
func (p *Peer) begin() {
	if p.phase != opening {
		return
	}
	p.phase, p.compared, p.lastReceived = opened, false, p.now
	if p.cfg.Hub {
		w := p.cfg.Welcome
		w.Epoch, w.Store, w.Seen = p.epoch, p.own, p.Seen()
		w.Mode, w.Mapping = p.cfg.Mode, p.cfg.Mapping
		w.Protocol, w.Projection = p.protocol, p.projection
		w.ClockMillis = int64(p.now)
		p.send(w)
	}
	for _, cfg := range p.cfg.Scopes {
		if o := p.owners[cfg.Name]; o != nil {
			o.start()
		} else {
			p.replicas[cfg.Name].start()
		}
	}
	p.beaconSoon()
	p.remindAt = p.now + p.tune.Beacon
	p.heldTold = map[string]bool{}
	if p.storeUntrusted {
		p.tellHeld(p.storeHold(), "")
	}
	early := p.early
	p.early, p.earlyBytes = nil, 0
	for _, m := range early {
		p.route(m)
	}
}

// checkStore compares the other side's store with what is known of it.
func (p *Peer) checkStore(store Store) {
	known := p.other
	if known.UID != "" && (store.UID != known.UID || store.Revision < known.Revision) {
		p.markStoreUntrusted()
	}
	p.current = store
	if !p.storeUntrusted { // else what was known stays the measure until somebody accepts it
		p.other = store
	}
}

// known takes over what is recorded of the other side.
func (p *Peer) known(in Known) {
	before, distrusted := p.recorded, p.recordedSuspect
	p.recorded, p.recordedSuspect = in.Store, in.Suspect
	if p.phase != closed {
		if in.Cluster != "" && in.Cluster != p.cfg.KnownCluster {
			p.cutClone(in.Cluster)
		}
		return
	}
	p.cfg.KnownCluster = in.Cluster
	accepted := distrusted && !in.Suspect
	switch {
	case in.Store == before: // the record lags behind what this end has seen
	case p.other.UID == before.UID && in.Store.UID == before.UID && in.Store.Revision > before.Revision:
		p.other.Revision = max(p.other.Revision, in.Store.Revision)
	default: // somebody has accepted another store, or this one as it is
		p.other, accepted = in.Store, true
	}
	if accepted {
		p.storeUntrusted, p.suspectID = false, ""
	}
	if in.Suspect {
		p.markStoreUntrusted()
	}
}

// cutClone ends a session that was let in before it was recorded that another
// cluster has this name.
func (p *Peer) cutClone(recorded string) {
	message := fmt.Sprintf("this name belongs to cluster %s, not to %s; confirm the new cluster on the hub if it replaces the old one", recorded, p.cfg.KnownCluster)
	p.cfg.KnownCluster = recorded
	p.emit(Send{Session: p.session, Message: Bye{Code: WrongCluster, Message: message}})
	p.close(WrongCluster, message)
	p.emit(CloseSession{Session: p.session, Code: WrongCluster, Message: message})
}

// sawRevision notes how new the owner's objects are. While its store is not
// believed, what was known before stays the measure.
func (p *Peer) sawRevision(r *replica, revision uint64) {
	if p.storeUntrusted {
		return
	}
	r.seen = max(r.seen, revision)
	p.other.Revision = max(p.other.Revision, revision)
}

// Seen lists how far this side knows the other's objects. A process that has
// just started, and was told nothing of a scope, knows only of the store as a whole.
func (p *Peer) Seen() []Seen {
	var out []Seen
	for _, cfg := range p.cfg.Scopes {
		if r := p.replicas[cfg.Name]; r != nil && cfg.Style != OneShot {
			revision := r.seen
			if revision == 0 {
				revision = p.floor
			}
			out = append(out, Seen{cfg.Name, revision})
		}
	}
	return out
}

func (p *Peer) markStoreUntrusted() {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", p.other.UID, p.other.Revision))
	p.storeUntrusted, p.suspectID = true, "store-"+hex.EncodeToString(sum[:8])
}

func (p *Peer) scopeNames() []string {
	names := make([]string, 0, len(p.cfg.Scopes))
	for _, cfg := range p.cfg.Scopes {
		names = append(names, cfg.Name)
	}
	return names
}

// common is the highest version that both ranges have.
func common(a, b Range) (int, bool) {
	top := min(a.Max, b.Max)
	return top, top >= max(a.Min, b.Min)
}
