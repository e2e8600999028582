package kind

import (
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Argo CD asks a user to approve the deletion of resources with the sync option Delete=confirm or Prune=confirm. The
// approval is an annotation with a time. Argo CD's controller compares it with the start of the operation or of the
// deletion, which are times of the spoke. An approval on the hub has a time of another clock, so it is a command:
//
//   - The hub records once what an approval is for: what its Application shows when the approval is first seen.
//   - The spoke writes the annotation with the start of exactly that operation or deletion. Another one is not approved.

// ApprovalAnnotation is Argo CD's annotation.
const ApprovalAnnotation = "argocd.argoproj.io/deletion-approved"

// Bounds of the time in an approval when the hub first sees it, compared with the hub's clock.
const (
	approvalFuture = 5 * time.Minute
	approvalPast   = time.Hour
)

// Approval is an approval on the hub that the spoke has not processed. One of Deletion, DeletedAt and Operation is set.
type Approval struct {
	ID        string
	Deletion  bool            // of the Application on the hub
	DeletedAt string          // deletionTimestamp of the Application on an autonomous spoke
	Operation TerminateTarget // that prunes
}

// canonical returns the approval as it is recorded and sent.
func (a Approval) canonical() []byte {
	var o rawjson.Object
	setText(&o, "deletedAt", a.DeletedAt)
	if a.Deletion {
		o.Set("deletion", []byte("true"))
	}
	setText(&o, "id", a.ID)
	if a.Operation != (TerminateTarget{}) {
		var target rawjson.Object
		setText(&target, "id", a.Operation.ID)
		setText(&target, "startedAt", a.Operation.StartedAt)
		o.Set("operation", target.Bytes())
	}
	return o.Bytes()
}

func readApproval(v []byte) Approval {
	return Approval{
		ID: rawjson.Text(v, "id"), Deletion: string(rawjson.Get(v, "deletion")) == "true", DeletedAt: rawjson.Text(v, "deletedAt"),
		Operation: TerminateTarget{ID: rawjson.Text(v, "operation", "id"), StartedAt: rawjson.Text(v, "operation", "startedAt")},
	}
}

// pendingApproval returns the approval of a hub's Application that the spoke has not processed. A user revokes it by
// removing the annotation.
func pendingApproval(hub *Object) Approval {
	record := []byte(hub.Annotation(ApprovalRecordAnnotation))
	if value := hub.Annotation(ApprovalAnnotation); value == "" || rawjson.Text(record, "value") != approvalValue(value) {
		return Approval{}
	}
	return readApproval(rawjson.Get(record, "pending"))
}

// approvalValue names a value of the annotation. Users write any text there.
func approvalValue(value string) string { return engine.VersionOf([]byte(value)).String() }

// RecordApproval returns a hub's Application with a record of what its approval is for. It returns the same object if
// that is recorded. The write must be conditional on the resourceVersion. An approval that does not count gets a
// condition.
func RecordApproval(hub *Object, w *Env, now time.Time) *Object {
	value, recorded := hub.Annotation(ApprovalAnnotation), hub.Annotation(ApprovalRecordAnnotation)
	if value == "" {
		if recorded == "" {
			return hub
		}
		return ClearCondition(hub.withAnnotation(ApprovalRecordAnnotation, ""), ConditionApproval)
	}
	if rawjson.Text([]byte(recorded), "value") == approvalValue(value) {
		return hub
	}
	if _, ok := StatusKey(hub, w); !ok {
		return hub
	}
	at, err := time.Parse(time.RFC3339, value)
	pending, missingID := approvalTarget(hub, at, w)
	if missingID {
		return hub // until the operation has its ID
	}
	ignored := ""
	switch {
	case err != nil:
		ignored = "is not a time in the format of RFC 3339"
	case at.After(now.Add(approvalFuture)):
		ignored = "is in the future"
	case pending != Approval{} && at.Before(now.Add(-approvalPast)):
		ignored = "is older than an hour"
	}
	if ignored != "" {
		pending = Approval{}
	}
	if pending != (Approval{}) {
		pending.ID = engine.VersionOf(fmt.Appendf(nil, "%s/%s/%s", hub.UID(), value, pending.canonical())).String()
	}
	hub = hub.withAnnotation(ApprovalRecordAnnotation, approvalRecord(value, pending))
	if ignored == "" {
		return ClearCondition(hub, ConditionApproval)
	}
	return SetCondition(hub, ConditionApproval, ignoredApproval(fmt.Sprintf("%.40q %s", value, ignored)), now)
}

// ignoredApproval returns the message of ConditionApproval.
func ignoredApproval(reason string) string {
	return "The approval in annotation " + ApprovalAnnotation + " does not count: " + reason +
		". To approve the deletion of resources, run: argocd app confirm-deletion"
}

func approvalRecord(value string, pending Approval) string {
	o := rawjson.Object{}
	if pending != (Approval{}) {
		o.Set("pending", pending.canonical())
	}
	o.Set("value", rawjson.Quote(approvalValue(value)))
	return string(o.Bytes())
}

// approvalTarget returns what a user can approve on a hub's Application, or nothing. Missing reports that it is an
// operation without an ID.
func approvalTarget(hub *Object, at time.Time, w *Env) (target Approval, missing bool) {
	child := IsChildReplica(hub)
	if hub.IsDeleting() && HasCascade(hub) && w.Agent.Mode == Managed && !child {
		// Both times are of the hub's users and their API server, as in Argo CD.
		deleted, err := time.Parse(time.RFC3339, rawjson.Text(hub.metadata, "deletionTimestamp"))
		if err == nil && !at.Before(deleted) {
			return Approval{Deletion: true}, false
		}
	}
	if deleted := deletedAt(hub); deleted != "" && (child || w.Agent.Mode == Autonomous) {
		return Approval{DeletedAt: deleted}, false
	}
	operation, state := hub.Get("operation"), hub.Get("status", "operationState")
	if !isObject(operation) {
		return Approval{}, false
	}
	id := infoValue(operation, CommandInfo)
	if !isMirror(operation) && id == "" {
		return Approval{}, true
	}
	running := TerminateTarget{ID: id}
	if isMirror(operation) && !completed(rawjson.Text(state, "phase")) {
		running.StartedAt = rawjson.Text(state, "startedAt")
	}
	return Approval{Operation: running}, false
}

// processed returns the annotations of a hub's Application after the spoke has processed its approval, and the
// condition if the spoke refused it.
func (in *incoming) processed(local *Object, annotations *rawjson.Object) (refused []byte) {
	if id := pendingApproval(local).ID; id == "" || id != in.extra.approved {
		return nil
	}
	annotations.Set(ApprovalRecordAnnotation, rawjson.Quote(approvalRecord(local.Annotation(ApprovalAnnotation), Approval{})))
	if in.extra.approvalRefused == "" {
		return nil
	}
	return condition(ConditionApproval, ignoredApproval(in.extra.approvalRefused), "")
}

// maxRefusal bounds why a spoke refused an approval.
const maxRefusal = 512

// approve writes the approval of the operation or deletion that it is for, once. Pending is the ID of the operation in
// the same commands.
func (x *execution) approve(content []byte, pending string) {
	a := readApproval(content)
	if a.ID == "" || len(a.ID) > 64 || a.ID == x.done.approval {
		return
	}
	start, wait := x.approved(a, pending)
	if wait != "" {
		x.wait(wait)
		return
	}
	x.done.approval, x.done.refused = a.ID, ""
	x.changed = true
	if start == "" {
		return // it has ended
	}
	if err := x.w.refusesOperation(x.spoke, []byte(`{"sync":{"prune":true}}`)); err != nil {
		x.done.refused = fmt.Sprintf("%.*s", maxRefusal, "the workload cluster refused it: "+err.Error())
		return
	}
	x.annotations.Set(ApprovalAnnotation, rawjson.Quote(start))
}

// approved returns when the operation or deletion of an approval began, or what it waits for. It returns nothing if the
// Application shows another one or none.
func (x *execution) approved(a Approval, pending string) (start, wait string) {
	deleted := rawjson.Text(x.spoke.metadata, "deletionTimestamp")
	switch {
	case a.Deletion && x.w.Agent.Mode == Managed:
		if deleted == "" {
			return "", "the Application is not being deleted on the workload cluster yet"
		}
		return deleted, ""
	case a.DeletedAt != "":
		if deleted != a.DeletedAt {
			return "", ""
		}
		return deleted, ""
	case a.Operation == TerminateTarget{}:
		return "", ""
	}
	running, state := x.spoke.Get("operation"), x.spoke.Get("status", "operationState")
	began := rawjson.Text(state, "startedAt")
	switch id := a.Operation.ID; {
	case id != "" && x.result.Begins == id:
		return "", "the operation to be approved has not started"
	case id != "" && id == pending && x.result.Waits:
		return "", x.result.Reason
	case !isObject(running) || infoValue(running, CommandInfo) != id:
		return "", ""
	case id != "" && began == "":
		return "", "the operation to be approved has not started"
	case id == "" && a.Operation.StartedAt != began || completed(rawjson.Text(state, "phase")):
		return "", ""
	}
	return began, ""
}
