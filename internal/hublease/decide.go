// Package hublease decides which hub of a group is active, with a Lease in a third cluster.
//
// The holder of the Lease is a hub, named by the UID of its cluster. All principal replicas of a hub renew it. The Lease also
// has the generation of its holder, which is the fencing token of agents.
//
//   - The active hub serves agents only while it holds the Lease. A replica that could not renew it in time ends its process
//     before the Lease expires, because the standby may take over then.
//   - A standby takes over after the holder has not renewed the Lease for its duration, by the clock of the standby. Clocks of
//     hubs are never compared. The standby first writes the Lease with the next generation, then its own state. If it is killed
//     between both writes, it continues after its start.
//   - A hub that returns and finds the Lease held by a hub of a later generation becomes the standby.
//
// Whose objects: the Lease belongs to the group, which an annotation names. Each write has the resourceVersion that was read,
// so that a decision from a stale view fails. The state of a hub is its own ConfigMap, written the same way.
//
// If the third cluster cannot be reached, the active hub stops serving agents: it cannot know whether the standby has taken
// over. Workloads are not affected.
package hublease

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
)

// record is the Lease as a hub has read it.
type record struct {
	exists     bool
	identity   string // of the group of hubs
	holder     string // UID of the holder's cluster; empty if the holder has given it up
	generation uint64 // of the holder
	expired    bool   // the holder has not renewed it for its duration
}

// action is what a hub does next.
type action uint8

const (
	wait          action = iota // read the Lease again later
	claim                       // write the Lease with this hub as the holder
	release                     // write the Lease without a holder
	becomeActive                // write the state of this hub
	becomeStandby               // write the state of this hub
)

// decision is an action with its generation. The reason is for users: why the hub does not serve agents, or does not take over.
type decision struct {
	action     action
	generation uint64
	reason     string
}

func waitFor(format string, args ...any) decision {
	return decision{action: wait, reason: fmt.Sprintf(format, args...)}
}

// decide returns what a hub with this cluster UID and state does.
func decide(clusterUID string, s hubstate.State, l record) decision {
	switch {
	case l.exists && l.identity != s.Identity:
		return waitFor("the Lease belongs to the hubs of identity %.64q, and this hub has identity %s; set another --hub-lease-name", l.identity, s.Identity)
	case l.generation > hubstate.MaxGeneration:
		return waitFor("the Lease has the invalid generation %d; correct it", l.generation)
	case s.Role == hubstate.Active:
		return decideActive(clusterUID, s, l)
	}
	return decideStandby(clusterUID, s, l)
}

func decideActive(clusterUID string, s hubstate.State, l record) decision {
	serve := decision{action: claim, generation: s.Generation}
	switch {
	case !l.exists:
		return serve
	case l.holder == clusterUID && l.generation > s.Generation: // an older state was restored, and no other hub has taken over
		return decision{action: becomeActive, generation: l.generation}
	case l.holder == clusterUID:
		return serve
	case l.generation > s.Generation:
		return decision{action: becomeStandby, generation: l.generation}
	case l.holder == "":
		return serve
	case l.generation == s.Generation:
		return waitFor("the hub with cluster UID %.64q is active with generation %d too; run `argocd-agentctl hub demote` on one of them", l.holder, l.generation)
	case l.expired:
		return serve
	}
	return waitFor("the hub with cluster UID %.64q still holds the Lease; it expires if that hub is lost", l.holder)
}

func decideStandby(clusterUID string, s hubstate.State, l record) decision {
	switch {
	case !l.exists:
		return waitFor("the active hub has not created the Lease")
	case l.holder == clusterUID && l.generation > s.Generation: // this hub took over and was interrupted
		return decision{action: becomeActive, generation: l.generation}
	case l.holder == clusterUID:
		return decision{action: release, generation: l.generation}
	case l.holder == "":
		return waitFor("the active hub was demoted; run `argocd-agentctl hub promote` on one of the hubs")
	case !l.expired:
		return waitFor("the hub with cluster UID %.64q holds the Lease", l.holder)
	case s.Predecessor.UID != l.holder || s.Predecessor.Revision == 0:
		return waitFor("the holder of the Lease, the hub with cluster UID %.64q, is lost, but this standby has not received all of its objects. "+
			"If it must take over, run `argocd-agentctl hub promote`", l.holder)
	}
	next := max(s.Generation, l.generation) + 1
	if next > hubstate.MaxGeneration {
		return waitFor("there is no generation after %d", hubstate.MaxGeneration)
	}
	return decision{action: claim, generation: next}
}

// stateAfter returns the state of a hub after a decision. A hub that becomes the standby has received nothing of the holder.
func stateAfter(s hubstate.State, d decision, l record) hubstate.State {
	s.Generation = d.generation
	if d.action == becomeStandby {
		s.Role, s.Predecessor = hubstate.Standby, engine.Store{UID: l.holder}
		return s
	}
	s.Role = hubstate.Active
	return s
}

// sameRole reports whether two states differ at most in what a standby has received.
func sameRole(a, b hubstate.State) bool {
	a.Predecessor = b.Predecessor
	return a == b
}
