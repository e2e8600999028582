package kind

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Object is an object of a cluster: the bytes from the API server, and little more. It is immutable; an edit returns
// another.
type Object struct {
	raw             []byte
	metadata        []byte // part of raw, as are the next two
	labels          []byte
	annotations     []byte
	namespace       string
	name            string
	uid             string
	resourceVersion string
	deleting        bool
	reduced         bool // see Reduce
}

// Parse parses an object's metadata. The object keeps b.
func Parse(b []byte) (*Object, error) {
	o := &Object{raw: b}
	if err := rawjson.Each(b, func(key string, value []byte) bool {
		if key == "metadata" {
			o.metadata = value
		}
		return true
	}); err != nil {
		return nil, fmt.Errorf("parse object: %w", err)
	}
	if o.metadata == nil {
		return nil, errors.New("parse object: no metadata")
	}
	if err := rawjson.Each(o.metadata, func(key string, value []byte) bool {
		switch key {
		case "name":
			o.name, _ = rawjson.String(value)
		case "namespace":
			o.namespace, _ = rawjson.String(value)
		case "uid":
			o.uid, _ = rawjson.String(value)
		case "resourceVersion":
			o.resourceVersion, _ = rawjson.String(value)
		case "deletionTimestamp":
			o.deleting = !rawjson.IsNull(value)
		case "labels":
			o.labels = value
		case "annotations":
			o.annotations = value
		}
		return true
	}); err != nil {
		return nil, fmt.Errorf("parse metadata: %w", err)
	}
	if o.name == "" {
		return nil, errors.New("parse object: no name")
	}
	return o, nil
}

// Raw returns the object's bytes. The caller must not change them.
func (o *Object) Raw() []byte { return o.raw }

func (o *Object) Namespace() string { return o.namespace }

func (o *Object) Name() string { return o.name }

func (o *Object) UID() string { return o.uid }

func (o *Object) ResourceVersion() string { return o.resourceVersion }

func (o *Object) IsDeleting() bool { return o.deleting }

func (o *Object) Label(key string) string { return rawjson.Text(o.labels, key) }

func (o *Object) Annotation(key string) string { return rawjson.Text(o.annotations, key) }

func (o *Object) Labels() map[string]string {
	m, _ := rawjson.StringMap(o.labels)
	return m
}

func (o *Object) Annotations() map[string]string {
	m, _ := rawjson.StringMap(o.annotations)
	return m
}

func (o *Object) Finalizers() []string {
	list, _ := rawjson.Strings(rawjson.Get(o.metadata, "finalizers"))
	return list
}

// Get returns the value at a path, verbatim, or nil.
func (o *Object) Get(path ...string) []byte { return rawjson.Get(o.raw, path...) }

// Same reports whether two objects are equal.
func Same(a, b *Object) bool {
	return a == b || bytes.Equal(a.raw, b.raw) || sameJSON(a.raw, b.raw)
}

// draft is an object split for editing.
type draft struct {
	top     rawjson.Object
	meta    rawjson.Object
	reduced bool // of a reduced object
}

// edit splits an object. If that fails the draft is empty, and done returns an error.
func edit(o *Object) *draft {
	top, _ := rawjson.Split(o.raw)
	meta, _ := rawjson.Split(o.metadata)
	return &draft{top, meta, o.reduced}
}

func create(ref Ref) *draft {
	apiVersion := ref.Resource.Version
	if ref.Resource.Group != "" {
		apiVersion = ref.Resource.Group + "/" + ref.Resource.Version
	}
	return &draft{
		top: rawjson.Object{
			{Key: "apiVersion", Value: rawjson.Quote(apiVersion)},
			{Key: "kind", Value: rawjson.Quote(ref.Resource.Kind)},
			{Key: "metadata", Value: []byte("{}")},
		},
		meta: rawjson.Object{
			{Key: "name", Value: rawjson.Quote(ref.Name)},
			{Key: "namespace", Value: rawjson.Quote(ref.Namespace)},
		},
	}
}

// createOrEdit returns a draft of local or, if it is nil, of a new object.
func createOrEdit(local *Object, ref Ref) *draft {
	if local == nil {
		return create(ref)
	}
	return edit(local)
}

// done returns the edited object. A reduced object has no edited form: it would lack the rest of its content.
func (d *draft) done() (*Object, error) {
	if d.reduced {
		return nil, errReduced
	}
	d.top.Set("metadata", d.meta.Bytes())
	return Parse(d.top.Bytes())
}

var errReduced = errors.New("edit object: its content is not in memory")

// changed returns the object after a change. If the change cannot be made, it returns o.
func (o *Object) changed(change func(*draft)) *Object {
	d := edit(o)
	change(d)
	if after, err := d.done(); err == nil {
		return after
	}
	return o
}

// withAnnotation returns the object with an annotation. If value is empty, it is removed.
func (o *Object) withAnnotation(key, value string) *Object {
	return o.changed(func(d *draft) {
		annotations := members(o.annotations)
		setText(&annotations, key, value)
		setList(&d.meta, "annotations", annotations)
	})
}

// setOrRemove replaces a member, or removes it if value is empty.
func setOrRemove(o *rawjson.Object, key string, value []byte) {
	if len(value) == 0 {
		o.Remove(key)
		return
	}
	o.Set(key, value)
}

// setText, setStrings and setList replace a member, or remove it if the value is empty.
func setText(o *rawjson.Object, key, value string) {
	if value == "" {
		o.Remove(key)
		return
	}
	o.Set(key, rawjson.Quote(value))
}

func setStrings(o *rawjson.Object, key string, list []string) {
	if len(list) == 0 {
		o.Remove(key)
		return
	}
	o.Set(key, rawjson.AppendStrings(nil, list))
}

func setList(o *rawjson.Object, key string, list rawjson.Object) {
	if len(list) == 0 {
		o.Remove(key)
		return
	}
	o.Set(key, list.Bytes())
}

// members splits labels, annotations and similar values. What is not an object has no members.
func members(b []byte) rawjson.Object {
	if rawjson.IsNull(b) {
		return nil
	}
	o, _ := rawjson.Split(b)
	return o
}
