package kind

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Execution is the result of commands on the spoke's current Application.
type Execution struct {
	Object  *Object      // to be written; nil if there is nothing to do now
	Waits   bool         // a command waits until the Application changes
	Reason  string       // what it waits for
	Begins  string       // ID of the operation that Object starts; empty if none
	Refused *RejectError // the operation can never run
}

// receiptHistory bounds the commands in a receipt.
const receiptHistory = 8

// receipt is the record of commands on a spoke's Application. The write that starts a command also records it, so that
// nothing runs twice.
type receipt struct {
	ids     []string // of operations, oldest first
	refresh string   // nonce of the last refresh
	// approval is the ID of the last approval; refused is why it was not accepted, or "".
	approval, refused string
}

func readReceipt(o *Object) receipt {
	v := []byte(o.Annotation(ReceiptAnnotation))
	ids, _ := rawjson.Strings(rawjson.Get(v, "ids"))
	return receipt{ids, rawjson.Text(v, "refresh"), rawjson.Text(v, "approval"), rawjson.Text(v, "approvalRefused")}
}

func (d receipt) String() string {
	var o rawjson.Object
	setStrings(&o, "ids", d.ids[max(0, len(d.ids)-receiptHistory):])
	setText(&o, "refresh", d.refresh)
	setText(&o, "approval", d.approval)
	setText(&o, "approvalRefused", d.refused)
	return string(o.Bytes())
}

// ReadReceipt returns the receipt of a spoke's Application, or "".
func ReadReceipt(o *Object) string { return o.Annotation(ReceiptAnnotation) }

// WithReceipt returns an Application with the receipt of one that it replaces, so that its commands do not run again.
func WithReceipt(o *Object, record string) *Object {
	if record == "" {
		return o
	}
	return o.withAnnotation(ReceiptAnnotation, record)
}

// CommandID returns the ID of the operation in commands, or "".
func CommandID(content []byte) string {
	return infoValue(rawjson.Get(content, "operation"), CommandInfo)
}

// Executed reports whether a spoke's Application shows that a command ran: by its receipt, or by its current or last
// operation.
func Executed(o *Object, id string) bool {
	return slices.Contains(readReceipt(o).ids, id) || hasReceipt(o, id)
}

func hasReceipt(o *Object, id string) bool {
	return infoValue(o.Get("operation"), CommandInfo) == id || infoValue(o.Get("status", "operationState", "operation"), CommandInfo) == id
}

// WithExecuted returns an Application whose receipt includes the IDs. A controller may have removed the receipt or a
// part of it.
func WithExecuted(o *Object, ids []string) *Object {
	d := readReceipt(o)
	had := len(d.ids)
	for _, id := range ids {
		if !slices.Contains(d.ids, id) {
			d.ids = append(d.ids, id)
		}
	}
	if len(d.ids) == had {
		return o
	}
	return WithReceipt(o, d.String())
}

// Execute decides what commands from the hub do to the spoke's Application. It matches what argocd-server does with the
// same requests.
func Execute(spoke *Object, content []byte, w *Env) (Execution, error) {
	commands, err := checkedMembers(content)
	if err != nil {
		return Execution{}, err
	}
	if ignored(spoke) {
		return Execution{}, errIgnored(spoke.Name())
	}
	is := spoke.UID()
	if w.Agent.Mode == Managed {
		switch ownership := ReadOwnership(spoke, w); {
		case ownership.Owned:
			is = ownership.Source
		case !IsChild(spoke, w):
			return Execution{}, reject(engine.Busy, "%s is not under the hub's control yet", spoke.Name())
		}
	}
	if meant := rawjson.Text(commands.Get("uid")); meant != "" && meant != is {
		return Execution{}, reject(engine.Busy, "%s is not the Application that the command is for; the two sides are about to agree on which it is", spoke.Name())
	}
	x := execution{spoke: spoke, draft: edit(spoke), done: readReceipt(spoke), w: w}
	x.annotations = members(spoke.annotations)
	x.status = members(spoke.Get("status"))
	if target := commands.Get("terminate"); isObject(target) {
		x.terminate(TerminateTarget{ID: rawjson.Text(target, "id"), StartedAt: rawjson.Text(target, "startedAt")})
	}
	if operation := commands.Get("operation"); operation != nil {
		x.operate(operation)
	}
	if approval := commands.Get("approve"); isObject(approval) {
		x.approve(approval, CommandID(content))
	}
	x.refresh(rawjson.Text(commands.Get("refresh")), rawjson.Text(commands.Get("hydrate")), rawjson.Text(commands.Get("nonce")))
	return x.finish()
}

type execution struct {
	spoke       *Object
	draft       *draft
	annotations rawjson.Object
	status      rawjson.Object
	done        receipt
	changed     bool
	w           *Env
	result      Execution
}

func (x *execution) wait(reason string) {
	x.result.Waits = true
	x.result.Reason = reason
}

// operate starts a sync or rollback: it sets the operation and clears the state of the last one.
func (x *execution) operate(operation []byte) {
	id := infoValue(operation, CommandInfo)
	running := x.spoke.Get("operation")
	local := x.localNames(withoutInfo(operation, MirrorInfo))
	switch refused := x.w.refusesOperation(x.spoke, local); {
	case !isObject(operation) || !validUID(id):
		x.result.Refused = reject(engine.Invalid, "an operation without an ID")
	case slices.Contains(x.done.ids, id) || hasReceipt(x.spoke, id):
	case x.spoke.IsDeleting():
		x.result.Refused = reject(engine.Invalid, "the Application is being deleted")
	case refused != nil:
		x.result.Refused = reject(engine.NotAllowed, "%v", refused)
	case isObject(running):
		x.wait("another operation is in progress")
	default:
		x.draft.top.Set("operation", local)
		x.status.Remove("operationState")
		x.done.ids = append(slices.Clone(x.done.ids), id)
		x.result.Begins = id
		x.changed = true
	}
}

// localNames maps the Applications that a partial sync of an app-of-apps selects from hub names to spoke names, by the
// Application's own resources.
func (x *execution) localNames(operation []byte) []byte {
	if !x.w.Agent.RenamesApplications() {
		return operation
	}
	type name struct{ namespace, name string }
	var local map[name]name
	return edited(operation, func(list []byte) []byte {
		return renameApplications(list, func(namespace, app string) (string, string, bool) {
			if local == nil {
				local = map[name]name{}
				resources, _ := rawjson.Elements(x.status.Get("resources"))
				for _, r := range resources {
					if rawjson.Text(r, "kind") != Applications.Kind || rawjson.Text(r, "group") != Applications.Group {
						continue
					}
					here := name{rawjson.Text(r, "namespace"), rawjson.Text(r, "name")}
					if n, a, ok := x.w.HubNameOf(here.namespace, here.name); ok {
						local[name{n, a}] = here
					}
				}
			}
			here, ok := local[name{namespace, app}]
			return here.namespace, here.name, ok
		})
	}, "sync", "resources")
}

// terminate ends the target, if it is running.
func (x *execution) terminate(target TerminateTarget) {
	running, state := x.spoke.Get("operation"), x.spoke.Get("status", "operationState")
	if !isObject(running) {
		return // nothing is running
	}
	if !isObject(state) {
		if target.ID != "" && infoValue(running, CommandInfo) == target.ID {
			x.wait("the operation to be terminated has not started")
		}
		return
	}
	if infoValue(running, CommandInfo) != target.ID {
		return // another operation is running
	}
	if target.ID == "" && (target.StartedAt == "" || rawjson.Text(state, "startedAt") != target.StartedAt) {
		return
	}
	if phase := rawjson.Text(state, "phase"); completed(phase) || phase == phaseTerminating {
		return
	}
	ended, err := rawjson.Set(state, rawjson.Quote(phaseTerminating), "phase")
	if err != nil {
		return
	}
	x.status.Set("operationState", ended)
	x.changed = true
}

// refresh sets Argo CD's annotations once per nonce. It does not replace a pending hard refresh by a normal one.
func (x *execution) refresh(refresh, hydrate, nonce string) {
	if refresh == "" && hydrate == "" || nonce != "" && nonce == x.done.refresh {
		return
	}
	if len(nonce) > 128 || len(refresh) > 64 || len(hydrate) > 64 {
		return
	}
	before := len(x.annotations)
	set := func(key, value string) {
		if value == "" || x.spoke.Annotation(key) == value || x.spoke.Annotation(key) == "hard" {
			return
		}
		x.annotations.Set(key, rawjson.Quote(value))
		x.changed = true
	}
	set(RefreshAnnotation, refresh)
	if hasHydrator(x.spoke) { // nothing would remove it otherwise
		set(HydrateAnnotation, hydrate)
	}
	if nonce != "" {
		x.done.refresh = nonce
		x.changed = true
	}
	x.changed = x.changed || len(x.annotations) != before
}

func (x *execution) finish() (Execution, error) {
	if !x.changed {
		return x.result, nil
	}
	if receipts := x.done.String(); receipts != "{}" {
		x.annotations.Set(ReceiptAnnotation, rawjson.Quote(receipts))
	}
	setList(&x.draft.meta, "annotations", x.annotations)
	if len(x.status) > 0 || x.spoke.Get("status") != nil {
		x.draft.top.Set("status", x.status.Bytes())
	}
	o, err := x.draft.done()
	if err != nil {
		return Execution{}, reject(engine.Invalid, "%v", err)
	}
	x.result.Object = o
	return x.result, nil
}
