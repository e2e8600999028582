package engine

import (
	"fmt"
	"slices"
)

// This file reports holds to both ends and handles confirmations.

// storeHold returns the hold of an untrusted store, or the zero value.
func (p *Peer) storeHold() Held {
	if !p.storeUntrusted {
		return Held{}
	}
	if p.successor.begun {
		return Held{ID: p.storeHoldID, Cause: CauseStore, Reason: fmt.Sprintf("the hub was promoted and %s: deletions and updates of what it lacks, deleted items that it still has, and commands wait for a confirmation", p.lacking())}
	}
	return Held{ID: p.storeHoldID, Cause: CauseStore, Reason: "the peer's API server was restored from a backup or replaced: deletions, updates and commands wait for a confirmation"}
}

// lacking returns what a promoted hub lacks. The text of a hold is reported once, so it has a number only if that is certain.
func (p *Peer) lacking() string {
	forgotten := slices.ContainsFunc(p.removals, func(d Removal) bool { return d.Scope == "" && p.unreceived(d) }) // any number
	switch n := p.suspects() + p.unreceivedRemovals(); {
	case n == 0 || forgotten || !p.readAll():
		return "may lack the last changes of objects on this cluster"
	case n == 1:
		return "had not received the last changes of 1 item"
	default:
		return fmt.Sprintf("had not received the last changes of %d items", n)
	}
}

// reportHold reports a hold, or its end, to users on this side and to the hub.
func (p *Peer) reportHold(h Held, was string) {
	if h.ID != "" {
		p.emit(Event{Type: HoldStarted, Scope: h.Scope, Held: &h})
	} else {
		p.reportHoldEnded(h, was)
	}
	if !p.cfg.Hub && p.isOpen() {
		p.send(h)
		p.holdReported[h.Scope] = true
	}
}

// reportHoldEnded reports the end of the hold with ID was. Both sides may hold something in the same scope.
func (p *Peer) reportHoldEnded(h Held, was string) {
	h.ID = was
	p.emit(Event{Type: HoldEnded, Scope: h.Scope, Held: &h})
}

// resendHolds sends the holds to the hub again, because a lost message would leave a hold unknown and unconfirmed. The
// end of a hold is sent twice, because an older message may arrive after the first one.
func (p *Peer) resendHolds() {
	p.resendHoldsAt = p.now + p.tune.Beacon
	p.resendWriteOutage()
	remind := func(h Held) {
		if h.ID != "" || p.holdReported[h.Scope] {
			p.send(h)
		}
		if h.ID == "" {
			delete(p.holdReported, h.Scope)
		}
	}
	remind(p.storeHold())
	for _, r := range p.orderedReplicas {
		remind(*r.guard.describe(r))
	}
}

// handleHeld records on the hub what the agent holds.
func (p *Peer) handleHeld(h Held) {
	if !p.cfg.Hub || (h.Scope != "" && p.owner(h.Scope) == nil) {
		return
	}
	if h.ID != "" {
		was, had := p.remoteHolds[h.Scope]
		if was.ID == h.ID {
			return // sent again
		}
		if had && h.Scope == "" {
			// In a scope, the new ID replaces the old one. Both sides may hold their peer's store, so the end of the
			// old hold is reported.
			p.reportHoldEnded(Held{}, was.ID)
		}
		p.remoteHolds[h.Scope] = h
		p.emit(Event{Type: HoldStarted, Scope: h.Scope, Held: &h})
	} else if was, ok := p.remoteHolds[h.Scope]; ok {
		delete(p.remoteHolds, h.Scope)
		p.historyLost = p.historyLost && h.Scope != "" // a user has accepted this side's store
		p.reportHoldEnded(h, was.ID)
		for _, o := range p.orderedOwners { // on either side
			o.retryHeld()
		}
	}
}

// remoteHoldScopes returns the scopes in which the agent holds something.
func (p *Peer) remoteHoldScopes() []string {
	var out []string
	if _, ok := p.remoteHolds[""]; ok {
		out = append(out, "")
	}
	for _, cfg := range p.cfg.Scopes {
		if _, ok := p.remoteHolds[cfg.Name]; ok {
			out = append(out, cfg.Name)
		}
	}
	return out
}

// confirmed ends the hold with this ID. It reports whether there is one.
func (p *Peer) confirmed(id string) bool {
	if p.storeUntrusted && id == p.storeHoldID {
		p.acceptStore()
		return true
	}
	for _, r := range p.orderedReplicas {
		if r.guard.confirm(r, id) {
			return true
		}
	}
	for _, scope := range p.remoteHoldScopes() {
		if p.remoteHolds[scope].ID == id && p.isOpen() {
			p.send(Confirm{Scope: scope, ID: id})
			return true
		}
	}
	return false
}

// resendHold sends the hub what a scope holds, or that it holds nothing, because the hub forwarded a confirmation with
// another ID.
func (p *Peer) resendHold(scope string) {
	if r := p.replicas[scope]; r != nil {
		p.send(*r.guard.describe(r))
	} else if scope == "" {
		p.send(p.storeHold())
	}
}

// acceptStore accepts the other side's store as it is.
func (p *Peer) acceptStore() {
	was := p.storeHoldID
	p.trustStore()
	p.emit(Event{Type: StoreAccepted, Store: p.other})
	p.reportHold(Held{}, was)
	for _, r := range p.orderedReplicas {
		r.guard.release(r)
		r.askForRejected()
		r.setHorizon()
		r.startRound()
	}
}

// trustStore makes the other side's store, as it is, the known one.
func (p *Peer) trustStore() {
	p.acceptRemovals()
	p.storeUntrusted, p.storeHoldID, p.other = false, "", p.current
	p.floor, p.successor = 0, successor{}
	for _, r := range p.replicas {
		r.seen = 0
	}
}
