package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// beat is how old what an Agent says of itself can be.
const beat = 30 * time.Second

// undelivered reports whether an Application of the hub, or a change of it, has not been taken up by its cluster. The hub
// keeps no list of that: it is read off what the cluster's Argo CD says of the Application, which is what people wait for.
func (p *Program) undelivered(agent *v1alpha1.Agent, app *kind.Object) []pendingItem {
	exchanged := len(agent.Spec.Kinds) == 0 || slices.Contains(agent.Spec.Kinds, v1alpha1.KindApplications)
	if agent.Spec.Mode != string(kind.Managed) || !exchanged || app.IsDeleting() || refused(app) {
		return nil // autonomous: it came from there
	}
	w := pendingItem{Agent: agent.Name, Kind: "delivery", What: applicationText(app)}
	connected := agent.Status.Connected
	settled := connected && agent.Status.Diverged == 0
	switch {
	case rawjson.Text(app.Get("status"), "sync", "status") == "" && rawjson.Text(app.Get("status"), "reconciledAt") == "": // argocd-server makes an empty one
		w.Since = since(rawjson.Text(app.Get("metadata"), "creationTimestamp"))
		w.Why = disconnectedReason(agent)
		switch {
		case settled && w.Since != nil && !p.Now().Before(w.Since.Time) && p.Now().Sub(w.Since.Time) < beat:
			w.Why = "it was made just now"
		case settled:
			w.Why = "its cluster has it, and the Argo CD there has not said anything of it yet: does an application controller run there?"
		}
	case !settled && !compared(app):
		w.What = "change of " + w.What
		w.Why = disconnectedReason(agent)
	default:
		return nil
	}
	return []pendingItem{w}
}

// compared reports whether the cluster's Argo CD has compared what the Application says now. It repeats the source.
func compared(app *kind.Object) bool {
	if app.Get("spec", "sourceHydrator") != nil {
		return true // what is compared is not what is written
	}
	for _, field := range []string{"source", "sources"} {
		spec, seen := app.Get("spec", field), app.Get("status", "sync", "comparedTo", field)
		if spec == nil || field == "source" && app.Get("spec", "sources") != nil {
			continue
		}
		a, errA := rawjson.Canonical(spec)
		b, errB := rawjson.Canonical(seen)
		if errA == nil && (errB != nil || !bytes.Equal(a, b)) {
			return false
		}
	}
	return true
}

// unnamed stands for what differs and is not an Application of which it can be told.
func unnamed(agent *v1alpha1.Agent, found []pendingItem) []pendingItem {
	if !agent.Status.Connected || agent.Status.Diverged == 0 || len(found) > 0 {
		return nil
	}
	why := "they are on their way; if that stays so: argocd-agentctl diff " + agent.Name + " --agent-context …"
	if stateOf(agent).text == stateNoWrites {
		why = disconnectedReason(agent)
	}
	return []pendingItem{{Agent: agent.Name, Kind: "delivery", What: pendingText(&agent.Status), Why: why, Since: agent.Status.OldestUnacked}}
}

// pendingText counts what waits, by kind where the principal reports it.
func pendingText(s *v1alpha1.Status) string {
	if s.Pending == nil {
		return pluralize(int(s.Diverged), "item") + " that differ between hub and cluster"
	}
	var counts []string
	for _, one := range []struct {
		n    int64
		unit string
	}{
		{s.Pending.Deliveries, "undelivered item"}, {s.Pending.Deletions, "undelivered deletion"}, {s.Pending.Commands, "undelivered command"},
		{s.Pending.Writes, "hub write"}, {s.Pending.Rejected, "rejected item"},
	} {
		if one.n > 0 {
			counts = append(counts, pluralize(int(one.n), one.unit))
		}
	}
	return strings.Join(counts, ", ")
}

// emptyPendingMessage says that nothing does, as far as that is known.
func (p *Program) emptyPendingMessage(list []v1alpha1.Agent) string {
	var open []string
	for i := range list {
		agent := &list[i]
		switch state := stateOf(agent).text; {
		case !agent.Status.Connected && agent.Status.Since != nil:
			open = append(open, fmt.Sprintf("%s (%s for %s)", agent.Name, state, p.age(agent.Status.Since.Time)))
		case !agent.Status.Connected:
			open = append(open, fmt.Sprintf("%s (%s)", agent.Name, state))
		case condition(agent, v1alpha1.ConditionSynced) == metav1.ConditionUnknown && len(agent.Status.Conditions) > 0:
			open = append(open, agent.Name+" (comparing)")
		}
	}
	if len(open) == 0 {
		return "Nothing waits."
	}
	const shown = 8
	more := ""
	if len(open) > shown {
		more = fmt.Sprintf(" and %d more", len(open)-shown)
	}
	return "Nothing is known to wait; but what there is for these is known only once they are connected and compared: " + strings.Join(open[:min(len(open), shown)], ", ") + more + "."
}

func applicationText(app *kind.Object) string {
	return "application " + app.Namespace() + "/" + app.Name()
}

// refused tells that the other side does not take an Application, which is told by itself.
func refused(app *kind.Object) bool {
	conditions, _ := rawjson.Elements(app.Get("status", "conditions"))
	return slices.ContainsFunc(conditions, func(one []byte) bool { return rawjson.Text(one, "type") == kind.ConditionError })
}

// since reads a time of an object; nil: it has none.
func since(text string) *metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: at}
}
