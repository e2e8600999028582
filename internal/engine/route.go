package engine

// route passes a message of the open session to its scope.
func (p *Peer) route(m Message) {
	switch m := m.(type) {
	case Roots:
		p.sawMark(m.Mark)
		for _, root := range m.Items {
			r := p.replica(root.Scope)
			if r == nil {
				continue
			}
			p.sawRevision(r, root.Revision)
			if r.rootReceived(root) {
				p.equalRoots = append(p.equalRoots, Root{Scope: root.Scope, Sum: root.Sum})
			}
		}
		p.same(m.Same)
		p.answerBeacon()
	case Equal:
		p.equalReceived(m)
	case Same:
		p.same(m.Items)
	case Ask:
		if o := p.owner(m.Scope); o != nil {
			o.answer(m)
		}
	case Answer:
		if r := p.replica(m.Scope); r != nil {
			r.answered(m)
		}
	case Want:
		if o := p.owner(m.Scope); o != nil {
			o.wanted(m.Hashes)
		}
	case Delta:
		p.delta(m)
	case Ack:
		if o := p.owner(m.Scope); o != nil {
			for _, it := range m.Items {
				o.acked(it)
			}
		}
	case Finished:
		if o := p.owner(m.Scope); o != nil {
			o.finished(m.Key, m.Version)
		}
	case Held:
		p.handleHeld(m)
	case WriteOutage:
		p.handleWriteOutage(m)
	case Confirm:
		if !p.cfg.Hub { // an agent cannot confirm what the hub holds
			if !p.confirmed(m.ID) {
				p.resendHold(m.Scope)
			}
		}
	}
}

func (p *Peer) same(roots []Root) {
	for _, root := range roots {
		if o := p.owner(root.Scope); o != nil {
			o.same(root.Sum)
		}
	}
}

func (p *Peer) owner(scope string) *owner {
	o := p.owners[scope]
	if o == nil || o.unshared {
		p.unexpected++
		return nil
	}
	return o
}

func (p *Peer) replica(scope string) *replica {
	r := p.replicas[scope]
	if r == nil || r.unshared {
		p.unexpected++
		return nil
	}
	return r
}

func (p *Peer) delta(m Delta) {
	r := p.replica(m.Scope)
	if r != nil {
		p.sawRevision(r, m.Revision)
		for _, it := range m.Items {
			r.delta(it, m.View)
		}
		return
	}
	out := Ack{Scope: m.Scope}
	for _, it := range m.Items {
		out.Items = append(out.Items, AckItem{Seq: it.Seq, Key: it.Key, Version: it.Version, Code: NotAllowed,
			Message: "this side accepts no items of this scope; check that both sides have the same agent mode"})
	}
	p.send(out)
}
