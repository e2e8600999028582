package engine

import (
	"cmp"
	"slices"
	"strings"
)

// This file is the part of a replica that deals with aliases: local objects that
// are not stored as the owner has them, and yet count as if they were. Without
// them both sides would write the same object forever.
//
// Harmless normalisation is taken as equal until something that it rests on
// changes. An alias that hides a difference is taken as equal for a while only:
// then the item is written once more, which shows whether the cause is still
// there. r.ends has the time.

// Alias lifetimes. Each is shortened by up to a half, by an amount of the item's
// own, so that many items are not written at once.
const (
	// A lossy alias ends after lossyFirst, then after longer and longer: an API
	// server may still serve the old schema shortly after its CRD has changed.
	lossyFirst = 60 * Second
	lossyMost  = 3600 * Second

	// fightMost is how long content is tolerated that was put back repeatedly.
	fightMost = 600 * Second

	// recheckMost is how soon an alias ends when what it rests on has changed.
	recheckMost = 10 * Second
)

// recordAlias records that the owner's version is stored as something else: by this
// side's API server, which has dropped or changed the fields in lost, if any.
func (r *replica) recordAlias(it *replicaItem, lost []string, written bool) {
	if it.alias != (Alias{Written: it.want, Stored: it.stored}) {
		it.checks = 0
	}
	life, message := Time(0), ""
	if len(lost) > 0 {
		life = jitter(backoff(lossyFirst, lossyMost, int(it.checks)), it.hash)
		message = "this side does not store these fields as they were written: " + strings.Join(lost, ", ")
	} else if written { // a write that changed nothing only repeats what was known
		message = "this side stores it differently from what was written; both versions are now taken as equal"
	}
	r.accept(it, KeepAlias{Lost: lost}, life, message)
}

// tolerate takes content that was put back repeatedly as equal for a while. It
// may have been put there by a user, or by another process of ours that has ended
// since, so no other process may rely on it, and the owner's content is written
// again in the end.
func (r *replica) tolerate(it *replicaItem) {
	message := "something on this side keeps changing it back; both versions are taken as equal for a while"
	lost := r.contested[it.hash]
	if len(lost) > 0 {
		message += ". Fields: " + strings.Join(lost, ", ")
	}
	r.accept(it, KeepAlias{Lost: lost, Brief: true}, jitter(fightMost, it.hash), message)
}

// accept takes what the object holds as equal to what the owner has. The alias
// ends after life; 0: it does not end by time alone.
func (r *replica) accept(it *replicaItem, keep KeepAlias, life Time, message string) {
	alias := Alias{Written: it.want, Stored: it.stored}
	news := it.alias != alias
	if it.checks < 250 {
		it.checks++
	}
	r.setAlias(it, alias, life != 0)
	delete(r.redo, it.hash)
	if life != 0 {
		r.endBy(it, r.peer.now+life)
	}
	r.update(it)
	keep.Scope, keep.Key, keep.Alias = r.cfg.Name, it.key, alias
	r.peer.emit(keep)
	if news && message != "" {
		r.peer.fact(Event{Event: Aliased, Scope: r.cfg.Name, Key: it.key, Message: message})
	}
}

// recorded takes an alias that was found on the object, unless it says nothing
// of what the object holds now, or what was learnt just now is not recorded yet.
func (r *replica) recorded(it *replicaItem, in Observe) {
	learnt := Alias{Written: it.want, Stored: in.Stored}
	if in.Alias.Written.IsZero() || in.Alias.Stored != in.Stored || in.Alias == it.alias || !it.want.IsZero() && it.alias == learnt {
		return
	}
	r.setAlias(it, in.Alias, in.Lossy)
	it.checks = 0
	if in.Lossy {
		r.endBy(it, r.peer.now+jitter(lossyMost, it.hash))
	}
}

// setAlias replaces an item's alias; it does not end by time.
func (r *replica) setAlias(it *replicaItem, alias Alias, lossy bool) {
	it.alias, it.lossy, it.ended = alias, lossy, false
	delete(r.ends, it.hash)
}

// endBy makes an alias end at a time, if it would not end before.
func (r *replica) endBy(it *replicaItem, at Time) {
	if t, ok := r.ends[it.hash]; ok && t <= at {
		return
	}
	r.ends[it.hash] = at
	r.wakeBy(at)
}

// endAlias makes the item differ again, so that it is written once more. It
// remembers the alias: learning the same again is no news.
func (r *replica) endAlias(it *replicaItem) {
	r.assumeOwnerVersion(it)
	it.ended = true
	it.overwrites = min(it.overwrites, 1)
	r.update(it)
}

// recheck ends aliases soon: what they rest on has changed.
func (r *replica) recheck(in Recheck) {
	for _, h := range sortedHashes(r.items) {
		it := r.items[h]
		if it.alias != (Alias{}) && !it.ended && (in.Key == Key{} || in.Key == it.key) {
			it.checks = 0
			r.endBy(it, r.peer.now+jitter(recheckMost, h))
		}
	}
}

// inForce reports whether the alias says what the object holds.
func (it *replicaItem) inForce() bool {
	return !it.ended && it.alias.Stored == it.stored && !it.alias.Written.IsZero()
}

// lossy counts the objects that are taken as equal although this side does not
// store them as the owner has them.
func (r *replica) lossy() int {
	n := 0
	for h := range r.ends {
		if it := r.items[h]; it != nil && it.lossy && it.inForce() {
			n++
		}
	}
	return n
}

// due takes out of times what has come, in one order, and makes sure that there is a
// wake for the rest.
func (r *replica) due(times map[KeyHash]Time) []KeyHash {
	var due []KeyHash
	for h, t := range times {
		if t > r.peer.now {
			r.wakeBy(t)
			continue
		}
		due = append(due, h)
		delete(times, h)
	}
	slices.SortFunc(due, cmp.Compare[KeyHash])
	return due
}
