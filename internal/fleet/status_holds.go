package fleet

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// maxHoldText limits the text of an agent in a hold, in bytes.
const maxHoldText = 400

// holdID matches IDs that are safe in a command that users paste into a shell. Agents choose the IDs of their holds.
var holdID = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._]{0,127}$`)

// reportHolds sets status.holds and condition Held.
func (v statusInputs) reportHolds(s *v1alpha1.Status, e engine.Status) {
	holds, checking := v.engineHolds(e)
	s.Holds = v.withSince(holds)
	switch {
	case len(holds) > 0:
		var lines []string
		for _, h := range s.Holds {
			lines = append(lines, v.holdMessage(h))
		}
		v.condition(s, v1alpha1.ConditionHeld, metav1.ConditionTrue, "ConfirmationRequired", strings.Join(lines, "\n"))
	case checking != "":
		v.condition(s, v1alpha1.ConditionHeld, metav1.ConditionFalse, "Checking", checking)
	default:
		v.condition(s, v1alpha1.ConditionHeld, metav1.ConditionFalse, "NoHold", "No hold waits for a confirmation.")
	}
}

// engineHolds returns the holds of a session. The hub's own holds are first, so that an agent cannot push them out or
// reuse their IDs. checking describes a hold that waits only for the check across agents.
func (v statusInputs) engineHolds(e engine.Status) (holds []v1alpha1.Hold, checking string) {
	if e.StoreHoldID != "" {
		holds = append(holds, v1alpha1.Hold{ID: e.StoreHoldID, Reason: "The agent's API server was restored from a backup or replaced."})
	}
	for _, sc := range e.Scopes {
		if sc.HeldID != "" {
			holds = append(holds, v1alpha1.Hold{ID: sc.HeldID, Scope: sc.Name, Count: int64(sc.Held), Reason: "The hub holds these deletions."})
		}
	}
	for _, h := range e.RemoteHolds {
		of := "The agent holds deletions. "
		if h.Scope != "" {
			of = fmt.Sprintf("The agent has %d items in this scope. ", h.Of)
		}
		hold := v1alpha1.Hold{ID: h.ID, Scope: text.Truncate(OneLine(h.Scope), 64), Count: int64(min(h.Count, math.MaxInt64)),
			Reason: of + "It reports: " + strconv.Quote(text.Truncate(OneLine(h.Reason), maxHoldText))}
		if !holdID.MatchString(h.ID) || strings.HasPrefix(h.ID, v1alpha1.ConfirmCluster) || slices.ContainsFunc(holds, func(o v1alpha1.Hold) bool { return o.ID == h.ID }) {
			hold.ID, hold.Reason = "", "The agent sent an invalid hold ID. Inspect its cluster. "+hold.Reason
		}
		switch absent := h.Cause == engine.CauseFleet || h.Cause.Budget(); {
		case h.ID == "":
			continue
		case absent && v.fleet.ID != "" && !v.fleet.Confirmed:
			hold.FleetHold, hold.Reason = v.fleet.ID, of+"The deletions are part of hold "+v.fleet.ID+" on many agents."
		case h.Cause == engine.CauseFleet:
			checking = holdText(hold)
			continue
		}
		holds = append(holds, hold)
	}
	return holds, checking
}

// clusterHold sets the hold of a refused cluster, or removes it.
func (v statusInputs) clusterHold(s *v1alpha1.Status) {
	s.Holds = slices.DeleteFunc(s.Holds, func(h v1alpha1.Hold) bool { return strings.HasPrefix(h.ID, v1alpha1.ConfirmCluster) })
	if v.session == nil || v.session.otherCluster == "" {
		return
	}
	if id := v1alpha1.ConfirmCluster + v.session.otherCluster; holdID.MatchString(id) {
		s.Holds = v.withSince(append(s.Holds, v1alpha1.Hold{ID: id, Reason: "Another cluster connects under the name of this agent."}))
	}
}

// withSince limits holds to MaxHolds and copies the start of holds that were reported before.
func (v statusInputs) withSince(holds []v1alpha1.Hold) []v1alpha1.Hold {
	holds = holds[:min(len(holds), v1alpha1.MaxHolds)]
	for i, h := range holds {
		holds[i].Since = timeOf(v.now)
		for _, old := range v.rec.Status.Holds {
			if old.ID == h.ID && old.Scope == h.Scope && old.Since != nil {
				holds[i].Since = old.Since
			}
		}
	}
	return holds
}

// holdMessage describes a hold and how to confirm it.
func (v statusInputs) holdMessage(h v1alpha1.Hold) string {
	switch text := holdText(h); {
	case h.ID == "":
		return text
	case h.FleetHold != "":
		return fmt.Sprintf("%s To confirm all agents, run: %s. To confirm only this agent, run: %s", text,
			fleetConfirmCommand(v.rec.Namespace, h.FleetHold), ConfirmCommand(v.rec.Namespace, v.rec.Name, h.ID))
	default:
		return fmt.Sprintf("%s To confirm, run: %s", text, ConfirmCommand(v.rec.Namespace, v.rec.Name, h.ID))
	}
}

// ConfirmCommand returns the command that confirms a hold. Agents choose some IDs, so an ID with shell characters is not
// put into a command.
func ConfirmCommand(namespace, agent, id string) string {
	if !holdID.MatchString(id) {
		return "its ID is not one that an agent gives, so look into that cluster before anything else"
	}
	return fmt.Sprintf("kubectl annotate %s.%s -n %s %s --overwrite %s=%s", v1alpha1.Resource, v1alpha1.Group, namespace, agent, v1alpha1.ConfirmAnnotation, id)
}

func holdText(h v1alpha1.Hold) string {
	if h.Scope == "" {
		return h.Reason
	}
	return fmt.Sprintf("%d deletions of %s are held. %s", h.Count, h.Scope, h.Reason)
}

// OneLine replaces characters that are not printable by spaces, so that text of an agent cannot control a terminal or log.
func OneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "")))
}
