package engine

import (
	"cmp"
	"slices"
	"strings"
)

// This file is the part of a replica that deals with aliases: local objects that are stored differently from what the
// owner has, and still count as equal. Without aliases both sides would write the same object forever.
//
// An alias that hides a harmless normalization ends when the CRD or a release changes. An alias that hides a difference
// also ends by time (r.aliasEnds). The item is then written once more, which shows whether the cause still exists.

// Alias lifetimes. jitter shortens each, so that many items are not written at once.
const (
	// A lossy alias ends after minLossyLifetime, doubled each time: an API server may still serve the old schema
	// shortly after its CRD has changed.
	minLossyLifetime = 60 * Second
	maxLossyLifetime = 3600 * Second

	// contestedLifetime is how long content is accepted that was restored repeatedly.
	contestedLifetime = 600 * Second

	// maxRecheckDelay is how soon an alias ends after the CRD or a release has changed.
	maxRecheckDelay = 10 * Second
)

// recordAlias records that this side's API server stores the owner's version differently. If lost is not empty, the API
// server dropped or changed these fields.
func (r *replica) recordAlias(it *replicaItem, lost []string, written bool) {
	if it.alias != (Alias{Written: it.want, Stored: it.stored}) {
		it.checks = 0
	}
	life, message := Time(0), ""
	if len(lost) > 0 {
		life = jitter(backoff(minLossyLifetime, maxLossyLifetime, int(it.checks)), it.hash)
		message = "this side does not store these fields as they were written: " + strings.Join(lost, ", ")
	} else if written { // a write that changed nothing repeats what was known
		message = "this side stores it differently from what was written; both versions now count as equal"
	}
	r.acceptStored(it, RecordAlias{Lost: lost}, life, message)
}

// acceptContested accepts content for a while that was restored repeatedly. A user may have written it, or another
// process of ours that has ended since. So no other process may rely on the alias, and the owner's content is written
// again later.
func (r *replica) acceptContested(it *replicaItem) {
	message := "something on this side keeps overwriting it; drift correction is paused and both versions count as equal"
	lost := r.contested[it.hash]
	if len(lost) > 0 {
		message += ". Fields: " + strings.Join(lost, ", ")
	}
	r.acceptStored(it, RecordAlias{Lost: lost, Temporary: true}, jitter(contestedLifetime, it.hash), message)
}

// acceptStored records that what the object contains counts as equal to what the owner has. If life is 0, the alias
// does not end by time.
func (r *replica) acceptStored(it *replicaItem, keep RecordAlias, life Time, message string) {
	alias := Alias{Written: it.want, Stored: it.stored}
	news := it.alias != alias
	if it.checks < 250 {
		it.checks++
	}
	r.setAlias(it, alias, life != 0)
	delete(r.diverged, it.hash)
	if life != 0 {
		r.endBy(it, r.peer.now+life)
	}
	r.update(it)
	keep.Scope, keep.Key, keep.Alias = r.cfg.Name, it.key, alias
	r.peer.emit(keep)
	if news && message != "" {
		r.peer.emit(Event{Type: Aliased, Scope: r.cfg.Name, Key: it.key, Message: message})
	}
}

// readRecordedAlias takes an alias that was found on the object. It ignores an alias that does not describe what the
// object contains now, and one that is older than what this process has recorded.
func (r *replica) readRecordedAlias(it *replicaItem, in Observe) {
	learnt := Alias{Written: it.want, Stored: in.Stored}
	if in.Alias.Written.IsZero() || in.Alias.Stored != in.Stored || in.Alias == it.alias || !it.want.IsZero() && it.alias == learnt {
		return
	}
	r.setAlias(it, in.Alias, in.Lossy)
	it.checks = 0
	switch {
	case in.Outdated: // recheck did not know it: the item had another alias then
		r.endBy(it, r.peer.now+jitter(maxRecheckDelay, it.hash))
	case in.Lossy:
		r.endBy(it, r.peer.now+jitter(maxLossyLifetime, it.hash))
	}
}

// setAlias replaces an item's alias. The new alias does not end by time.
func (r *replica) setAlias(it *replicaItem, alias Alias, lossy bool) {
	it.alias, it.aliasState = alias, aliasHarmless
	if lossy {
		it.aliasState = aliasLossy
	}
	delete(r.aliasEnds, it.hash)
}

// endBy makes an alias end at a time, unless it ends earlier.
func (r *replica) endBy(it *replicaItem, at Time) {
	if t, ok := r.aliasEnds[it.hash]; ok && t <= at {
		return
	}
	r.aliasEnds[it.hash] = at
	r.wakeBy(at)
}

// endAlias makes the item differ again, so that it is written once more. It keeps the alias, so that recording the same
// alias again is not reported.
func (r *replica) endAlias(it *replicaItem) {
	r.assumeOwnerVersion(it)
	it.aliasState = aliasEnded
	it.overwrites = min(it.overwrites, 1)
	r.update(it)
}

// recheck ends aliases soon, because the CRD or a release has changed.
func (r *replica) recheck(in Recheck) {
	for _, h := range sortedHashes(r.items) {
		it := r.items[h]
		if it.alias != (Alias{}) && it.aliasState != aliasEnded && (in.Key == Key{} || in.Key == it.key) {
			it.checks = 0
			r.endBy(it, r.peer.now+jitter(maxRecheckDelay, h))
		}
	}
}

// aliasActive reports whether the alias describes what the object contains.
func (it *replicaItem) aliasActive() bool {
	return it.aliasState != aliasEnded && it.alias.Stored == it.stored && !it.alias.Written.IsZero()
}

// lossy counts the objects that count as equal although this side does not store them as the owner has them.
func (r *replica) lossy() int {
	n := 0
	for h := range r.aliasEnds {
		if it := r.items[h]; it != nil && it.aliasState == aliasLossy && it.aliasActive() {
			n++
		}
	}
	return n
}

// due removes from times what is due and returns it sorted. It schedules a wake for the rest.
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

// acceptUnchanged records that what the object contains counts as equal, because the item asks to leave the object as
// it is. This alias is not recorded on the object and not reported. It ends with the next item for the key, and when
// the object changes.
func (r *replica) acceptUnchanged(it *replicaItem) {
	if !it.exists || !it.owned || it.want.IsZero() {
		return
	}
	r.setAlias(it, Alias{Written: it.want, Stored: it.stored}, false)
	delete(r.diverged, it.hash)
	r.update(it)
}
