package cli

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// rowOf is what the fleet page shows of an agent.
func rowOf(agent *v1alpha1.Agent) fleet.Row {
	s := &agent.Status
	r := fleet.Row{
		Name: agent.Name, State: stateOf(agent).text, Urgency: urgency(agent), Refused: refusalOf(agent),
		Connected: s.Connected, Since: seconds(s.Since), Applications: s.Applications, Diverged: s.Diverged,
		Unacked: seconds(s.OldestUnacked), Confirmed: seconds(s.LastConfirmed), Skew: s.ClockSkewSeconds, Expires: seconds(certifiedUntil(agent)), Version: s.Version,
		Mode: agent.Spec.Mode, Mapping: agent.Spec.Mapping, Namespace: hubNamespace(agent), Kinds: strings.Join(agent.Spec.Kinds, ", "),
		Labels: joined(agent.Spec.Cluster.Labels), Shared: agent.Spec.Shared, Created: seconds(&agent.CreationTimestamp),
		Principal: s.Principal, Protocol: s.Protocol, Cluster: s.ClusterUID,
	}
	if s.Pending != nil {
		r.Pending = pendingText(s)
	}
	if s.Certificate != nil {
		r.Fingerprint = s.Certificate.Fingerprint
	}
	for _, one := range heldBy(agent) {
		r.Held = append(r.Held, fleet.Held{What: one.What, Why: one.Why, ID: one.ID})
	}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, fleet.Condition{Type: c.Type, Status: string(c.Status), Since: seconds(&c.LastTransitionTime), Reason: c.Reason, Message: c.Message})
	}
	return r
}

// refusals are why the principal sends an agent away that has to be put right by somebody, as conditions name them.
var refusals = []engine.Code{engine.NotAllowed, engine.NameTaken, engine.WrongMode, engine.WrongCluster, engine.WrongProtocol, engine.BadMessage, engine.Revoked}

// refusalOf is why an agent is not let in, or not registered as it is declared; empty: it is.
func refusalOf(agent *v1alpha1.Agent) string {
	var why []string
	for _, c := range agent.Status.Conditions {
		if c.Status != metav1.ConditionFalse {
			continue
		}
		registered := c.Type == v1alpha1.ConditionRegistered && c.Reason != "ModeNotSet" // it waits for its first connection
		if registered || c.Type == v1alpha1.ConditionConnected && slices.Contains(refusals, engine.Code(c.Reason)) {
			why = append(why, c.Message)
		}
	}
	return strings.Join(why, "\n")
}

// certifiedUntil is when the last certificate expires that an agent is known to have: it may have been given newer ones
// since it connected.
func certifiedUntil(agent *v1alpha1.Agent) *metav1.Time {
	var last *metav1.Time
	if agent.Status.Certificate != nil {
		last = agent.Status.Certificate.Expires
	}
	for entry := range strings.FieldsSeq(agent.Annotations[v1alpha1.IssuedAnnotation]) {
		_, expiry, _ := strings.Cut(entry, "/")
		if until, err := time.Parse(time.RFC3339, expiry); err == nil && (last == nil || until.After(last.Time)) {
			last = &metav1.Time{Time: until}
		}
	}
	return last
}

func seconds(t *metav1.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.Unix()
}
