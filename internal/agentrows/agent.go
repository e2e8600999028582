package agentrows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// States of an agent.
const (
	Connected      = "connected"
	Disconnected   = "disconnected"
	NeverConnected = "never-connected"
	Suspended      = "suspended"
	Terminating    = "terminating"
	Held           = "held"
	WriteOutage    = "write-outage"
)

// StateOf returns the state of an agent.
func StateOf(agent *v1alpha1.Agent) string {
	switch {
	case agent.DeletionTimestamp != nil:
		return Terminating
	case (agent.Spec.Suspended || agent.Annotations[v1alpha1.ReusedAnnotation] != "") && !agent.Status.Connected:
		return Suspended
	case meta.IsStatusConditionTrue(agent.Status.Conditions, v1alpha1.ConditionHeld):
		return Held
	case agent.Status.Connected && meta.IsStatusConditionFalse(agent.Status.Conditions, v1alpha1.ConditionWritable):
		return WriteOutage
	case agent.Status.Connected:
		return Connected
	case agent.Status.Since == nil && agent.Status.ClusterUID == "":
		return NeverConnected
	}
	return Disconnected
}

// Urgency orders agents by how much they need attention.
func Urgency(agent *v1alpha1.Agent) int {
	switch state := StateOf(agent); {
	case state == Held:
		return 5
	case state == Disconnected, state == WriteOutage:
		return 4
	case meta.IsStatusConditionFalse(agent.Status.Conditions, v1alpha1.ConditionRegistered):
		return 3
	case agent.Status.Diverged > 0:
		return 2
	case state != Connected:
		return 1
	}
	return 0
}

// Of returns the row of an agent.
func Of(agent *v1alpha1.Agent) Row {
	s := &agent.Status
	r := Row{
		Name: agent.Name, State: StateOf(agent), Urgency: Urgency(agent), Refused: refusalOf(agent),
		Connected: s.Connected, Since: seconds(s.Since), Applications: s.Applications, Diverged: s.Diverged,
		Unacked: seconds(s.OldestUnacked), Confirmed: seconds(s.LastConfirmed), Skew: s.ClockSkewSeconds, Expires: seconds(CertifiedUntil(agent)), Version: s.Version,
		Mode: agent.Spec.Mode, Mapping: agent.Spec.Mapping, Namespace: HubNamespace(agent), Kinds: strings.Join(agent.Spec.Kinds, ", "), Allow: strings.Join(agent.Spec.Allow, ", "), Owners: strings.Join(agent.Spec.Owners, ", "),
		Labels: labels.Set(agent.Spec.Cluster.Labels).String(), Shared: agent.Spec.Shared, Created: seconds(&agent.CreationTimestamp),
		Principal: s.Principal, Protocol: s.Protocol, Cluster: s.ClusterUID,
	}
	if s.Pending != nil {
		r.Pending = PendingText(s)
	}
	if s.Certificate != nil {
		r.Fingerprint = s.Certificate.Fingerprint
	}
	for i := range s.Holds {
		r.Holds = append(r.Holds, HoldOf(&s.Holds[i]))
	}
	for _, c := range s.Conditions {
		r.Conditions = append(r.Conditions, Condition{Type: c.Type, Status: string(c.Status), Since: seconds(&c.LastTransitionTime), Reason: c.Reason, Message: c.Message})
	}
	return r
}

// HoldOf describes a hold.
func HoldOf(h *v1alpha1.Hold) Hold {
	if h.Scope == "" {
		return Hold{Description: h.Reason, Reason: "confirmation required", ID: h.ID}
	}
	return Hold{Description: fmt.Sprintf("%d deletions of %s", h.Count, h.Scope), Reason: h.Reason, ID: h.ID}
}

// HubNamespace returns the namespace of an agent's Applications on the hub.
func HubNamespace(agent *v1alpha1.Agent) string { return cmp.Or(agent.Spec.Namespace, agent.Name) }

// certificateReused is the reason of an agent that must join again.
const certificateReused engine.Code = "CertificateReused"

// refusals are the reasons of condition Connected that an operator must fix.
var refusals = []engine.Code{engine.NotAllowed, engine.NameTaken, engine.WrongMode, engine.WrongCluster, engine.WrongProtocol, engine.WrongHub, engine.HubSuperseded, engine.BadMessage, engine.Revoked, certificateReused}

// refusalOf returns why an agent is refused or its registration is not accepted.
func refusalOf(agent *v1alpha1.Agent) string {
	var reasons []string
	for _, c := range agent.Status.Conditions {
		if c.Status != metav1.ConditionFalse {
			continue
		}
		if c.Type == v1alpha1.ConditionRegistered || c.Type == v1alpha1.ConditionConnected && slices.Contains(refusals, engine.Code(c.Reason)) {
			reasons = append(reasons, c.Message)
		}
	}
	return strings.Join(reasons, "\n")
}

// CertifiedUntil returns the latest expiry of the known certificates of an agent. The principal may have issued newer
// ones after the agent connected.
func CertifiedUntil(agent *v1alpha1.Agent) *metav1.Time {
	var last *metav1.Time
	if agent.Status.Certificate != nil {
		last = agent.Status.Certificate.Expires
	}
	issued := pki.ParseRecord(agent.Annotations[v1alpha1.IssuedAnnotation]).LastExpiry()
	if !issued.IsZero() && (last == nil || issued.After(last.Time)) {
		last = &metav1.Time{Time: issued}
	}
	return last
}

// PendingText lists the counts of status.pending.
func PendingText(s *v1alpha1.Status) string {
	if s.Pending == nil {
		return count(s.Diverged, "item") + " that differ between hub and cluster"
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
			counts = append(counts, count(one.n, one.unit))
		}
	}
	return strings.Join(counts, ", ")
}

func count(n int64, unit string) string {
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprintf("%d %s", n, unit)
}

func seconds(t *metav1.Time) int64 {
	if t == nil || t.IsZero() {
		return 0
	}
	return t.Unix()
}
