package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// This file computes the status of an Agent. It does no I/O.

// sessionState is the last known session of an agent with this principal replica, open, ended or refused.
type sessionState struct {
	open         bool
	since        time.Time // of that
	epoch        engine.Epoch
	cluster      string
	version      string
	facts        []engine.Fact
	fingerprint  string
	expires      time.Time
	skew         *int64      // of the agent's clock, in seconds
	code         engine.Code // why it is not open
	reason       string
	otherCluster string         // UID of the cluster that was refused with code WrongCluster
	engine       *engine.Status // as of the last look; nil: none yet
}

// statusInputs is everything that an Agent's status is computed from.
type statusInputs struct {
	rec           agentRecord
	active        bool
	invalid       string // why the Agent is invalid
	secretError   string // what is wrong with the cluster Secret, or holds the agent's end up
	denyReason    string
	session       *sessionState           // nil: the agent has not been here
	replica       string                  // this one
	upgrade       *v1alpha1.UpgradeStatus // what the agent reported in the open session; nil: nothing
	principalLost bool                    // the replica that had the agent is no more
	fleet         reconcile.FleetRecord   // the hold on many agents; without ID if there is none
	now           time.Time
}

// status returns the desired status. If another principal replica holds a newer session, its values stay.
func (v statusInputs) status() v1alpha1.Status {
	old := v.rec.Status
	s := old
	s.Conditions, s.Holds = slices.Clone(old.Conditions), slices.Clone(old.Holds)
	s.ObservedGeneration = v.rec.Generation
	v.registeredCondition(&s)
	theirs := old.Connected && !v.principalLost && (old.Principal != v.replica || v.session == nil)
	switch {
	case v.session == nil && theirs:
		return s
	case v.session == nil && old.Connected:
		v.disconnected(&s, "PrincipalLost", "The principal that held the session has ended.")
	case v.session == nil:
		if v.denyReason != "" || meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionConnected) == nil {
			v.disconnected(&s, "NotConnected", "The agent has not connected yet.")
		}
	case v.session.superseded(old.Session) && old.Principal != v.replica && (theirs || v.session.open):
		return s
	case v.session.open:
		v.connected(&s)
	case old.Connected && theirs && !v.session.is(old.Session):
		return s // refused here, connected to another principal replica
	default:
		v.disconnected(&s, string(cmp.Or(v.session.code, "Disconnected")), cmp.Or(v.session.reason, "The agent closed the connection."))
	}
	return s
}

// superseded reports whether s is a newer session than t.
func (t *sessionState) superseded(s *v1alpha1.Session) bool {
	return s != nil && engine.Epoch{Incarnation: s.Incarnation, Attempt: s.Attempt}.Newer(t.epoch)
}

func (t *sessionState) is(s *v1alpha1.Session) bool {
	return s != nil && *sessionOf(t.epoch) == *s
}

// sessionOf returns the API form of an epoch. The agent chooses the numbers, so they are limited to what the API server
// stores.
func sessionOf(e engine.Epoch) *v1alpha1.Session {
	return &v1alpha1.Session{Incarnation: min(e.Incarnation, math.MaxInt64), Attempt: min(e.Attempt, math.MaxInt64)}
}

// SkewOf returns by how many seconds the agent's clock is ahead. It returns nil if the Hello has no clock.
func SkewOf(hello engine.Hello, now time.Time) *int64 {
	if hello.ClockMillis <= 0 {
		return nil
	}
	seconds := int64(time.UnixMilli(hello.ClockMillis).Sub(now) / time.Second)
	return &seconds
}

// reasonReused is the reason of an agent that is suspended because two clients have its key.
const reasonReused = "CertificateReused"

// reasonInvalid is the reason of an Agent that is invalid or conflicts with another Agent.
const reasonInvalid = "Invalid"

func (v statusInputs) registeredCondition(s *v1alpha1.Status) {
	switch {
	case v.secretError != "" && v.rec.DeletionTimestamp != nil:
		v.condition(s, v1alpha1.ConditionRegistered, metav1.ConditionFalse, "RevocationFailed", v.secretError)
	case v.invalid != "":
		v.condition(s, v1alpha1.ConditionRegistered, metav1.ConditionFalse, reasonInvalid, v.invalid)
	case v.secretError != "":
		v.condition(s, v1alpha1.ConditionRegistered, metav1.ConditionFalse, "ClusterSecretError", v.secretError)
	case !v.active:
		v.condition(s, v1alpha1.ConditionRegistered, metav1.ConditionFalse, "ModeNotSet", "spec.mode is not set. Set it to managed or autonomous.")
	default:
		v.condition(s, v1alpha1.ConditionRegistered, metav1.ConditionTrue, "Accepted", "Registration accepted.")
	}
}

// connected sets the fields of an open session with this principal replica.
func (v statusInputs) connected(s *v1alpha1.Status) {
	t := v.session
	if !s.Connected || s.Since == nil || s.Principal != v.replica || !t.is(s.Session) {
		s.Since = timeOf(t.since)
	}
	s.Connected, s.Principal, s.Session = true, v.replica, sessionOf(t.epoch)
	if version := text.Truncate(t.version, 128); v.upgrade != nil || s.Version != version { // the same release reports it soon
		s.Upgrade, s.Version = v.upgrade, version
	}
	s.Facts = factsOf(t.facts, s.Facts, v.rec.Spec.Cluster.Facts)
	s.ClockSkewSeconds = t.skew // measured once per session
	s.ClusterUID = cmp.Or(s.ClusterUID, text.Truncate(t.cluster, 128))
	if t.fingerprint != "" {
		s.Certificate = &v1alpha1.Certificate{Fingerprint: t.fingerprint, Expires: timeOf(t.expires)}
	}
	v.condition(s, v1alpha1.ConditionConnected, metav1.ConditionTrue, "Connected", "The agent is connected.")
	v.clusterHold(s)
	if t.engine != nil {
		v.syncedCondition(s, *t.engine)
	}
	v.writableCondition(s)
	v.limitsCondition(s)
}

// limitsCondition is set only after a limit was reached once.
func (v statusInputs) limitsCondition(s *v1alpha1.Status) {
	if v.session.engine == nil {
		return
	}
	var reached []string
	for _, sc := range v.session.engine.Scopes {
		if sc.Limit != "" {
			reached = append(reached, sc.Name+" ("+sc.Limit+")")
		}
	}
	switch {
	case len(reached) > 0:
		v.condition(s, v1alpha1.ConditionWithinLimits, metav1.ConditionFalse, "LimitReached",
			"The hub stores no further items of the agent: "+strings.Join(reached, ", ")+". Delete items, or raise spec.limits.")
	case meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWithinLimits) != nil:
		v.condition(s, v1alpha1.ConditionWithinLimits, metav1.ConditionTrue, "WithinLimits", "The hub stores all items of the agent.")
	}
}

// writableCondition is set only after the agent reported a write outage once.
func (v statusInputs) writableCondition(s *v1alpha1.Status) {
	switch e := v.session.engine; {
	case e != nil && e.WriteOutage != "":
		v.condition(s, v1alpha1.ConditionWritable, metav1.ConditionFalse, "WritesFailing", OneLine(e.WriteOutage))
	case meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWritable) != nil:
		v.condition(s, v1alpha1.ConditionWritable, metav1.ConditionTrue, "WritesAccepted", "The agent's API server accepts writes.")
	}
}

func (v statusInputs) syncedCondition(s *v1alpha1.Status, e engine.Status) {
	s.Protocol = strconv.Itoa(e.Protocol)
	v.store(s, e)
	s.Applications, s.OldestUnacked = 0, nil
	var pending v1alpha1.Pending
	s.UnsupportedKinds = v.unsupportedKinds(e)
	proven, all := lastInSync(e)
	var oldest engine.Time
	for _, sc := range e.Scopes {
		if sc.Name == kind.ApplicationScope {
			s.Applications = int64(sc.Items)
		}
		pending.Deletions += int64(sc.Deletions)
		pending.Writes += int64(sc.Diverged)
		pending.Rejected += int64(sc.Rejected)
		if sc.Name == kind.CommandScope {
			pending.Commands += int64(sc.Dirty + sc.InFlight)
		} else {
			pending.Deliveries += int64(sc.Dirty + sc.InFlight - sc.Deletions)
		}
		if sc.OldestAt != 0 && (oldest == 0 || sc.OldestAt < oldest) {
			oldest = sc.OldestAt
		}
	}
	s.Pending = &pending
	s.Diverged = pending.Deliveries + pending.Deletions + pending.Commands + pending.Writes + pending.Rejected
	if oldest != 0 {
		s.OldestUnacked = timeOf(time.UnixMilli(int64(oldest)))
	}
	if all {
		s.LastConfirmed = timeOf(time.UnixMilli(int64(proven)))
	}
	switch {
	case s.Diverged > 0:
		v.condition(s, v1alpha1.ConditionSynced, metav1.ConditionFalse, "Diverged", "Some items differ between hub and agent. See status.diverged.")
	case !all:
		message := "The comparison of hub and agent is not complete in this session."
		if i := slices.IndexFunc(e.Scopes, func(sc engine.ScopeStatus) bool { return sc.Unread != "" }); i >= 0 {
			message += " The hub " + OneLine(e.Scopes[i].Unread) + "."
		}
		v.condition(s, v1alpha1.ConditionSynced, metav1.ConditionUnknown, "Comparing", message)
	default:
		message := "Hub and agent are in sync."
		if len(s.UnsupportedKinds) > 0 {
			message += " The release of the agent does not replicate " + strings.Join(s.UnsupportedKinds, ", ") + ". Upgrade the agent."
		}
		v.condition(s, v1alpha1.ConditionSynced, metav1.ConditionTrue, "InSync", message)
	}
	v.reportHolds(s, e)
}

// unsupportedKinds returns the kinds of the registration that the agent does not know, by their names in spec.kinds.
func (v statusInputs) unsupportedKinds(e engine.Status) []string {
	var out []string
	for _, k := range kind.All() {
		unshared := slices.ContainsFunc(e.Scopes, func(sc engine.ScopeStatus) bool { return sc.Name == k.Scope() && sc.Unshared })
		name := k.Traits().Name
		if k.Scope() == kind.ChildScope {
			if unshared && v.rec.Spec.ChildApplications == v1alpha1.ChildApplicationsReadOnly {
				out = append(out, "childApplications")
			}
			continue
		}
		if unshared && !slices.Contains(out, name) && (len(v.rec.Spec.Kinds) == 0 || slices.Contains(v.rec.Spec.Kinds, name)) {
			out = append(out, name)
		}
	}
	return out
}

// LastInSync returns when all scopes of a session were in sync. It returns false if that was not the case.
func LastInSync(e engine.Status) (time.Time, bool) {
	at, ok := lastInSync(e)
	return time.UnixMilli(int64(at)), ok
}

// lastInSync returns when all scopes were in sync. It returns false if that was not the case in this session.
func lastInSync(e engine.Status) (at engine.Time, ok bool) {
	for _, sc := range e.Scopes {
		if sc.Name == kind.CommandScope {
			continue // commands are executed, not compared
		}
		if sc.Unshared {
			continue
		}
		if sc.InSyncAt == 0 {
			return 0, false
		}
		if at == 0 || sc.InSyncAt < at {
			at = sc.InSyncAt
		}
	}
	return at, at != 0
}

// store records the agent's store and whether it is trusted. The next session continues from there, on any principal
// replica. Only autonomous agents and those with child Applications own items whose absence
// deletes objects on the hub.
func (v statusInputs) store(s *v1alpha1.Status, e engine.Status) {
	owns := kind.Mode(v.rec.Spec.Mode) == kind.Autonomous || v.rec.Spec.ChildApplications == v1alpha1.ChildApplicationsReadOnly
	if owns && e.Other.UID != "" && e.Other.Revision <= math.MaxInt64 {
		s.Store = &v1alpha1.Store{UID: e.Other.UID, Revision: e.Other.Revision, Untrusted: e.StoreHoldID != ""}
		if mark := e.Other.Mark; mark.Number <= math.MaxInt64 {
			s.Store.Mark, s.Store.MarkRecord = mark.Number, mark.Record
		}
	}
}

// disconnected sets the conditions of a disconnected agent. Other known values stay.
func (v statusInputs) disconnected(s *v1alpha1.Status, reason, message string) {
	switch {
	case v.rec.DeletionTimestamp != nil:
		reason = "Deleted"
	case retired(v.rec.Agent):
		reason = "Retired"
	case v.rec.Spec.Suspended:
		reason = "Suspended"
	case v.rec.Annotations[v1alpha1.ReusedAnnotation] != "":
		reason = reasonReused
	}
	if s.Connected || s.Since == nil && v.session != nil {
		s.Since = timeOf(v.now)
		if v.session != nil && v.session.is(s.Session) {
			s.Since = timeOf(v.session.since)
		}
	}
	if v.session != nil && v.session.engine != nil && !v.session.superseded(s.Session) {
		v.store(s, *v.session.engine)
		if at, ok := lastInSync(*v.session.engine); ok {
			s.LastConfirmed = timeOf(time.UnixMilli(int64(at)))
		}
	}
	s.Connected, s.OldestUnacked, s.Pending = false, nil, nil
	v.clusterHold(s)
	v.condition(s, v1alpha1.ConditionConnected, metav1.ConditionFalse, conditionReason(reason), cmp.Or(v.denyReason, message))
	v.condition(s, v1alpha1.ConditionSynced, metav1.ConditionUnknown, "NotConnected", "The agent is not connected.")
	if meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWritable) != nil {
		v.condition(s, v1alpha1.ConditionWritable, metav1.ConditionUnknown, "NotConnected", "The agent is not connected.")
	}
}

// conditionReason returns s if it is a valid condition reason, or "Other".
func conditionReason(s string) string {
	if s == "" || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
		return "Other"
	}
	return s
}

func (v statusInputs) condition(s *v1alpha1.Status, of string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: of, Status: is, Reason: reason, Message: text.Truncate(message, 4096),
		ObservedGeneration: v.rec.Generation, LastTransitionTime: *timeOf(v.now)})
}

// sameButForTime reports whether two statuses differ only in values that only age.
func sameButForTime(a, b v1alpha1.Status) bool {
	for _, s := range []*v1alpha1.Status{&a, &b} {
		s.LastConfirmed = nil
		if s.Store != nil && !s.Store.Untrusted {
			s.Store = nil
		}
		if s.OldestUnacked != nil {
			s.OldestUnacked = &metav1.Time{}
		}
		s.Conditions = slices.Clone(s.Conditions)
		for i := range s.Conditions {
			s.Conditions[i].ObservedGeneration, s.Conditions[i].LastTransitionTime = 0, metav1.Time{}
		}
	}
	return sameStatus(a, b)
}

// sameStatus reports whether two statuses are equal when stored. It runs often, for each agent, so it does not marshal
// them.
func sameStatus(a, b v1alpha1.Status) bool { return asStored.DeepEqual(a, b) }

// asStored compares values as the API server stores them: times in whole seconds, empty lists as nil.
var asStored = conversion.EqualitiesOrDie(func(a, b metav1.Time) bool {
	return a.Truncate(time.Second).Equal(b.Truncate(time.Second))
})

// statusPatch returns a merge patch that sets a status, or only the named fields of it. Empty fields are removed.
func statusPatch(s v1alpha1.Status, only ...string) map[string]any {
	out := map[string]any{}
	b, err := json.Marshal(s)
	if err != nil {
		return nil // cannot happen for this type
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return nil
	}
	for f := range reflect.TypeFor[v1alpha1.Status]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if _, set := out[name]; !set {
			out[name] = nil
		}
		if len(only) > 0 && !slices.Contains(only, name) {
			delete(out, name)
		}
	}
	return out
}

// timeOf returns a time in whole seconds, as the API server stores it.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// Hello is what an agent sent and proved at the start of a connection.
type Hello struct {
	Epoch       engine.Epoch
	ClusterUID  string
	Fingerprint string
	Expires     time.Time
	SkewSeconds *int64 // of the agent's clock; nil if unknown
}
