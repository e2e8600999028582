package kind

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Entries that we add to an operation's info, which Argo CD's controller copies into status.operationState.operation.
const (
	CommandInfo = "argocd-agent/command" // ID of a command from the hub
	MirrorInfo  = "argocd-agent/mirror"  // hub: this operation runs on the spoke and is not a new command
	TimesInfo   = "argocd-agent/times"   // hub: start and end by the spoke's clock, if the state shows others
	RefusedInfo = "argocd-agent/refused" // hub: this operation never ran; the value is the last operation that the spoke had finished
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

func infoValue(operation []byte, name string) string {
	entries, _ := rawjson.Elements(rawjson.Get(operation, "info"))
	for _, e := range entries {
		if rawjson.Text(e, "name") == name {
			return rawjson.Text(e, "value")
		}
	}
	return ""
}

// withoutInfo returns the operation without an info entry, and without an empty list.
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

func withInfo(operation []byte, name, value string) []byte {
	o := members(withoutInfo(operation, name))
	entries, _ := rawjson.Elements(o.Get("info"))
	entry := rawjson.Object{{Key: "name", Value: rawjson.Quote(name)}, {Key: "value", Value: rawjson.Quote(value)}}
	o.Set("info", rawjson.Join(append(slices.Clone(entries), entry.Bytes())))
	return o.Bytes()
}

// isMirror reports whether an operation on the hub stands for one on the spoke.
func isMirror(operation []byte) bool { return infoValue(operation, MirrorInfo) != "" }

// sameOperation reports whether two operations that started in the same second can be the same: with the same command
// and the same user. Times have seconds only, and one operation can end and another start in a second.
func sameOperation(a, b []byte) bool {
	by := func(operation []byte) [3]string {
		initiator := rawjson.Get(operation, "initiatedBy")
		return [3]string{infoValue(operation, CommandInfo), rawjson.Text(initiator, "username"), string(rawjson.Get(initiator, "automated"))}
	}
	return by(a) == by(b)
}

// renameApplications renames the Applications in a list of resources of an app-of-apps from one side's names to the
// other's.
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

// edited returns b with the value at path changed, if there is one.
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

// WithSync returns a spoke's Application that syncs to its target as soon as its controller sees it.
func WithSync(o *Object) *Object {
	return o.changed(func(d *draft) {
		d.top.Set("operation", []byte(`{"info":[{"name":"Reason","value":"put back after it was deleted on the spoke"}],"initiatedBy":{"automated":true,"username":"argocd-agent"},"sync":{}}`))
	})
}
