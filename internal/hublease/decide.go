// Package hublease decides which hub of a group is active, with a Lease in a third cluster.
//
// The holder of the Lease is a hub, named by the UID of its cluster. All principal replicas of a hub renew it. The Lease also
// has the generation of its holder, which is the fencing token of agents.
//
//   - The active hub serves agents only while it holds the Lease. A replica that could not renew it in time ends its process
//     before the Lease expires, because the standby may take over then.
//   - A standby takes over after the holder has not renewed the Lease for its duration, by the clock of the standby. Clocks of
//     hubs are never compared. The standby must have had all objects of the holder recently (Behind). It first writes the Lease
//     with the next generation, then its own state. If it is killed between both writes, it continues after its start.
//   - A hub that returns and finds the Lease held by a hub of a later generation becomes the standby.
//
// Whose objects: the Lease belongs to the group, which an annotation names. Each write has the resourceVersion that was read,
// so that a decision from a stale view fails. The state of a hub is its own ConfigMap, written the same way.
//
// If the third cluster cannot be reached, the active hub stops serving agents: it cannot know whether the standby has taken
// over. Workloads are not affected.
//
// Periods are measured with the monotonic clock, so that a wall clock that is set changes no decision but Behind. A machine that
// is suspended stops this clock. The hub then notices at its next renewal that it was replaced. Until then the generation
// protects agents: one that has followed the new hub refuses the old one.
package hublease

import (
	"fmt"
	"time"

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

// Decide returns what a hub with this cluster UID and state does. behind is the result of Behind for a standby.
func Decide(clusterUID string, s hubstate.State, l Record, behind string) Decision {
	switch {
	case l.Exists && l.Identity != s.Identity:
		return waitFor("the Lease belongs to the hubs of identity %.64q, and this hub has identity %s; set another --hub-lease-name", l.Identity, s.Identity)
	case l.Generation > hubstate.MaxGeneration:
		return waitFor("the Lease has the invalid generation %d; correct it", l.Generation)
	case s.Role == hubstate.Active:
		return decideActive(clusterUID, s, l)
	}
	return decideStandby(clusterUID, s, l, behind)
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
		return waitFor("the hub with cluster UID %.64q is active with generation %d too; demote both with `argocd-agentctl hub demote`, "+
			"and promote the one that must be active with `argocd-agentctl hub promote --accept-loss`", l.Holder, l.Generation)
	case l.Expired:
		return serve
	}
	return waitFor("the hub with cluster UID %.64q still holds the Lease; it expires if that hub is lost", l.Holder)
}

func decideStandby(clusterUID string, s hubstate.State, l Record, behind string) Decision {
	switch {
	case !l.Exists:
		return waitFor("the active hub has not created the Lease")
	case l.Holder == clusterUID && l.Generation > s.Generation: // this hub took over and was interrupted
		return Decision{Action: BecomeActive, Generation: l.Generation}
	case l.Holder == clusterUID:
		return Decision{Action: Release, Generation: l.Generation}
	case l.Holder == "":
		return waitFor("the active hub was demoted; run `argocd-agentctl hub promote` on one of the hubs")
	case !l.Expired && behind != "":
		return waitFor("the hub with cluster UID %.64q holds the Lease, and this standby must not take over: %s", l.Holder, behind)
	case !l.Expired:
		return waitFor("the hub with cluster UID %.64q holds the Lease", l.Holder)
	case s.Predecessor.UID != l.Holder || s.Predecessor.Revision == 0:
		return waitFor("the holder of the Lease, the hub with cluster UID %.64q, is lost, but this standby has not received all of its objects. "+
			"If it must take over, run `argocd-agentctl hub promote`", l.Holder)
	case behind != "":
		return waitFor("the holder of the Lease, the hub with cluster UID %.64q, is lost, but %s. "+
			"If this standby must take over, run `argocd-agentctl hub promote`", l.Holder, behind)
	}
	next := max(s.Generation, l.Generation) + 1
	if next > hubstate.MaxGeneration {
		return waitFor("there is no generation after %d", hubstate.MaxGeneration)
	}
	return Decision{Action: Claim, Generation: next}
}

// StateAfter returns the state of a hub after a decision. A hub that becomes the standby has received nothing of the holder.
func StateAfter(s hubstate.State, d Decision, l Record) hubstate.State {
	if d.Action == BecomeStandby {
		s = hubstate.Demote(hubstate.Hub{State: s})
		s.Generation, s.Predecessor = d.Generation, engine.Store{UID: l.Holder}
		return s
	}
	return hubstate.Activate(s, d.Generation)
}

// maxSkew is how far the record of a standby may be ahead of its clock: principal replicas run on several nodes.
const maxSkew = time.Minute

// Behind returns why a standby may lack too much to take over, or "". now is its clock. unchanged is for how long its record is
// known not to have changed: a clock that was set back makes no record newer. The active hub, which renews the Lease for each
// duration, may have been lost that long. If maxLag is 0, there is no limit.
//
// The text does not depend on now, so that it is logged once.
func Behind(s hubstate.State, now time.Time, unchanged, maxLag, duration time.Duration) string {
	at := time.Unix(s.ProvenAt, 0).UTC()
	switch {
	case maxLag == 0:
		return ""
	case s.ProvenAt == 0:
		return "this standby has no record of when it last had all objects of the active hub"
	case at.After(now.Add(maxSkew)):
		return fmt.Sprintf("this standby last had all objects of the active hub at %s, which is later than its clock", at.Format(time.RFC3339))
	case max(now.Sub(at), unchanged) > maxLag+duration:
		return fmt.Sprintf("this standby last had all objects of the active hub at %s, longer ago than --hub-lease-max-lag allows", at.Format(time.RFC3339))
	}
	return ""
}
