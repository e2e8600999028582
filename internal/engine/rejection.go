package engine

import "strings"

// This file returns what is known about a single item. A rejection belongs to the session in which the replica gave it:
// the next session requests the item again.

// Rejection is why the replica does not accept an item.
type Rejection struct {
	Code    Code
	Message string
	Version Version // owner: of the item that was rejected
}

// Rejection returns why an item is rejected in the open session. It returns false if the item is not known to be
// rejected.
func (p *Peer) Rejection(scope string, key Key) (Rejection, bool) {
	if !p.isOpen() {
		return Rejection{}, false
	}
	if o := p.owners[scope]; o != nil {
		it := o.items[key.Hash()]
		switch {
		case it == nil:
		case it.key != key:
			return Rejection{Code: NameTaken, Message: collision(it.key)}, true
		case it.reject != nil && it.reject.session == p.session:
			return Rejection{Code: it.reject.code, Message: it.reject.message, Version: it.reject.version}, true
		}
	}
	if r := p.replicas[scope]; r != nil {
		if it := r.get(key); it != nil && it.problem != nil && it.problem.session == p.session {
			return Rejection{Code: it.problem.code, Message: it.problem.message, Version: it.want}, true
		}
	}
	return Rejection{}, false
}

// Accepted reports whether the open session knows that the replica has an item as the owner has it, or that the owner
// does not send it.
func (p *Peer) Accepted(scope string, key Key) bool {
	if !p.isOpen() {
		return false
	}
	if o := p.owners[scope]; o != nil {
		it := o.items[key.Hash()]
		return it == nil || it.key == key && it.reject == nil && it.state == clean && it.seq != 0
	}
	if r := p.replicas[scope]; r != nil {
		it := r.get(key)
		return it != nil && it.problem == nil && it.ticket == 0 && it.exists && it.owned && !it.want.IsZero() && it.effective() == it.want
	}
	return false
}

// Withdrawn reports whether the owner is known to have given up an item of a mirror scope whose object is still here: its
// deletion is held, pending or failed.
func (p *Peer) Withdrawn(scope string, key Key) bool {
	r := p.replicas[scope]
	if r == nil {
		return false
	}
	it := r.get(key)
	return it != nil && (it.state == itemHeld || it.mayRemove() || it.write != applying && it.want.IsZero() && it.seq != 0)
}

// Wanted reports whether the owner has an item, as far as the last session has shown: it sent the item or, when both sides
// were in sync, this side had it. It is false if that session ended before it showed it, and before the first session.
func (p *Peer) Wanted(scope string, key Key) bool {
	r := p.replicas[scope]
	if r == nil {
		return false
	}
	it := r.get(key)
	return it != nil && !it.want.IsZero()
}

func collision(other Key) string {
	return "its key hash collides with that of " + other.String() + "; rename one of the two"
}

// problem is why a replica rejected an item, and in which session.
type problem struct {
	code    Code
	message string  // empty if no object can show it
	why     Version // hash of code and message
	session uint64
}

// newProblem keeps a message only if there is an object: a peer may send any number of keys without one.
func newProblem(code Code, message string, exists bool, session uint64) *problem {
	p := &problem{code: code, why: VersionOf([]byte(string(code) + ": " + message)), session: session}
	if exists {
		p.message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "")
	}
	return p
}

// maxMessage is the length of a message on the wire.
const maxMessage = 1024

// clearEarlierProblems clears problems of earlier sessions. The items were found equal in this session without being
// sent again: a write that timed out may have succeeded.
func (r *replica) clearEarlierProblems() {
	if r.problems == 0 {
		return
	}
	for _, h := range sortedHashes(r.items) {
		if it := r.items[h]; it.problem != nil && it.problem.session != r.peer.session {
			r.clearProblem(it)
		}
	}
}
