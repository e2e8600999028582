package kind

import (
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Our conditions on Applications: on the hub, and on the spoke's replica the one about its deletion. Argo CD's UI shows
// errors and warnings by the suffix of the type. All have one prefix, so that another release knows which are not the
// spoke's.
const (
	ConditionError     = "AgentError"                // an item is rejected
	ConditionHeld      = "AgentHeldWarning"          // a deletion waits for a confirmation
	ConditionDropped   = "AgentFieldsDroppedWarning" // the replica side does not store some fields
	ConditionTruncated = "AgentTruncatedWarning"     // the status is too large for the hub
	ConditionApproval  = "AgentApprovalWarning"      // an approval of deletions does not count
	ConditionHydrator  = "AgentHydratorWarning"      // the hub sends no credentials to push
	ConditionDeleting  = "AgentDeletingWarning"      // an autonomous spoke deletes its Application

	ConditionDisconnected = "AgentDisconnected" // the agent is disconnected; since its lastTransitionTime
	ConditionLastHealth   = "AgentLastHealth"   // the last known health as JSON, while health is Unknown because of that
)

// reported returns the conditions that count as the spoke's: Argo CD's and, of a managed agent, the dropped fields, of an
// autonomous one that it deletes the Application. All our other types belong to the hub.
func reported(list []byte, w *Env) []byte {
	kept := withoutOurConditions(list)
	for _, c := range ourConditions(list) {
		switch t := rawjson.Text(c, "type"); {
		case t != reportedType(w):
		case t == ConditionDeleting:
			if at := rawjson.Text(c, "lastTransitionTime"); isTime(at) {
				return withConditions(kept, deletingCondition(at))
			}
		case len(rawjson.Text(c, "message")) <= maxDropped:
			return withConditions(kept, condition(ConditionDropped, rawjson.Text(c, "message"), ""))
		}
	}
	return kept
}

// reportedType returns which of our conditions the spoke of an agent reports.
func reportedType(w *Env) string {
	if w.Agent.Mode == Managed {
		return ConditionDropped
	}
	return ConditionDeleting
}

func deletingCondition(at string) []byte {
	return condition(ConditionDeleting, "The workload cluster deletes this Application and its resources.", at)
}

// deletedAt returns the deletionTimestamp that an autonomous spoke reported, or "".
func deletedAt(hub *Object) string {
	for _, c := range ourConditions(hub.Get("status", "conditions")) {
		if rawjson.Text(c, "type") == ConditionDeleting {
			return rawjson.Text(c, "lastTransitionTime")
		}
	}
	return ""
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil && len(text) <= 64
}

// maxDropped bounds the message about dropped fields.
const maxDropped = 4 << 10

func withConditions(list []byte, conditions ...[]byte) []byte {
	entries, _ := rawjson.Elements(list)
	return rawjson.Join(append(slices.Clone(entries), conditions...))
}

// ShowDropped returns the hub's replica of an autonomous Application with or without the condition that the hub drops
// fields. It returns the same object if that is right.
func ShowDropped(o *Object, w *Env, at time.Time) *Object {
	if fields := DroppedFields(ApplicationKind{}, o, w); len(fields) > 0 {
		return SetCondition(o, ConditionDropped, droppedMessage(fields, Hub), at)
	}
	return ClearCondition(o, ConditionDropped)
}

func isOurs(conditionType string) bool { return strings.HasPrefix(conditionType, "Agent") }

// withoutOurConditions returns a list without our conditions, or nil if none is left.
func withoutOurConditions(list []byte) []byte {
	return filterConditions(list, func(t string) bool { return !isOurs(t) })
}

func withoutCondition(list []byte, conditionType string) []byte {
	return filterConditions(list, func(t string) bool { return t != conditionType })
}

func filterConditions(list []byte, keep func(string) bool) []byte {
	entries, err := rawjson.Elements(list)
	if err != nil {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(entries), func(c []byte) bool { return !keep(rawjson.Text(c, "type")) })
	switch len(kept) {
	case 0:
		return nil
	case len(entries):
		return list
	}
	return rawjson.Join(kept)
}

func ourConditions(list []byte) [][]byte {
	entries, _ := rawjson.Elements(list)
	return slices.DeleteFunc(slices.Clone(entries), func(c []byte) bool { return !isOurs(rawjson.Text(c, "type")) })
}

// hasCondition reports whether an Application has one of our conditions with a message that matches.
func hasCondition(o *Object, conditionType string, matches func(message string) bool) bool {
	return slices.ContainsFunc(ourConditions(o.Get("status", "conditions")), func(c []byte) bool {
		return rawjson.Text(c, "type") == conditionType && matches(rawjson.Text(c, "message"))
	})
}

// setConditions writes a list followed by our conditions.
func setConditions(status *rawjson.Object, list []byte, ours [][]byte) {
	if len(ours) > 0 {
		list = withConditions(list, ours...)
	}
	setOrRemove(status, "conditions", list)
}

func condition(conditionType, message, at string) []byte {
	var c rawjson.Object
	setText(&c, "lastTransitionTime", at)
	c.Set("message", rawjson.Quote(message))
	c.Set("type", rawjson.Quote(conditionType))
	return c.Bytes()
}

// SetCondition returns an Application with one of our conditions. It returns the same object if the condition has that
// message.
func SetCondition(o *Object, conditionType, message string, at time.Time) *Object {
	if hasCondition(o, conditionType, func(m string) bool { return m == message }) {
		return o
	}
	return changeConditions(o, conditionType, condition(conditionType, message, at.UTC().Format(time.RFC3339)))
}

// ClearCondition returns an Application without one of our conditions. It returns the same object if there is none.
func ClearCondition(o *Object, conditionType string) *Object {
	if !hasCondition(o, conditionType, func(string) bool { return true }) {
		return o
	}
	return changeConditions(o, conditionType)
}

func changeConditions(o *Object, conditionType string, add ...[]byte) *Object {
	status := members(o.Get("status"))
	setConditions(&status, withoutCondition(status.Get("conditions"), conditionType), add)
	return withStatus(o, status)
}

// SetDegraded returns a hub's Application with health Degraded and a message: for one that the spoke does not adopt, so
// that nothing there reports its health. It returns the same object if that is its health.
func SetDegraded(o *Object, message string) *Object {
	status := members(o.Get("status"))
	health := members(status.Get("health"))
	if rawjson.Text(health.Get("status")) == "Degraded" && rawjson.Text(health.Get("message")) == message {
		return o
	}
	health.Set("status", rawjson.Quote("Degraded"))
	health.Set("message", rawjson.Quote(message))
	status.Set("health", health.Bytes())
	return withStatus(o, status)
}

func withStatus(o *Object, status rawjson.Object) *Object {
	return o.changed(func(d *draft) { d.top.Set("status", status.Bytes()) })
}

// HasComparisonError reports whether Argo CD's controller could not compare an Application.
func HasComparisonError(o *Object) bool {
	entries, _ := rawjson.Elements(o.Get("status", "conditions"))
	return slices.ContainsFunc(entries, func(c []byte) bool { return rawjson.Text(c, "type") == "ComparisonError" })
}

// WithRefresh returns an Application with a refresh request for Argo CD's controller.
func WithRefresh(o *Object) *Object { return o.withAnnotation(RefreshAnnotation, "normal") }
