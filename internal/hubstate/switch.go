package hubstate

import (
	"errors"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// This file decides which states a user's command gives to the hubs of a group. At no time may two hubs be active with the
// same generation.

// Hub is a hub with its state, as it was read.
type Hub struct {
	ClusterUID string
	State
}

// ErrSameHub is returned if both hubs are one.
var ErrSameHub = errors.New("both hubs are the same cluster")

// ErrGroups is returned if hubs have different identities.
var ErrGroups = errors.New("the hubs are of different groups")

// RoleError is returned if a hub has another role than needed.
type RoleError struct {
	Hub  Hub
	Need Role
}

func (e *RoleError) Error() string { return fmt.Sprintf("it is %s, not %s", e.Hub.Role, e.Need) }

// Promote returns the states of a standby that is promoted and of the other hub, which was demoted. The state of the other
// hub must be written first.
func Promote(h, other Hub) (promoted, demoted State, err error) {
	switch {
	case h.Role != Standby:
		return State{}, State{}, &RoleError{h, Standby}
	case h.ClusterUID == other.ClusterUID:
		return State{}, State{}, ErrSameHub
	case h.Identity != other.Identity:
		return State{}, State{}, ErrGroups
	case other.Role != Standby:
		return State{}, State{}, &RoleError{other, Standby}
	}
	promoted, demoted = h.State, other.State
	if h.Predecessor.UID != other.ClusterUID {
		promoted.Predecessor = engine.Store{UID: other.ClusterUID}
	}
	demoted.Generation = max(h.Generation, other.Generation) + 1
	return Activate(promoted, demoted.Generation), demoted, nil
}

// PromoteWithout returns the state of a standby that is promoted although the other hub cannot be reached.
func PromoteWithout(h Hub) (State, error) {
	if h.Role != Standby {
		return State{}, &RoleError{h, Standby}
	}
	return Activate(h.State, h.Generation+1), nil
}

// Activate returns the state of a hub that becomes active with a generation.
func Activate(s State, generation uint64) State {
	s.Role, s.Generation, s.WasActive, s.ProvenAt = Active, generation, generation, 0
	return s
}

// ErrNotAlone is returned if a hub has or had another hub.
var ErrNotAlone = errors.New("its identity, generation or predecessor comes from another hub")

// PromoteAlone returns the state of a hub that was only demoted. It was never promoted, and no other hub was promoted with
// its knowledge. It keeps its generation: if there is another hub nevertheless, which was promoted by force, agents that have
// seen it do not return.
func PromoteAlone(h Hub) (State, error) {
	alone := Alone(h.ClusterUID)
	demoted := Demote(Hub{h.ClusterUID, alone})
	h.WasActive = demoted.WasActive // older releases do not record it
	switch {
	case h.Role != Standby:
		return State{}, &RoleError{h, Standby}
	case h.State != demoted:
		return State{}, ErrNotAlone
	}
	return alone, nil
}

// Demote returns the state of a hub that stops serving agents.
func Demote(h Hub) State {
	next := h.State
	next.Role, next.WasActive = Standby, h.LastActive()
	return next
}

// ErrSuperseded is returned if the active hub has a lower generation than the one that is to follow it. Agents that have
// seen the later generation do not follow that hub, and a generation must not be used for two promotions.
var ErrSuperseded = errors.New("the active hub has a lower generation, so that agents may not follow it")

// ErrBothActive is returned if a hub is to follow one with the generation with which it is or was active itself. Agents that
// follow one of the two refuse the other one, and its objects must not be replaced before a user has decided between them.
var ErrBothActive = errors.New("both hubs were active with the same generation, so that agents may follow either of them")

// Follow returns the state of a hub that becomes the standby of an active one. If the identities differ, the hub must be
// empty, which the caller checks.
func Follow(h, active Hub) (State, error) {
	switch {
	case h.ClusterUID == active.ClusterUID:
		return State{}, ErrSameHub
	case active.Role != Active:
		return State{}, &RoleError{active, Active}
	case h.Identity == active.Identity && h.Generation > active.Generation:
		return State{}, ErrSuperseded
	case h.WasActiveWith(active.Identity, active.Generation):
		return State{}, ErrBothActive
	}
	next := State{Identity: active.Identity, Role: Standby, Generation: active.Generation, Predecessor: engine.Store{UID: active.ClusterUID}}
	if h.Predecessor.UID == active.ClusterUID {
		next.Predecessor, next.ProvenAt = h.Predecessor, h.ProvenAt
	}
	if h.Identity == active.Identity {
		next.WasActive = h.LastActive()
	}
	return next, nil
}

// FollowGeneration returns the state of a standby that meets an active hub with a later generation, so that a promotion of
// the standby exceeds it.
func FollowGeneration(s State, generation uint64) State {
	s.Generation = max(s.Generation, generation)
	return s
}

// Received returns the state of a standby that has received everything of a store up to its revision. The revision is lower
// than before if the active hub was restored from a backup and a user has confirmed that.
func Received(s State, store engine.Store) State {
	if store.Revision != 0 {
		s.Predecessor = store
	}
	return s
}

// Restored reports whether a store has lost a history mark that another hub knows, because it was restored from a backup. Its
// revisions were used twice then.
func Restored(known, now engine.HistoryMark) bool {
	return known.Number != 0 && (now.Record != known.Record || now.Number < known.Number)
}

// Compared returns the state of a hub that was found to have everything of its predecessor up to the revision of store, in a
// comparison of their objects. What a standby records by itself lags by up to a minute, so that agents would hold what was written
// in this time. The history mark of store is the one that the predecessor has for the hub. If it has lost a mark that the hub knows,
// its store was restored from a backup: revisions were used twice, and the record stays.
func Compared(s State, store engine.Store) State {
	known := s.Predecessor
	if store.UID == known.UID && known.Revision != 0 && !Restored(known.Mark, store.Mark) {
		s.Predecessor.Revision = max(known.Revision, store.Revision)
	}
	return s
}

// Proven is Received of a standby that was proven to have everything at a time, in seconds since 1970.
func Proven(s State, store engine.Store, at int64) State {
	if store.Revision != 0 {
		s = Received(s, store)
		s.ProvenAt = at
	}
	return s
}

// MayLack reports whether a standby may lack what the other hub has: that one was active after it, or it is not known which of
// them was active last. An older release leaves the records of before, but no hub was active with a later generation than its own.
func MayLack(h, other Hub) bool {
	after := h.LastActive() > other.LastActive() && h.LastActive() >= other.Generation
	return !after && !isFirst(h, other)
}

// UnknownLast reports whether it is not known which of two standbys was active last.
func UnknownLast(a, b Hub) bool { return MayLack(a, b) && MayLack(b, a) }

// isFirst reports whether a hub is the only one of a group that was active, although neither hub records that: an older release
// demoted it. The other hub follows it, and was never promoted, because the generation grows with every promotion. After a
// promotion, the predecessors do not show which hub was active last: a demoted hub may not have followed the other one yet.
func isFirst(h, other Hub) bool {
	return h.LastActive() == 0 && other.LastActive() == 0 && h.Generation == 1 && other.Generation == 1 &&
		h.Predecessor.UID != other.ClusterUID && other.Predecessor.UID == h.ClusterUID
}
