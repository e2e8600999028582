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
	promoted.Role, promoted.Generation = Active, demoted.Generation
	return promoted, demoted, nil
}

// PromoteWithout returns the state of a standby that is promoted although the other hub cannot be reached.
func PromoteWithout(h Hub) (State, error) {
	if h.Role != Standby {
		return State{}, &RoleError{h, Standby}
	}
	next := h.State
	next.Role, next.Generation = Active, h.Generation+1
	return next, nil
}

// ErrNotAlone is returned if a hub has or had another hub.
var ErrNotAlone = errors.New("its identity, generation or predecessor comes from another hub")

// PromoteAlone returns the state of a hub that was only demoted. It was never promoted, and no other hub was promoted with
// its knowledge. It keeps its generation: if there is another hub nevertheless, which was promoted by force, agents that have
// seen it do not return.
func PromoteAlone(h Hub) (State, error) {
	alone := Alone(h.ClusterUID)
	demoted := alone
	demoted.Role = Standby
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
	next.Role = Standby
	return next
}

// ErrSuperseded is returned if the active hub has a lower generation than the one that is to follow it. Agents that have
// seen the later generation do not follow that hub, and a generation must not be used for two promotions.
var ErrSuperseded = errors.New("the active hub has a lower generation, so that agents may not follow it")

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
	}
	next := State{Identity: active.Identity, Role: Standby, Generation: active.Generation, Predecessor: engine.Store{UID: active.ClusterUID}}
	if h.Predecessor.UID == active.ClusterUID {
		next.Predecessor = h.Predecessor
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
		s.Predecessor = engine.Store{UID: store.UID, Revision: store.Revision}
	}
	return s
}
