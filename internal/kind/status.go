package kind

import (
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// StatusKind is the scope of Application statuses. The spoke publishes in both modes. The hub fills existing
// Applications, and never creates or deletes one.
//
//	{"operation": the spoke's .operation, "status": its status}
//
// The extra is not hashed, because it changes constantly or has no place on the hub: {"approved": ID,
// "approvalRefused": …, "hydrated": nonce, "lastCommands": [IDs], "reconciledAt": …, "refreshed": nonce}.
type StatusKind struct{}

// StatusScope is the kind's name on the wire.
const StatusScope = "status"

func (StatusKind) Scope() string { return StatusScope }

func (StatusKind) Resource() Resource { return Applications }

func (StatusKind) Traits() Traits {
	return Traits{Name: "applications", Style: engine.Attached, AnyNamespace: true, Owner: func(Mode) Side { return Spoke }}
}

func (StatusKind) Matches(*Object) bool { return true }

// Publish implements Kind. A managed spoke reports only what came from the hub, and its children.
func (StatusKind) Publish(o *Object, w *Env) (Item, bool) {
	if w.Side != Spoke || ignored(o) {
		return Item{}, false
	}
	child := IsChild(o, w)
	if w.Agent.Mode == Managed && !ReadOwnership(o, w).Owned && !child || w.Agent.Mode == Autonomous && !selected(o, w) {
		return Item{}, false
	}
	k, ok := spokeKey(o, w)
	if !ok {
		return Item{}, false
	}
	status, operation := o.Get("status"), o.Get("operation")
	if w.Agent.RenamesApplications() {
		rename := func(list []byte) []byte { return renameApplications(list, w.HubNameOf) }
		status = edited(status, rename, "resources")
		status = edited(status, rename, "operationState", "syncResult", "resources")
		status = edited(status, rename, "operationState", "operation", "sync", "resources")
		operation = edited(operation, rename, "sync", "resources")
	}
	conditions := withoutOurConditions(rawjson.Get(status, "conditions"))
	fields := append(DroppedFields(ApplicationKind{}, o, w), w.projectFields(ProjectOf(o))...)
	if len(fields) > 0 && w.Agent.Mode == Managed {
		conditions = withConditions(conditions, condition(ConditionDropped, droppedMessage(fields, Spoke), ""))
	}
	if o.IsDeleting() && (child || w.Agent.Mode == Autonomous) {
		conditions = withConditions(conditions, deletingCondition(rawjson.Text(o.metadata, "deletionTimestamp")))
	}
	content := statusContent(status, operation, conditions)
	extra := statusExtra{reconciledAt: rawjson.Text(status, "reconciledAt")}
	done := readReceipt(o)
	extra.lastCommands, extra.approved, extra.approvalRefused = done.ids, done.approval, done.refused
	extra.setDone(o, done.refresh)
	return Item{Key: k, Content: content, Extra: extra.bytes()}, content != nil
}

// statusContent returns the canonical content of a status and a running operation. It leaves out what is nested too
// deep, such as values of a source, because a status is only displayed.
func statusContent(status, operation, conditions []byte) []byte {
	s := members(status)
	s.Remove("reconciledAt")
	if rawjson.IsNull(s.Get("operationState")) {
		s.Remove("operationState")
	}
	setOrRemove(&s, "conditions", conditions)
	all := rawjson.Object{{Key: "status", Value: s.Bytes()}}
	if isObject(operation) {
		all.Set("operation", withoutInfo(operation, MirrorInfo))
	}
	content, err := rawjson.CanonicalCut(all.Bytes())
	if err != nil {
		return nil
	}
	return content
}

// statusExtra is sent with a status and not hashed.
type statusExtra struct {
	lastCommands []string
	reconciledAt string
	refreshed    string // nonce of the last finished refresh
	hydrated     string // nonce of the last finished hydration
	approved     string // ID of the last processed approval
	// approvalRefused is why the spoke did not accept that approval, or "".
	approvalRefused string
}

// setDone records which parts of a refresh the spoke's controller has finished. Argo CD finishes each separately:
// clients wait for the refresh, and a hydration can take longer.
func (e *statusExtra) setDone(o *Object, nonce string) {
	if !RefreshPending(o) {
		e.refreshed = nonce
	}
	if hasHydrator(o) && !hydratePending(o) {
		e.hydrated = nonce
	}
}

func (e statusExtra) bytes() []byte {
	var o rawjson.Object
	setText(&o, "approvalRefused", e.approvalRefused)
	setText(&o, "approved", e.approved)
	setText(&o, "hydrated", e.hydrated)
	setStrings(&o, "lastCommands", e.lastCommands)
	setText(&o, "reconciledAt", e.reconciledAt)
	setText(&o, "refreshed", e.refreshed)
	return o.Bytes()
}

func readExtra(extra []byte) statusExtra {
	if rawjson.Check(extra, 64<<10) != nil {
		return statusExtra{}
	}
	var e statusExtra
	e.lastCommands, _ = rawjson.Strings(rawjson.Get(extra, "lastCommands"))
	e.reconciledAt = rawjson.Text(extra, "reconciledAt")
	e.refreshed = rawjson.Text(extra, "refreshed")
	e.hydrated = rawjson.Text(extra, "hydrated")
	e.approved = rawjson.Text(extra, "approved")
	if refused := rawjson.Text(extra, "approvalRefused"); len(refused) <= 4*maxRefusal {
		e.approvalRefused = refused
	}
	if _, err := time.Parse(time.RFC3339, e.reconciledAt); err != nil {
		e.reconciledAt = ""
	}
	return e
}

// WithRefreshed returns a status extra with the nonce of a refresh, as far as the spoke's controller has finished it.
func WithRefreshed(o *Object, extra []byte, nonce string) []byte {
	e := readExtra(extra)
	e.setDone(o, nonce)
	return e.bytes()
}

// Urgent reports whether a spoke's Application must be sent at once although only the extra changed: after the
// comparison that follows an operation, for which `argocd app wait` waits, or at the end of a refresh.
func Urgent(o *Object, sent, now []byte) bool {
	before, after := readExtra(sent), readExtra(now)
	changed := func(was, is string) bool { return is != was && is != "" }
	if changed(before.refreshed, after.refreshed) || changed(before.hydrated, after.hydrated) || changed(before.approved, after.approved) ||
		!slices.Equal(before.lastCommands, after.lastCommands) {
		return true
	}
	finished, err := time.Parse(time.RFC3339, rawjson.Text(o.Get("status", "operationState", "finishedAt")))
	if err != nil {
		return false
	}
	return reconciledBefore(before, finished) && !reconciledBefore(after, finished)
}

func reconciledBefore(e statusExtra, t time.Time) bool {
	at, err := time.Parse(time.RFC3339, e.reconciledAt)
	return err != nil || at.Before(t)
}

// RefreshPending reports whether a refresh is pending.
func RefreshPending(o *Object) bool { return o.Annotation(RefreshAnnotation) != "" }

// hydratePending reports whether a hydration is pending. Since Argo CD 3.5 the annotation stays on Applications without
// a source hydrator.
func hydratePending(o *Object) bool { return o.Annotation(HydrateAnnotation) != "" && hasHydrator(o) }

func hasHydrator(o *Object) bool { return isObject(o.Get("spec", "sourceHydrator")) }

// ReadReplica implements Kind. An operation on the hub that is not a mirror is a command, which the spoke's status
// cannot have yet.
func (StatusKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	k, ok := StatusKey(o, w)
	if !ok {
		return ReplicaItem{}, false
	}
	operation := o.Get("operation")
	if !isMirror(operation) {
		operation = nil
	}
	status := edited(withLastState(o.Get("status")), spokeTimes, "operationState")
	content := statusContent(status, operation, reported(o.Get("status", "conditions"), w))
	return ReplicaItem{Key: k, Content: content, Ownership: Ownership{Owned: true}}, content != nil
}

// StatusKey returns the key of a hub's Application that gets its status from this agent and sends it commands: one that
// is placed there (managed), or came from there (autonomous).
func StatusKey(o *Object, w *Env) (engine.Key, bool) {
	k, p, _ := Place(o, w)
	return k, p == Placed
}

func (StatusKind) Key(o *Object, w *Env) (engine.Key, bool) { return localKey(o, w) }

func (StatusKind) Target(k engine.Key, w *Env) (Ref, error) { return localRef(k, w) }

// Merge implements Kind. It replaces the status, and keeps what the hub's users requested and the spoke has not
// accepted yet. The status is fresh, so it no longer shows that the agent is disconnected.
func (s StatusKind) Merge(local *Object, k engine.Key, content, extra []byte, _ Ownership, w *Env) (*Object, error) {
	if w.Side != Hub {
		return nil, errNotOwner("statuses", w)
	}
	if _, err := s.Target(k, w); err != nil {
		return nil, err
	}
	all, err := checkedMembers(content)
	if err != nil {
		return nil, err
	}
	if !isObject(all.Get("status")) {
		return nil, reject(engine.Invalid, "content without a status")
	}
	if local == nil {
		return nil, reject(engine.NoObject, "%s does not exist on the hub", k)
	}
	if held, ok := StatusKey(local, w); !ok || held != k {
		return nil, reject(engine.NoObject, "%s is not an Application of agent %s", k, w.Agent.Name)
	}
	in := incoming{status: members(all.Get("status")), operation: all.Get("operation"), extra: readExtra(extra)}
	d := edit(local)
	operation, state := in.merge(local)
	state, ahead := hubTimes(state, local.Get("status", "operationState"), w.ClockSkew)
	setOrRemove(&d.top, "operation", operation)
	setOrRemove(&in.status, "operationState", state)
	reconciledAt := local.Get("status", "reconciledAt")
	if len(extra) > 0 {
		reconciledAt = nil
		if in.extra.reconciledAt != "" {
			reconciledAt = rawjson.Quote(onHub(in.extra.reconciledAt, ahead))
		}
	}
	setOrRemove(&in.status, "reconciledAt", reconciledAt)
	ours := slices.DeleteFunc(ourConditions(local.Get("status", "conditions")), func(c []byte) bool {
		t := rawjson.Text(c, "type")
		return t == ConditionTruncated || t == reportedType(w) || isDisconnection(c)
	})
	annotations := withoutNotice(members(local.annotations))
	if refused := in.processed(local, &annotations); refused != nil {
		ours = append(ours, refused)
	}
	setConditions(&in.status, reported(in.status.Get("conditions"), w), ours)
	if nonce := w.refreshNonce(k); nonce != "" {
		if nonce == in.extra.refreshed {
			annotations.Remove(RefreshAnnotation)
			annotations.Remove(RefreshTimeAnnotation)
		}
		if nonce == in.extra.hydrated || nonce == in.extra.refreshed && !hasHydrator(local) {
			annotations.Remove(HydrateAnnotation)
			annotations.Remove(HydrateTimeAnnotation)
		}
	}
	setList(&d.meta, "annotations", annotations)
	return finishStatus(d, in.status, w)
}

// finishStatus returns the object. If it is too large for the API server, it drops the least important lists and adds a
// condition.
func finishStatus(d *draft, status rawjson.Object, w *Env) (*Object, error) {
	limit := w.Settings.ObjectLimit
	if limit == 0 {
		limit = DefaultObjectLimit
	}
	if len(status) > 0 || d.top.Get("status") != nil { // an empty status alone is no reason to write
		d.top.Set("status", status.Bytes())
	}
	o, err := d.done()
	if err != nil {
		return nil, reject(engine.Invalid, "%v", err)
	}
	if len(o.raw) <= limit {
		return o, nil
	}
	for _, drop := range []struct {
		path    []string
		message string
	}{
		{[]string{"operationState", "syncResult", "resources"}, "the results of the last sync are left out"},
		{[]string{"resources"}, "the list of resources and the results of the last sync are left out"},
	} {
		smaller, err := rawjson.Remove(status.Bytes(), drop.path...)
		if err != nil {
			return nil, reject(engine.Invalid, "%v", err)
		}
		status = members(smaller)
		reported := members(smaller)
		setConditions(&reported, withoutCondition(reported.Get("conditions"), ConditionTruncated), [][]byte{
			condition(ConditionTruncated, "The status is too large for the hub: "+drop.message+".", ""),
		})
		d.top.Set("status", reported.Bytes())
		if o, err = d.done(); err != nil {
			return nil, reject(engine.Invalid, "%v", err)
		}
		if len(o.raw) <= limit {
			return o, nil
		}
	}
	return nil, reject(engine.TooLarge, "the status needs %d bytes, the hub stores %d", len(o.raw), limit)
}

// incoming is a status from the spoke.
type incoming struct {
	status    rawjson.Object
	operation []byte
	extra     statusExtra
}

// accepted reports whether the spoke has accepted a command.
func (in *incoming) accepted(id string) bool {
	return infoValue(in.operation, CommandInfo) == id ||
		infoValue(rawjson.Get(in.status.Get("operationState"), "operation"), CommandInfo) == id ||
		slices.Contains(in.extra.lastCommands, id)
}

// merge returns the operation and operation state of the hub's Application after this status.
func (in *incoming) merge(local *Object) (operation, state []byte) {
	before, beforeState := local.Get("operation"), spokeTimes(local.Get("status", "operationState"))
	state = spokeTimes(in.status.Get("operationState")) // no spoke sets our record
	if rawjson.IsNull(state) {
		state = nil
	}
	if isObject(before) && !isMirror(before) {
		if id := infoValue(before, CommandInfo); id == "" || !in.accepted(id) {
			// The spoke has not accepted this command yet. argocd-server has cleared the operation state to show that
			// it is pending.
			if rawjson.IsNull(beforeState) {
				return before, nil
			}
			return before, terminating(beforeState, state, rawjson.Get(beforeState, "operation"), rawjson.Get(state, "operation"))
		}
	}
	if isObject(in.operation) {
		operation = withInfo(in.operation, MirrorInfo, "true")
	} else if refused, stands := in.rejectedState(beforeState, state); stands {
		return nil, refused
	}
	running := rawjson.Get(beforeState, "operation")
	if isMirror(before) {
		running = before
	}
	return operation, terminating(beforeState, state, running, operation)
}

// terminating keeps what argocd-server has set to end an operation, as long as the spoke shows the same operation
// running.
func terminating(before, state, meant, running []byte) []byte {
	if rawjson.Text(before, "phase") != phaseTerminating || rawjson.Text(state, "phase") != phaseRunning ||
		rawjson.Text(before, "startedAt") != rawjson.Text(state, "startedAt") || !sameOperation(meant, running) {
		return state
	}
	kept, err := rawjson.Set(state, rawjson.Quote(phaseTerminating), "phase")
	if err != nil {
		return state
	}
	return kept
}

// rejectedState returns the hub's operation state if it shows a rejected command that still counts: the spoke runs no
// operation, has not accepted the command since, and has finished no other operation since. The first status after the
// rejection records which operation the spoke had finished last, and later ones are compared with it. No clocks of hub
// and spoke are compared.
func (in *incoming) rejectedState(before, state []byte) ([]byte, bool) {
	operation := rawjson.Get(before, "operation")
	recorded := infoValue(operation, RefusedInfo)
	if id := infoValue(operation, CommandInfo); recorded == "" || id != "" && in.accepted(id) {
		return nil, false
	}
	last := finishedOperation(state)
	switch recorded {
	case last:
		return before, true
	case refusedNow:
		kept, err := rawjson.Set(before, withInfo(operation, RefusedInfo, last), "operation")
		return kept, err == nil
	}
	return before, last == noOperation
}

// Values of RefusedInfo: before the first status from the spoke, and if the spoke had finished no operation.
const (
	refusedNow  = "true"
	noOperation = "none"
)

// finishedOperation identifies the operation of an operation state.
func finishedOperation(state []byte) string {
	started := rawjson.Text(state, "startedAt")
	if started == "" {
		return noOperation
	}
	operation := rawjson.Get(state, "operation")
	version := engine.VersionOf(fmt.Appendf(nil, "%s/%s/%s/%s", started, rawjson.Text(state, "finishedAt"), rawjson.Text(state, "phase"), infoValue(operation, CommandInfo)))
	return version.String()[:16]
}
