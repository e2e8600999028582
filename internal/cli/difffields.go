package cli

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// field is one place in which two objects differ.
type field struct {
	Path    string `json:"path"`
	Hub     string `json:"hub"`
	Cluster string `json:"cluster"`
}

// maxFields bounds what is shown of one object.
const maxFields = 20

// differences lists where two contents differ. Secret ones are not shown.
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
			found[i].Hub, found[i].Cluster = "(not shown)", "(not shown)"
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
			keys := map[string]bool{}
			for key := range x {
				keys[key] = true
			}
			for key := range y {
				keys[key] = true
			}
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				walk(join(path, key), x[key], y[key], found)
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

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// shown is a value on one line of bearable length.
func shown(value any) string {
	if value == nil {
		return "(none)"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "(unreadable)"
	}
	const most = 160
	if len(text) > most {
		return string([]rune(string(text))[:most]) + "…"
	}
	return string(text)
}
