package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// tree is a decoded object. Argo CD, users and the checks work on these, so that they share nothing with the way in
// which the product reads and writes objects.
type tree = map[string]any

// texts returns a tree of texts.
func texts(m map[string]string) tree {
	t := tree{}
	for key, value := range m {
		t[key] = value
	}
	return t
}

func decode(o *kind.Object) tree {
	var t tree
	if err := json.Unmarshal(o.Raw(), &t); err != nil {
		panic(fmt.Sprintf("the store holds what is not JSON: %v", err))
	}
	return t
}

func encode(t tree) *kind.Object {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("encode: %v", err))
	}
	o, err := kind.Parse(b)
	if err != nil {
		panic(fmt.Sprintf("encode %s: %v", b, err))
	}
	return o
}

// dig returns what is at a path, nil if there is nothing.
func dig(t any, path ...string) any {
	for _, key := range path {
		m, ok := t.(tree)
		if !ok {
			return nil
		}
		t = m[key]
	}
	return t
}

func digText(t any, path ...string) string {
	s, _ := dig(t, path...).(string)
	return s
}

func digTree(t any, path ...string) tree {
	m, _ := dig(t, path...).(tree)
	return m
}

func digList(t any, path ...string) []any {
	l, _ := dig(t, path...).([]any)
	return l
}

// put sets what is at a path, and makes the way there.
func put(t tree, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := t[key].(tree)
		if !ok {
			next = tree{}
			t[key] = next
		}
		t = next
	}
	t[path[len(path)-1]] = value
}

// cut removes what is at a path.
func cut(t tree, path ...string) {
	for _, key := range path[:len(path)-1] {
		next, ok := t[key].(tree)
		if !ok {
			return
		}
		t = next
	}
	delete(t, path[len(path)-1])
}

// copied returns a deep copy.
func copied(v any) any {
	switch v := v.(type) {
	case tree:
		out := make(tree, len(v))
		for k, e := range v {
			out[k] = copied(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copied(e)
		}
		return out
	}
	return v
}

// text renders a value for comparison and display: keys in order.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// finalizers of an object.
func finalizers(t tree) []string {
	var out []string
	for _, f := range digList(t, "metadata", "finalizers") {
		out = append(out, fmt.Sprint(f))
	}
	return out
}

func setFinalizers(t tree, list []string) {
	if len(list) == 0 {
		cut(t, "metadata", "finalizers")
		return
	}
	out := make([]any, len(list))
	for i, f := range list {
		out[i] = f
	}
	put(t, out, "metadata", "finalizers")
}

func addFinalizer(t tree, f string) {
	if list := finalizers(t); !slices.Contains(list, f) {
		setFinalizers(t, append(list, f))
	}
}

func dropFinalizers(t tree, which func(string) bool) {
	setFinalizers(t, slices.DeleteFunc(finalizers(t), which))
}
