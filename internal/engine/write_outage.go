package engine

// setWriteOutage records on the agent whether its API server accepts writes, and sends changes to the hub.
func (p *Peer) setWriteOutage(reason string) {
	if p.cfg.Hub || reason == p.writeOutage {
		return
	}
	p.writeOutage = reason
	if p.isOpen() {
		p.outageReported = true
		p.send(WriteOutage{Reason: reason})
	}
}

// resendWriteOutage sends an outage with every beacon, because messages can be lost. The end of an outage is sent
// twice, because an older message may arrive after the first one.
func (p *Peer) resendWriteOutage() {
	if p.writeOutage != "" || p.outageReported {
		p.send(WriteOutage{Reason: p.writeOutage})
	}
	p.outageReported = p.writeOutage != ""
}

// handleWriteOutage records on the hub what the agent reports.
func (p *Peer) handleWriteOutage(m WriteOutage) {
	if p.cfg.Hub && m.Reason != p.writeOutage {
		p.writeOutage = m.Reason
		p.emit(Event{Type: WriteOutageSet, Message: m.Reason})
	}
}
