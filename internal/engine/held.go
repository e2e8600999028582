package engine

// This file is about what waits for a person's word, and how both ends know of it.

func (p *Peer) storeHold() Held {
	return Held{ID: p.suspectID, Cause: CauseStore, Reason: "the other side's store went back in time or is another one: deletions, updates and commands wait for a confirmation"}
}

// tellHeld makes known what is held back: to people here, and to the hub.
func (p *Peer) tellHeld(h Held, was string) {
	if h.ID != "" {
		p.fact(Event{Event: HoldStarted, Scope: h.Scope, Held: &h})
	} else {
		p.unheld(h, was)
	}
	if !p.cfg.Hub && p.isOpen() {
		p.send(h)
		p.heldTold[h.Scope] = true
	}
}

// unheld makes known that something is not held back any more: what that was,
// for in a scope's name alone both sides may hold something.
func (p *Peer) unheld(h Held, was string) {
	h.ID = was
	p.fact(Event{Event: HoldEnded, Scope: h.Scope, Held: &h})
}

// remindHeld tells the hub again what it may not have heard: nothing else would
// bring it up, and nobody confirms what nobody knows of. That nothing is held any
// more is said twice, for the word before it may have been the later to arrive.
func (p *Peer) remindHeld() {
	p.remindAt = p.now + p.tune.Beacon
	remind := func(h Held) {
		if h.ID != "" || p.heldTold[h.Scope] {
			p.send(h)
		}
		if h.ID == "" {
			delete(p.heldTold, h.Scope)
		}
	}
	if p.storeUntrusted {
		remind(p.storeHold())
	} else {
		remind(Held{})
	}
	for _, cfg := range p.cfg.Scopes {
		if r := p.replicas[cfg.Name]; r != nil {
			remind(*r.guard.describe(r))
		}
	}
}

// heldReceived notes on the hub what the agent holds back.
func (p *Peer) heldReceived(h Held) {
	if !p.cfg.Hub || (h.Scope != "" && p.owner(h.Scope) == nil) {
		return
	}
	if h.ID != "" {
		was, had := p.remoteHeld[h.Scope]
		if was.ID == h.ID {
			return // a reminder
		}
		if had && h.Scope == "" {
			// Of a scope, the new ID takes the place of the old one. About the store
			// as a whole both sides may hold something, so the old one is taken back.
			p.unheld(Held{}, was.ID)
		}
		p.remoteHeld[h.Scope] = h
		p.fact(Event{Event: HoldStarted, Scope: h.Scope, Held: &h})
	} else if was, ok := p.remoteHeld[h.Scope]; ok {
		delete(p.remoteHeld, h.Scope)
		p.unheld(h, was.ID)
		for _, cfg := range p.cfg.Scopes { // whoever it was that confirmed, and where
			if o := p.owners[cfg.Name]; o != nil {
				o.retryHeld()
			}
		}
	}
}

// heldScopes lists the scopes in which the agent holds something back.
func (p *Peer) heldScopes() []string {
	var out []string
	for _, scope := range append([]string{""}, p.scopeNames()...) {
		if _, ok := p.remoteHeld[scope]; ok {
			out = append(out, scope)
		}
	}
	return out
}

// confirmed lets go ahead what a person has looked at. It reports whether anything
// of that ID waits.
func (p *Peer) confirmed(id string) bool {
	if p.storeUntrusted && id == p.suspectID {
		p.acceptStore()
		return true
	}
	for _, cfg := range p.cfg.Scopes {
		if r := p.replicas[cfg.Name]; r != nil && r.guard.confirm(r, id) {
			return true
		}
	}
	for _, scope := range p.heldScopes() {
		if p.remoteHeld[scope].ID == id && p.isOpen() {
			p.send(Confirm{Scope: scope, ID: id})
			return true
		}
	}
	return false
}

// repeatHeld tells the hub what a scope holds back, or that it holds nothing: the
// hub has passed on a confirmation of something else.
func (p *Peer) repeatHeld(scope string) {
	switch r := p.replicas[scope]; {
	case r != nil:
		p.send(*r.guard.describe(r))
	case scope != "":
	case p.storeUntrusted:
		p.send(p.storeHold())
	default:
		p.send(Held{})
	}
}

// acceptStore accepts the other side's store as it is.
func (p *Peer) acceptStore() {
	was := p.suspectID
	p.storeUntrusted, p.suspectID, p.other = false, "", p.current
	p.floor = 0
	for _, r := range p.replicas {
		r.seen = 0
	}
	p.fact(Event{Event: StoreAccepted, Store: p.other})
	p.tellHeld(Held{}, was)
	for _, cfg := range p.cfg.Scopes {
		if r := p.replicas[cfg.Name]; r != nil {
			r.guard.release(r)
			r.askForHeldUpdates()
			r.setHorizon()
			r.startRound()
		}
	}
}
