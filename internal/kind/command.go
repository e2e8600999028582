package kind

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// CommandKind is the scope of commands: sync and rollback, terminate, refresh, hydrate and approvals of deletions. The
// hub publishes what is pending on its Application until the spoke's status shows that it ran. The spoke executes it
// once.
//
//	{"approve":{"id":"…","operation":{…}},"hydrate":"normal","nonce":"…","operation":{…},"refresh":"hard","terminate":{"id":"…","startedAt":"…"},"uid":"…"}
//
// The UID is of the Application on the owner side: a command is for one Application, not for a later one of the same
// name.
//
// Nothing is compared: ReadReplica returns nothing.
type CommandKind struct{}

// CommandScope is the kind's name on the wire.
const CommandScope = "command"

// Commands is what is pending on a hub's Application.
type Commands struct {
	Operation []byte // sync or rollback, with its ID in info; nil if none
	ID        string // of the operation
	MissingID bool   // there is an operation without an ID: see SetCommandID
	Refresh   string // "normal" or "hard"
	RefreshAt string // time of the request; empty before Argo CD 3.5
	Hydrate   string
	HydrateAt string
	Terminate TerminateTarget
	Approval  Approval
	UID       string // of the owner's Application
}

// TerminateTarget is the operation that a terminate or an approval applies to.
type TerminateTarget struct {
	ID        string // of the command that started it; empty if the spoke did
	StartedAt string
}

// Empty reports whether there is nothing to send. An operation needs an ID before it is sent.
func (c Commands) Empty() bool {
	return c.Operation == nil && c.Refresh == "" && c.Hydrate == "" && c.Terminate == TerminateTarget{} && c.Approval == Approval{}
}

// NeedsNonce reports whether the commands contain a refresh.
func (c Commands) NeedsNonce() bool { return c.Refresh != "" || c.Hydrate != "" }

// canonical returns the commands in canonical form. The nonce names the refresh.
func (c Commands) canonical(nonce string) ([]byte, error) {
	var o rawjson.Object
	if c.Approval != (Approval{}) {
		o.Set("approve", c.Approval.canonical())
	}
	setText(&o, "hydrate", c.Hydrate)
	if c.NeedsNonce() {
		setText(&o, "nonce", nonce)
	}
	if c.Operation != nil {
		o.Set("operation", c.Operation)
	}
	setText(&o, "refresh", c.Refresh)
	if target := c.Terminate; target != (TerminateTarget{}) {
		var t rawjson.Object
		setText(&t, "id", target.ID)
		t.Set("startedAt", rawjson.Quote(target.StartedAt))
		o.Set("terminate", t.Bytes())
	}
	setText(&o, "uid", c.UID)
	return rawjson.Canonical(o.Bytes())
}

// Pending returns the commands of a hub's Application. It returns false if it is not one of this agent's, or nothing is
// pending.
func Pending(hub *Object, w *Env) (Commands, bool) {
	if _, ok := StatusKey(hub, w); !ok {
		return Commands{}, false
	}
	var c Commands
	state := spokeTimes(hub.Get("status", "operationState"))
	if operation := hub.Get("operation"); isObject(operation) && !isMirror(operation) {
		id := infoValue(operation, CommandInfo)
		switch {
		case id == "":
			c.MissingID = true
		case infoValue(rawjson.Get(state, "operation"), CommandInfo) != id:
			c.Operation, c.ID = operation, id
		}
	}
	if c.Refresh = hub.Annotation(RefreshAnnotation); c.Refresh != "" {
		c.RefreshAt = hub.Annotation(RefreshTimeAnnotation)
	}
	if hydratePending(hub) {
		c.Hydrate, c.HydrateAt = hub.Annotation(HydrateAnnotation), hub.Annotation(HydrateTimeAnnotation)
	}
	if rawjson.Text(state, "phase") == phaseTerminating {
		// The state may have a copy of an earlier operation with its ID: Argo CD's controller merges a new state into
		// the old one.
		running := rawjson.Get(state, "operation")
		if mirror := hub.Get("operation"); isMirror(mirror) {
			running = mirror
		}
		c.Terminate = TerminateTarget{ID: infoValue(running, CommandInfo), StartedAt: rawjson.Text(state, "startedAt")}
	}
	c.Approval = pendingApproval(hub)
	return c, c.MissingID || !c.Empty()
}

// SetCommandID returns a hub's Application whose operation has the ID. The write must be conditional on its
// resourceVersion.
func SetCommandID(hub *Object, id string) (*Object, error) {
	operation := hub.Get("operation")
	if !isObject(operation) {
		return nil, reject(engine.NoObject, "%s has no operation", hub.Name())
	}
	d := edit(hub)
	d.top.Set("operation", withInfo(operation, CommandInfo, id))
	return d.done()
}

// FailCommand returns a hub's Application without commands that the spoke will not execute. The operation with that ID
// ends with an error, which stays visible until the spoke runs another one. A pending refresh or approval ends. It returns
// false if nothing is pending.
func FailCommand(hub *Object, id, reason string, now time.Time) (*Object, bool) {
	d := edit(hub)
	changed := false
	if operation := hub.Get("operation"); id != "" && isObject(operation) && !isMirror(operation) && infoValue(operation, CommandInfo) == id {
		// Clients wait until the Application was reconciled after the operation. Nothing has changed, so the last
		// reconciliation counts. Its time is of the spoke's clock.
		if last, err := time.Parse(time.RFC3339, rawjson.Text(hub.Get("status"), "reconciledAt")); err == nil {
			now = last
		}
		at := rawjson.Quote(now.UTC().Format(time.RFC3339))
		state := rawjson.Object{
			{Key: "finishedAt", Value: at},
			{Key: "message", Value: rawjson.Quote(reason)},
			{Key: "operation", Value: withInfo(operation, RefusedInfo, refusedNow)},
			{Key: "phase", Value: rawjson.Quote(phaseError)},
			{Key: "startedAt", Value: at},
		}
		status := members(hub.Get("status"))
		status.Set("operationState", state.Bytes())
		d.top.Remove("operation")
		d.top.Set("status", status.Bytes())
		changed = true
	}
	annotations := members(hub.annotations)
	for _, key := range []string{RefreshAnnotation, RefreshTimeAnnotation, HydrateAnnotation, HydrateTimeAnnotation} {
		changed = annotations.Remove(key) || changed
	}
	approval := pendingApproval(hub).ID != ""
	if approval {
		annotations.Set(ApprovalRecordAnnotation, rawjson.Quote(approvalRecord(hub.Annotation(ApprovalAnnotation), Approval{})))
		changed = true
	}
	if !changed {
		return hub, false
	}
	setList(&d.meta, "annotations", annotations)
	failed, err := d.done()
	if err != nil {
		return hub, false
	}
	if approval {
		failed = SetCondition(failed, ConditionApproval, ignoredApproval(reason), now)
	}
	return failed, true
}

func (CommandKind) Scope() string { return CommandScope }

func (CommandKind) Resource() Resource { return Applications }

func (CommandKind) Traits() Traits {
	return Traits{Name: "applications", Style: engine.OneShot, AnyNamespace: true, Owner: func(Mode) Side { return Hub }}
}

func (CommandKind) Matches(*Object) bool { return true }

// Publish implements Kind. An operation without an ID is not published: see Pending.
func (CommandKind) Publish(o *Object, w *Env) (Item, bool) {
	k, ok := StatusKey(o, w)
	if !ok {
		return Item{}, false
	}
	c, ok := Pending(o, w)
	if !ok || c.Empty() {
		return Item{}, false
	}
	c.UID = PublishedUID(o, w)
	if w.Agent.Mode == Autonomous || IsChildReplica(o) {
		c.UID = ReadOwnership(o, w).Source
	}
	content, err := c.canonical(w.refreshNonce(k))
	if err != nil {
		return Item{Key: k, Unsendable: unsendableReason(err)}, true
	}
	return Item{Key: k, Content: content}, true
}

func (CommandKind) ReadReplica(*Object, *Env) (ReplicaItem, bool) { return ReplicaItem{}, false }

func (CommandKind) Key(o *Object, w *Env) (engine.Key, bool) { return localKey(o, w) }

func (CommandKind) Target(k engine.Key, w *Env) (Ref, error) { return localRef(k, w) }

// Merge implements Kind. It is Execute for callers that need only the object to write. A command that must wait is
// rejected as Busy.
func (c CommandKind) Merge(local *Object, k engine.Key, content, _ []byte, _ Ownership, w *Env) (*Object, error) {
	if w.Side != Spoke {
		return nil, errNotOwner("commands", w)
	}
	if _, err := c.Target(k, w); err != nil {
		return nil, err
	}
	if local == nil {
		return nil, reject(engine.NoObject, "%s does not exist on the agent's cluster", k)
	}
	if held, ok := spokeKey(local, w); !ok || held != k {
		return nil, reject(engine.NoObject, "%s is not the target of %s", local.Name(), k)
	}
	e, err := Execute(local, content, w)
	switch {
	case err != nil:
		return nil, err
	case e.Refused != nil:
		return nil, e.Refused
	case e.Object != nil:
		return e.Object, nil
	case e.Waits:
		return nil, reject(engine.Busy, "%s", e.Reason)
	}
	return local, nil
}
