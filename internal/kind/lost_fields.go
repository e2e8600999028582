package kind

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file compares content that was written with content that is stored.

// LostFields returns the fields of written content that are missing in the stored content or have another value there,
// each as a path: spec.sources[0].helm. If a whole part is missing, only its own path is returned.
//
// Fields that are only stored are defaults and are not returned. Nor are null, an empty text and an empty list that are
// not stored. If nothing is returned, the difference is harmless.
func LostFields(written, stored []byte) []string {
	var lost []string
	for _, m := range members(written) {
		if m.Key != "uid" && m.Key != "deleting" { // of the item, not of the object
			lost = lostFields(lost, m.Key, m.Value, rawjson.Get(stored, m.Key))
		}
	}
	return lost
}

func lostFields(lost []string, path string, written, stored []byte) []string {
	switch {
	case isEmptyValue(written) && isEmptyValue(stored):
	case isObject(written) && isObject(stored):
		for _, m := range members(written) {
			lost = lostFields(lost, path+pathElement(m.Key), m.Value, rawjson.Get(stored, m.Key))
		}
	case isList(written) && isList(stored):
		a, _ := rawjson.Elements(written)
		b, _ := rawjson.Elements(stored)
		if len(a) != len(b) {
			return append(lost, path)
		}
		for i := range a {
			lost = lostFields(lost, path+"["+strconv.Itoa(i)+"]", a[i], b[i])
		}
	case !sameJSON(written, stored) && !sameNumber(string(written), string(stored)):
		lost = append(lost, path)
	}
	return lost
}

// sameNumber reports whether two values are one number in two forms, such as 1.0 and 1. Different integers are never
// equal, however large.
func sameNumber(a, b string) bool {
	if !strings.ContainsAny(a, ".eE") && !strings.ContainsAny(b, ".eE") {
		return false
	}
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && x == y
}

// isEmptyValue reports whether a value means the same as no value. An empty object, false and 0 may have a meaning:
// `automated: {}`, `enabled: false`.
func isEmptyValue(v []byte) bool {
	return rawjson.IsNull(v) || string(v) == `""` || isList(v) && isEmpty(v)
}

func isList(b []byte) bool { return len(b) > 0 && b[0] == '[' }

// pathElement returns a key as a part of a path: .key, or ["key"] if the key has characters that field names do not
// have.
func pathElement(key string) string {
	for _, c := range key {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return "[" + string(rawjson.Quote(key)) + "]"
		}
	}
	return "." + key
}

// Limits of the lost fields that are recorded and shown.
const (
	maxLost     = 8
	maxLostText = 120
)

// ShortFields returns a list of fields that is short enough to be recorded and shown.
func ShortFields(fields []string) []string {
	var short []string
	for i, f := range fields {
		if i == maxLost {
			return append(short, strconv.Itoa(len(fields)-maxLost)+" more")
		}
		if len(f) > maxLostText {
			end := maxLostText
			for !utf8.RuneStart(f[end]) {
				end--
			}
			f = f[:end] + "…"
		}
		short = append(short, f)
	}
	return short
}

// FieldPolicy decides about an object of the hub with fields that the API server of the workload cluster does not store.
type FieldPolicy int

const (
	// RefuseVerification refuses the object if one of the fields verifies sources. Without such a field Argo CD would
	// deploy what nothing has verified.
	RefuseVerification FieldPolicy = iota
	// RefuseDropped refuses the object.
	RefuseDropped
	// WarnDropped stores the rest of the object.
	WarnDropped
)

// verifyingFields are the fields of a spec that verify sources.
var verifyingFields = []string{"signatureKeys", "sourceIntegrity"}

// MustStore returns the fields that the API server must store as they are. Otherwise the object is not to be written.
func MustStore(o *Object, policy FieldPolicy) []string {
	switch policy {
	case RefuseDropped:
		return []string{"spec"}
	case WarnDropped:
		return nil
	}
	var fields []string
	for _, name := range verifyingFields {
		if !isEmptyValue(o.Get("spec", name)) {
			fields = append(fields, "spec."+name)
		}
	}
	return fields
}

// NotStored returns which of the fields an API server has not stored as they were written.
func NotStored(written, stored *Object, fields []string) []string {
	var lost []string
	for _, f := range fields {
		path := strings.Split(f, ".")
		lost = lostFields(lost, f, written.Get(path...), stored.Get(path...))
	}
	return lost
}

// DroppedFields returns the fields of a replica's object that this side does not store as the owner has them, as
// recorded. It returns none if there are none, or the object has changed since.
func DroppedFields(k Kind, o *Object, w *Env) []string {
	alias := parseAlias(o.Annotation(AliasAnnotation))
	if len(alias.Lost) == 0 {
		return nil
	}
	held, ok := k.ReadReplica(o, w)
	if !ok || !held.Ownership.Owned || engine.VersionOf(held.Content) != alias.Stored {
		return nil
	}
	return alias.Lost
}

// droppedMessage returns the message of the condition. side is where the fields are dropped.
func droppedMessage(fields []string, side Side) string {
	where, owner := "The cluster of the agent", "the hub"
	if side == Hub {
		where, owner = "The hub", "the cluster of the agent"
	}
	return where + " does not store these fields as " + owner + " has them: " + strings.Join(fields, ", ") +
		". If its Argo CD is older, upgrade the CRDs there. Otherwise look for a webhook or controller there that changes the fields."
}
