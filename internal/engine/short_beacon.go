package engine

import (
	"crypto/sha256"
	"encoding/binary"
)

// This file compares all scopes of both directions with one hash. While nothing differs, a beacon and its answer are an
// Equal each, instead of roots and acknowledgments for each scope. The agent begins. The hub answers with Equal, or with
// its Roots if something differs.

// shortBeacon is the capability of a hub that answers Equal.
const shortBeacon = "short-beacon"

// combinedSum returns a hash of the digests of all scopes that this side can compare: it has read all objects, and the
// other side knows the scope. If the other side can compare other scopes, its sum differs. It does not depend on the order
// of the scopes.
func (p *Peer) combinedSum() (total Sum) {
	for _, o := range p.orderedOwners {
		if o.cfg.Style != OneShot && o.complete && !o.unshared {
			total = total.add(scopeSum(o.cfg.Name, &o.digest))
		}
	}
	for _, r := range p.orderedReplicas {
		if r.cfg.Style != OneShot && r.complete && !r.unshared {
			total = total.add(scopeSum(r.cfg.Name, &r.digest))
		}
	}
	return total
}

func scopeSum(scope string, d *Digest) Sum {
	b := binary.BigEndian.AppendUint64(nil, uint64(d.Len()))
	b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, d.Sum().Hi), d.Sum().Lo)
	h := sha256.Sum256(append(b, scope...))
	return Sum{Hi: binary.BigEndian.Uint64(h[:8]), Lo: binary.BigEndian.Uint64(h[8:16])}
}

// sendShortBeacon sends Equal if everything was found equal since the last beacon. Otherwise it reports false, and the
// beacon has the roots. So an Equal without an answer is followed by roots. A beacon out of turn has roots as well: it is
// sent because something has changed.
func (p *Peer) sendShortBeacon(last Time) bool {
	if p.cfg.Hub || !p.shortBeacons || len(p.equalRoots) > 0 || p.now-last < p.tune.Beacon {
		return false
	}
	for _, o := range p.orderedOwners {
		if o.cfg.Style != OneShot && !o.unshared && (!o.inSync || o.inSyncAt < last) {
			return false
		}
	}
	for _, r := range p.orderedReplicas {
		if r.cfg.Style != OneShot && !r.unshared && (!r.inSync || r.inSyncAt < last) {
			return false
		}
	}
	p.shortSent = true
	p.sendEqual(p.combinedSum())
	return true
}

func (p *Peer) sendEqual(sum Sum) {
	out := Equal{Sum: sum, Mark: p.own.Mark.Number}
	for _, o := range p.orderedOwners {
		if root, ok := o.root(); ok && root.Revision != o.sentRevision {
			out.Seen = append(out.Seen, Seen{Scope: root.Scope, Revision: root.Revision})
			o.sentRevision = root.Revision
		}
	}
	p.send(out)
}

// equalReceived compares the other side's combined sum with this side's. If they are equal, every scope is in sync.
func (p *Peer) equalReceived(m Equal) {
	p.sawMark(m.Mark)
	for _, s := range m.Seen {
		if r := p.replica(s.Scope); r != nil {
			p.sawRevision(r, s.Revision)
			r.rootSeen = s.Revision
		}
	}
	sum := p.combinedSum()
	equal := sum == m.Sum
	if equal {
		p.allEqual()
	}
	switch {
	case !p.cfg.Hub:
		p.shortSent = p.shortSent && !equal
	case equal:
		p.lastAnswer = p.now
		p.scheduleBeacon()
		p.sendEqual(sum)
	default:
		p.answerBeacon()
	}
}

// allEqual records that the other side has the same digest of every scope.
func (p *Peer) allEqual() {
	for _, o := range p.orderedOwners {
		if root, ok := o.root(); ok {
			o.same(root.Sum)
		}
	}
	for _, r := range p.orderedReplicas {
		if !r.unshared {
			r.rootReceived(Root{Count: uint64(r.digest.Len()), Sum: r.digest.Sum(), Revision: r.rootSeen})
		}
	}
}
