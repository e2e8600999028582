package kind

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Names of entries that we add to an operation's info, which Argo CD's
// controller copies into status.operationState.operation.
const (
	CommandInfo = "argocd-agent/command" // ID of a command from the hub
	MirrorInfo  = "argocd-agent/mirror"  // hub: this operation runs on the spoke, it is not a new command
	RefusedInfo = "argocd-agent/refused" // hub: this operation was never carried out; the value is the operation that the spoke had finished last
)

// Phases of an operation.
const (
	phaseRunning     = "Running"
	phaseTerminating = "Terminating"
	phaseError       = "Error"
)

func completed(phase string) bool {
	return phase == "Succeeded" || phase == "Failed" || phase == phaseError
}

// infoValue returns the value of an info entry of an operation.
func infoValue(operation []byte, name string) string {
	entries, _ := rawjson.Elements(rawjson.Get(operation, "info"))
	for _, e := range entries {
		if rawjson.Text(e, "name") == name {
			return rawjson.Text(e, "value")
		}
	}
	return ""
}

// withoutInfo returns the operation without an info entry, and without a list
// that has none.
func withoutInfo(operation []byte, name string) []byte {
	o := members(operation)
	v := o.Get("info")
	if v == nil {
		return operation
	}
	entries, _ := rawjson.Elements(v)
	kept := slices.DeleteFunc(slices.Clone(entries), func(e []byte) bool { return rawjson.Text(e, "name") == name })
	switch {
	case len(kept) == 0:
		o.Remove("info")
	case len(kept) == len(entries):
		return operation
	default:
		o.Set("info", rawjson.Join(kept))
	}
	return o.Bytes()
}

// withInfo returns the operation with an info entry set.
func withInfo(operation []byte, name, value string) []byte {
	o := members(withoutInfo(operation, name))
	entries, _ := rawjson.Elements(o.Get("info"))
	entry := rawjson.Object{{Key: "name", Value: rawjson.Quote(name)}, {Key: "value", Value: rawjson.Quote(value)}}
	o.Set("info", rawjson.Join(append(slices.Clone(entries), entry.Bytes())))
	return o.Bytes()
}

// isMirror tells that an operation on the hub stands for one on the spoke.
func isMirror(operation []byte) bool { return infoValue(operation, MirrorInfo) != "" }

// sameOperation reports whether two operations that started in the same second can
// be one and the same: given by the same command, and by the same user. Times
// have seconds only, and a second is long enough for one to end and another to
// begin.
func sameOperation(a, b []byte) bool {
	by := func(operation []byte) [3]string {
		initiator := rawjson.Get(operation, "initiatedBy")
		return [3]string{infoValue(operation, CommandInfo), rawjson.Text(initiator, "username"), string(rawjson.Get(initiator, "automated"))}
	}
	return by(a) == by(b)
}

// renameApplications rewrites the Applications in a list of resources, as an
// app-of-apps has them, from the names of one side to those of the other.
func renameApplications(list []byte, rename func(namespace, name string) (string, string, bool)) []byte {
	entries, err := rawjson.Elements(list)
	if err != nil {
		return list
	}
	changed := false
	for i, e := range entries {
		if rawjson.Text(e, "kind") != Applications.Kind || rawjson.Text(e, "group") != Applications.Group {
			continue
		}
		namespace, name, ok := rename(rawjson.Text(e, "namespace"), rawjson.Text(e, "name"))
		if !ok {
			continue
		}
		o := members(e)
		o.Set("namespace", rawjson.Quote(namespace))
		o.Set("name", rawjson.Quote(name))
		entries[i] = o.Bytes()
		changed = true
	}
	if !changed {
		return list
	}
	return rawjson.Join(entries)
}

// edited returns b with the value at path passed through change, if there is
// one.
func edited(b []byte, change func([]byte) []byte, path ...string) []byte {
	v := rawjson.Get(b, path...)
	if rawjson.IsNull(v) {
		return b
	}
	w := change(v)
	if len(w) == len(v) && (len(w) == 0 || &w[0] == &v[0]) {
		return b
	}
	result, err := rawjson.Set(b, w, path...)
	if err != nil {
		return b
	}
	return result
}

// WithSync returns a spoke's Application that syncs to its target as soon as
// its controller sees it.
func WithSync(o *Object) *Object {
	d := edit(o)
	d.top.Set("operation", []byte(`{"info":[{"name":"Reason","value":"put back after it was deleted on the spoke"}],"initiatedBy":{"automated":true,"username":"argocd-agent"},"sync":{}}`))
	synced, err := d.done()
	if err != nil {
		return o
	}
	return synced
}
