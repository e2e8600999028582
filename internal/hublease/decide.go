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

// Record is the Lease as a hub has read it.
type Record struct {
	Exists     bool
	Identity   string // of the group of hubs
	Holder     string // UID of the holder's cluster; empty if the holder has given it up
	Generation uint64 // of the holder
	Expired    bool   // the holder has not renewed it for its duration
}

// Action is what a hub does next.
type Action uint8

const (
	Wait          Action = iota // read the Lease again later
	Claim                       // write the Lease with this hub as the holder
	Release                     // write the Lease without a holder
	BecomeActive                // write the state of this hub
	BecomeStandby               // write the state of this hub
)

// Decision is an action with its generation. The reason is for users: why the hub does not serve agents, or does not take over.
type Decision struct {
	Action     Action
	Generation uint64
	Reason     string
}

func waitFor(format string, args ...any) Decision {
	return Decision{Action: Wait, Reason: fmt.Sprintf(format, args...)}
}

// Decide returns what a hub with this cluster UID and state does.
func Decide(clusterUID string, s hubstate.State, l Record) Decision {
	switch {
	case l.Exists && l.Identity != s.Identity:
		return waitFor("the Lease belongs to the hubs of identity %.64q, and this hub has identity %s; set another --hub-lease-name", l.Identity, s.Identity)
	case l.Generation > hubstate.MaxGeneration:
		return waitFor("the Lease has the invalid generation %d; correct it", l.Generation)
	case s.Role == hubstate.Active:
		return decideActive(clusterUID, s, l)
	}
	return decideStandby(clusterUID, s, l)
}

func decideActive(clusterUID string, s hubstate.State, l Record) Decision {
	serve := Decision{Action: Claim, Generation: s.Generation}
	switch {
	case !l.Exists:
		return serve
	case l.Holder == clusterUID && l.Generation > s.Generation: // an older state was restored, and no other hub has taken over
		return Decision{Action: BecomeActive, Generation: l.Generation}
	case l.Holder == clusterUID:
		return serve
	case l.Generation > s.Generation:
		return Decision{Action: BecomeStandby, Generation: l.Generation}
	case l.Holder == "":
		return serve
	case l.Generation == s.Generation:
		return waitFor("the hub with cluster UID %.64q is active with generation %d too; run `argocd-agentctl hub demote` on one of them", l.Holder, l.Generation)
	case l.Expired:
		return serve
	}
	return waitFor("the hub with cluster UID %.64q still holds the Lease; it expires if that hub is lost", l.Holder)
}

func decideStandby(clusterUID string, s hubstate.State, l Record) Decision {
	switch {
	case !l.Exists:
		return waitFor("the active hub has not created the Lease")
	case l.Holder == clusterUID && l.Generation > s.Generation: // this hub took over and was interrupted
		return Decision{Action: BecomeActive, Generation: l.Generation}
	case l.Holder == clusterUID:
		return Decision{Action: Release, Generation: l.Generation}
	case l.Holder == "":
		return waitFor("the active hub was demoted; run `argocd-agentctl hub promote` on one of the hubs")
	case !l.Expired:
		return waitFor("the hub with cluster UID %.64q holds the Lease", l.Holder)
	case s.Predecessor.UID != l.Holder || s.Predecessor.Revision == 0:
		return waitFor("the holder of the Lease, the hub with cluster UID %.64q, is lost, but this standby has not received all of its objects. "+
			"If it must take over, run `argocd-agentctl hub promote`", l.Holder)
	}
	next := max(s.Generation, l.Generation) + 1
	if next > hubstate.MaxGeneration {
		return waitFor("there is no generation after %d", hubstate.MaxGeneration)
	}
	return Decision{Action: Claim, Generation: next}
}

// StateAfter returns the state of a hub after a decision. A hub that becomes the standby has received nothing of the holder.
func StateAfter(s hubstate.State, d Decision, l Record) hubstate.State {
	s.Generation = d.Generation
	if d.Action == BecomeStandby {
		s.Role, s.Predecessor = hubstate.Standby, engine.Store{UID: l.Holder}
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
