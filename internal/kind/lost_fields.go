package kind

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file compares content that was written with content that is stored.

// LostFields lists the fields of written content that are missing in the stored
// content or have another value there, each as a path: spec.sources[0].helm.
// Of a part that is missing as a whole only its own path is listed. Fields that
// are stored without having been written are defaults, and are not listed; nor
// are null, an empty text and an empty list that are not stored, which say
// nothing. None: the difference, if there is one, is harmless.
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

// sameNumber reports whether two values are one number in two forms, such as 1.0
// and 1. Two integers that differ are never the same, however large they are.
func sameNumber(a, b string) bool {
	if !strings.ContainsAny(a, ".eE") && !strings.ContainsAny(b, ".eE") {
		return false
	}
	x, err1 := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return err1 == nil && err2 == nil && x == y
}

// isEmptyValue reports whether a value means the same as no value. An empty object,
// false and 0 may mean something: `automated: {}`, `enabled: false`.
func isEmptyValue(v []byte) bool {
	return rawjson.IsNull(v) || string(v) == `""` || isList(v) && isEmpty(v)
}

func isList(b []byte) bool { return len(b) > 0 && b[0] == '[' }

// pathElement is how a member's key continues a path: .key, or ["key"] where the
// key has other characters than names of fields have.
func pathElement(key string) string {
	for _, c := range key {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return "[" + string(rawjson.Quote(key)) + "]"
		}
	}
	return "." + key
}

// What is shown and recorded of lost fields at most.
const (
	maxLost     = 8
	maxLostText = 120
)

// ShortFields returns a list of fields that is fit to be recorded and shown: a few,
// and none of them long.
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

// DroppedFields returns the fields of a replica's Application that this side does
// not store as the owner has them, as recorded in its mark. None: there are none,
// or the Application has changed since.
func DroppedFields(o *Object, w *Env) []string {
	alias := parseAlias(o.Annotation(AliasMark))
	if len(alias.Lost) == 0 {
		return nil
	}
	held, ok := ApplicationKind{}.ReadReplica(o, w)
	if !ok || !held.Ownership.Owned || engine.VersionOf(held.Content) != alias.Stored {
		return nil
	}
	return alias.Lost
}

// droppedMessage is what the condition says. Side is where the fields are dropped.
func droppedMessage(fields []string, side Side) string {
	where, owner := "The cluster of the agent", "the hub"
	if side == Hub {
		where, owner = "The hub", "the cluster of the agent"
	}
	return where + " does not store these fields of the Application as " + owner + " has them: " + strings.Join(fields, ", ") +
		". If its Argo CD is older, upgrade the CRDs there. Otherwise look for a webhook or controller there that changes the fields."
}
