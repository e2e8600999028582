package kind

import (
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// maxContent bounds accepted content: more than any API server stores.
const maxContent = 4 << 20

// payload is the content of an object, which both sides hash.
//
//	{"deleting":true,"metadata":{"annotations":{},"finalizers":[],"labels":{}},"uid":"…", body}
//
// Empty members are left out.
type payload struct {
	uid         string // of the owner's object
	labels      rawjson.Object
	annotations rawjson.Object
	finalizers  []string
	deleting    bool
	body        rawjson.Object // the rest: spec, data …
}

// content returns the canonical form, or nil.
func (p *payload) content() []byte {
	content, err := p.canonical()
	if err != nil {
		return nil
	}
	return content
}

func (p *payload) item(k engine.Key, needs engine.Key) Item {
	content, err := p.canonical()
	if err != nil {
		return unsendable(k, p.uid, err)
	}
	return Item{Key: k, Content: content, DependsOn: needs}
}

func (p *payload) canonical() ([]byte, error) {
	var meta, all rawjson.Object
	setList(&meta, "annotations", p.annotations)
	setStrings(&meta, "finalizers", slices.Compact(slices.Sorted(slices.Values(p.finalizers))))
	setList(&meta, "labels", p.labels)
	if p.deleting {
		all.Set("deleting", []byte("true"))
	}
	setList(&all, "metadata", meta)
	all = append(all, p.body...)
	all.Set("uid", rawjson.Quote(p.uid))
	return rawjson.Canonical(all.Bytes())
}

// readPayload checks and splits content from the other side.
func readPayload(content []byte) (*payload, error) {
	all, err := checkedMembers(content)
	if err != nil {
		return nil, err
	}
	p := &payload{}
	for _, m := range all {
		switch m.Key {
		case "uid":
			p.uid, _ = rawjson.String(m.Value)
		case "deleting":
			p.deleting = string(m.Value) == "true"
		case "metadata":
			labels, annotations := rawjson.Get(m.Value, "labels"), rawjson.Get(m.Value, "annotations")
			if !isStringMap(labels) || !isStringMap(annotations) {
				return nil, reject(engine.Invalid, "labels or annotations are not text")
			}
			p.labels, p.annotations = members(labels), members(annotations)
			p.finalizers, _ = rawjson.Strings(rawjson.Get(m.Value, "finalizers"))
		default:
			p.body = append(p.body, m)
		}
	}
	if !validUID(p.uid) {
		return nil, reject(engine.Invalid, "content without the UID of its object")
	}
	return p, nil
}

// readItem checks that this side may write an item, and returns its object and its content.
func readItem(kind Kind, what string, k engine.Key, content []byte, w *Env) (Ref, *payload, error) {
	if owner(w) {
		return Ref{}, nil, errNotOwner(what, w)
	}
	ref, err := kind.Target(k, w)
	if err != nil {
		return Ref{}, nil, err
	}
	p, err := readPayload(content)
	return ref, p, err
}

// checkedMembers splits content from the other side after checking it.
func checkedMembers(content []byte) (rawjson.Object, error) {
	if len(content) > maxContent {
		return nil, reject(engine.TooLarge, "content has %d bytes, more than %d", len(content), maxContent)
	}
	checked, err := rawjson.Canonical(content)
	if err != nil {
		return nil, reject(engine.Invalid, "content: %v", err)
	}
	all, err := rawjson.Split(checked)
	if err != nil {
		return nil, reject(engine.Invalid, "content: %v", err)
	}
	return all, nil
}

func isStringMap(b []byte) bool {
	if b == nil {
		return true
	}
	_, ok := rawjson.StringMap(b)
	return ok
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// without removes members from a list, in place.
func without(list rawjson.Object, drop func(key string) bool) rawjson.Object {
	return slices.DeleteFunc(list, func(m rawjson.Member) bool { return drop(m.Key) })
}

// ownedKeys are the labels and annotations of a replica that came from its owner. They are recorded on replicas to
// which others may add some.
type ownedKeys struct {
	annotations, labels []string
}

func readOwnedKeys(o *Object) ownedKeys {
	v := []byte(o.Annotation(OwnedKeysAnnotation))
	annotations, _ := rawjson.Strings(rawjson.Get(v, "annotations"))
	labels, _ := rawjson.Strings(rawjson.Get(v, "labels"))
	return ownedKeys{annotations, labels}
}

func (k ownedKeys) String() string {
	var o rawjson.Object
	setStrings(&o, "annotations", k.annotations)
	setStrings(&o, "labels", k.labels)
	if len(o) == 0 {
		return ""
	}
	return string(o.Bytes())
}

func keys(list rawjson.Object) []string {
	var names []string
	for _, m := range list {
		names = append(names, m.Key)
	}
	return names
}

// metadata reads an object's replicated labels and annotations: all of them or, on shared replicas, those that came
// from the owner.
func (p *payload) metadata(o *Object, shared bool, w *Env) {
	never := func(key string) bool { return neverLabel(key, w) }
	p.labels = without(members(o.labels), never)
	p.annotations = members(o.annotations)
	if w.Side == Hub && !shared {
		p.annotations = withoutNotice(p.annotations)
	}
	p.annotations = without(p.annotations, neverAnnotation)
	if shared {
		owned := readOwnedKeys(o)
		p.labels = without(p.labels, func(key string) bool { return !slices.Contains(owned.labels, key) })
		p.annotations = without(p.annotations, func(key string) bool { return !slices.Contains(owned.annotations, key) })
	}
}

// apply writes labels, annotations and ownership. On a shared replica, what others added stays. Otherwise only what is
// never replicated stays.
func (p *payload) apply(d *draft, local *Object, shared bool, ownership Ownership, sourceName string, w *Env) {
	never := func(key string) bool { return neverLabel(key, w) }
	var labels, annotations rawjson.Object
	var before ownedKeys
	if local != nil {
		labels, annotations = members(local.labels), members(local.annotations)
		before = readOwnedKeys(local)
	}
	newLabels := without(slices.Clone(p.labels), never)
	newAnnotations := without(slices.Clone(p.annotations), func(key string) bool { return neverAnnotation(key) || w.refusesAnnotation(key) })
	if shared {
		labels = replace(labels, newLabels, func(key string) bool { return never(key) || !slices.Contains(before.labels, key) })
		annotations = replace(annotations, newAnnotations, func(key string) bool {
			return neverAnnotation(key) || !slices.Contains(before.annotations, key)
		})
		setText(&annotations, OwnedKeysAnnotation, ownedKeys{keys(newAnnotations), keys(newLabels)}.String())
	} else {
		labels = replace(labels, newLabels, never)
		annotations = replace(annotations, newAnnotations, neverAnnotation)
	}
	ownership.Source = p.uid
	writeOwnership(&annotations, ownership, sourceName, w)
	setList(&d.meta, "labels", labels)
	setList(&d.meta, "annotations", annotations)
}

// replace returns list with the members of wanted, in list's order if possible, and without others unless stays keeps
// them.
func replace(list, wanted rawjson.Object, stays func(string) bool) rawjson.Object {
	var result rawjson.Object
	for _, m := range list {
		switch value := wanted.Get(m.Key); {
		case value != nil:
			result = append(result, rawjson.Member{Key: m.Key, Value: value})
		case stays(m.Key):
			result = append(result, m)
		}
	}
	for _, m := range wanted {
		if list.Get(m.Key) == nil {
			result = append(result, m)
		}
	}
	return result
}
