package cli

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// field is one difference between two objects.
type field struct {
	Path    string `json:"path"`
	Hub     string `json:"hub"`
	Cluster string `json:"cluster"`
}

// maxFields limits the differences per object.
const maxFields = 20

// differences lists the fields in which two contents differ. Values of secrets are hidden.
func differences(owner, replica []byte, ownerIsHub, secret bool) []field {
	var a, b any
	if json.Unmarshal(owner, &a) != nil || json.Unmarshal(replica, &b) != nil {
		return nil
	}
	if !ownerIsHub {
		a, b = b, a
	}
	var found []field
	walk("", a, b, &found)
	if secret {
		for i := range found {
			found[i].Hub, found[i].Cluster = "(hidden)", "(hidden)"
		}
	}
	if len(found) > maxFields {
		found = append(found[:maxFields:maxFields], field{Path: "and " + strconv.Itoa(len(found)-maxFields) + " more"})
	}
	return found
}

func walk(path string, a, b any, found *[]field) {
	if reflect.DeepEqual(a, b) {
		return
	}
	switch x := a.(type) {
	case map[string]any:
		if y, ok := b.(map[string]any); ok {
			keys := maps.Clone(x)
			maps.Copy(keys, y)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				walk(strings.TrimPrefix(path+"."+key, "."), x[key], y[key], found)
			}
			return
		}
	case []any:
		if y, ok := b.([]any); ok && len(x) == len(y) {
			for i := range x {
				walk(path+"["+strconv.Itoa(i)+"]", x[i], y[i], found)
			}
			return
		}
	}
	*found = append(*found, field{Path: path, Hub: shown(a), Cluster: shown(b)})
}

// shown prints a value on one line of limited length.
func shown(value any) string {
	if value == nil {
		return "(none)"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "(unreadable)"
	}
	const limit = 160
	if runes := []rune(string(text)); len(runes) > limit {
		return string(runes[:limit]) + "…"
	}
	return string(text)
}
