package cli

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/cli/fleet"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func rowOf(agent *v1alpha1.Agent) fleet.Row {
	s := &agent.Status
	r := fleet.Row{
		Name: agent.Name, State: stateOf(agent), Urgency: urgency(agent), Refused: refusalOf(agent),
		Connected: s.Connected, Since: seconds(s.Since), Applications: s.Applications, Diverged: s.Diverged,
		Unacked: seconds(s.OldestUnacked), Confirmed: seconds(s.LastConfirmed), Skew: s.ClockSkewSeconds, Expires: seconds(certifiedUntil(agent)), Version: s.Version,
		Mode: agent.Spec.Mode, Mapping: agent.Spec.Mapping, Namespace: hubNamespace(agent), Kinds: strings.Join(agent.Spec.Kinds, ", "),
		Labels: labels.Set(agent.Spec.Cluster.Labels).String(), Shared: agent.Spec.Shared, Created: seconds(&agent.CreationTimestamp),
		Principal: s.Principal, Protocol: s.Protocol, Cluster: s.ClusterUID,
	}
	if s.Pending != nil {
		r.Pending = pendingText(s)
	}
	if s.Certificate != nil {
		r.Fingerprint = s.Certificate.Fingerprint
	}
	for _, one := range holdsOf(agent) {
		r.Holds = append(r.Holds, fleet.Hold{Description: one.Description, Reason: one.Reason, ID: one.ID})
	}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, fleet.Condition{Type: c.Type, Status: string(c.Status), Since: seconds(&c.LastTransitionTime), Reason: c.Reason, Message: c.Message})
	}
	return r
}

// refusals are the reasons of condition Connected that an operator must fix.
var refusals = []engine.Code{engine.NotAllowed, engine.NameTaken, engine.WrongMode, engine.WrongCluster, engine.WrongProtocol, engine.BadMessage, engine.Revoked}

// refusalOf returns why an agent is refused or its registration is not accepted.
func refusalOf(agent *v1alpha1.Agent) string {
	var reasons []string
	for _, c := range agent.Status.Conditions {
		if c.Status != metav1.ConditionFalse {
			continue
		}
		registered := c.Type == v1alpha1.ConditionRegistered && c.Reason != "ModeNotSet"
		if registered || c.Type == v1alpha1.ConditionConnected && slices.Contains(refusals, engine.Code(c.Reason)) {
			reasons = append(reasons, c.Message)
		}
	}
	return strings.Join(reasons, "\n")
}

// certifiedUntil returns the latest expiry of the known certificates of an agent. The principal may have issued newer
// ones after the agent connected.
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
