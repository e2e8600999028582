package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// store is an API server with its storage: objects, revisions, preconditions, finalizers, and a history for watches
// that does not reach back forever.
type store struct {
	name    string // of the cluster; UIDs begin with it
	uid     string // of the cluster
	rev     uint64
	uids    uint64 // never goes back, not even when the store does
	objects map[kind.Ref]*kind.Object
	logs    map[kind.Resource][]change
	floor   uint64 // the history up to here is gone
	watches []*watch

	admit   func(who actor, ref kind.Ref, o *kind.Object) (*kind.Object, *apiError)
	changed func(who actor, c change)
}

// change is one entry of the history. Without a new object it is a deletion; final is then the object as it was last,
// with the revision of the deletion.
type change struct {
	rev      uint64
	ref      kind.Ref
	old, new *kind.Object
	final    *kind.Object
}

// apiError is a refusal of the API server.
type apiError struct {
	reason  string // as in metav1.Status
	message string
}

func newStore(name string) *store {
	return &store{name: name, uid: "kube-system-" + name, rev: 100, objects: map[kind.Ref]*kind.Object{}, logs: map[kind.Resource][]change{}}
}

func refOf(r kind.Resource, o *kind.Object) kind.Ref {
	return kind.Ref{Resource: r, Namespace: o.Namespace(), Name: o.Name()}
}

func (s *store) get(ref kind.Ref) *kind.Object { return s.objects[ref] }

// list returns all objects of a resource in the order of their names.
func (s *store) list(r kind.Resource) []*kind.Object {
	var out []*kind.Object
	for ref, o := range s.objects {
		if ref.Resource == r {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *kind.Object) int {
		return cmp.Or(strings.Compare(a.Namespace(), b.Namespace()), strings.Compare(a.Name(), b.Name()))
	})
	return out
}

// withMeta returns the object with members of its metadata set (nil: removed).
func withMeta(o *kind.Object, pairs ...any) *kind.Object {
	meta, _ := rawjson.Split(o.Get("metadata"))
	for ; len(pairs) > 1; pairs = pairs[2:] {
		key := pairs[0].(string)
		switch v := pairs[1].(type) {
		case nil:
			meta.Remove(key)
		case string:
			meta.Set(key, rawjson.Quote(v))
		case uint64:
			meta.Set(key, strconv.AppendUint(nil, v, 10))
		case []byte:
			if v == nil {
				meta.Remove(key)
			} else {
				meta.Set(key, v)
			}
		}
	}
	b, err := rawjson.Set(o.Raw(), meta.Bytes(), "metadata")
	if err != nil {
		panic(err)
	}
	out, err := kind.Parse(b)
	if err != nil {
		panic(err)
	}
	return out
}

func (s *store) create(who actor, r kind.Resource, o *kind.Object) (*kind.Object, *apiError) {
	ref := refOf(r, o)
	if s.objects[ref] != nil {
		return nil, &apiError{"AlreadyExists", ref.Name + " already exists"}
	}
	if s.admit != nil {
		admitted, err := s.admit(who, ref, o)
		if err != nil {
			return nil, err
		}
		o = admitted
	}
	s.uids++
	s.rev++
	o = withMeta(o, "uid", fmt.Sprintf("%s-%d", s.name, s.uids), "resourceVersion", strconv.FormatUint(s.rev, 10),
		"generation", uint64(1), "deletionTimestamp", nil)
	s.commit(who, change{rev: s.rev, ref: ref, new: o})
	return o, nil
}

// update replaces an object. With a resource version it is conditional on it.
func (s *store) update(who actor, r kind.Resource, o *kind.Object) (*kind.Object, *apiError) {
	ref := refOf(r, o)
	old := s.objects[ref]
	switch {
	case old == nil:
		return nil, &apiError{"NotFound", ref.Name + " not found"}
	case o.ResourceVersion() != "" && o.ResourceVersion() != old.ResourceVersion():
		return nil, &apiError{"Conflict", "the object has been modified"}
	case o.UID() != "" && o.UID() != old.UID():
		return nil, &apiError{"Conflict", "the UID in the precondition is another one"}
	}
	if s.admit != nil {
		admitted, err := s.admit(who, ref, o)
		if err != nil {
			return nil, err
		}
		o = admitted
	}
	if old.IsDeleting() {
		for _, f := range o.Finalizers() {
			if !slices.Contains(old.Finalizers(), f) {
				return nil, &apiError{"Invalid", "no new finalizers can be added if the object is being deleted"}
			}
		}
	}
	o = withMeta(o, "uid", old.UID(), "resourceVersion", old.ResourceVersion(),
		"generation", old.Get("metadata", "generation"), "deletionTimestamp", old.Get("metadata", "deletionTimestamp"))
	if same(o, old) {
		return old, nil
	}
	s.rev++
	generation, _ := strconv.ParseUint(string(old.Get("metadata", "generation")), 10, 64)
	if !sameBody(o, old) {
		generation++
	}
	o = withMeta(o, "resourceVersion", strconv.FormatUint(s.rev, 10), "generation", generation)
	if o.IsDeleting() && len(o.Finalizers()) == 0 {
		s.commit(who, change{rev: s.rev, ref: ref, old: old, final: o})
		return o, nil
	}
	s.commit(who, change{rev: s.rev, ref: ref, old: old, new: o})
	return o, nil
}

func same(a, b *kind.Object) bool {
	x, _ := rawjson.Canonical(a.Raw())
	y, _ := rawjson.Canonical(b.Raw())
	return bytes.Equal(x, y)
}

func sameBody(a, b *kind.Object) bool {
	x, _ := rawjson.Remove(a.Raw(), "metadata")
	y, _ := rawjson.Remove(b.Raw(), "metadata")
	x, _ = rawjson.Canonical(x)
	y, _ = rawjson.Canonical(y)
	return bytes.Equal(x, y)
}

// delete removes an object, or marks it if finalizers keep it. It returns what is left. UID and resource version, where
// given, are preconditions.
func (s *store) delete(who actor, ref kind.Ref, uid, rv string) (*kind.Object, *apiError) {
	old := s.objects[ref]
	switch {
	case old == nil:
		return nil, &apiError{"NotFound", ref.Name + " not found"}
	case uid != "" && uid != old.UID(), rv != "" && rv != old.ResourceVersion():
		return nil, &apiError{"Conflict", "a precondition of the deletion is not met"}
	case old.IsDeleting():
		return old, nil
	}
	s.rev++
	o := withMeta(old, "resourceVersion", strconv.FormatUint(s.rev, 10))
	if len(o.Finalizers()) == 0 {
		s.commit(who, change{rev: s.rev, ref: ref, old: old, final: o})
		return nil, nil
	}
	o = withMeta(o, "deletionTimestamp", "2030-01-01T00:00:00Z")
	s.commit(who, change{rev: s.rev, ref: ref, old: old, new: o})
	return o, nil
}

func (s *store) commit(who actor, c change) {
	if c.new != nil {
		s.objects[c.ref] = c.new
	} else {
		delete(s.objects, c.ref)
	}
	s.logs[c.ref.Resource] = append(s.logs[c.ref.Resource], c)
	for _, w := range s.watches {
		if w.resource == c.ref.Resource {
			w.kick()
		}
	}
	if s.changed != nil {
		s.changed(who, c)
	}
}

// compact forgets the history, as etcd does every few minutes. A watch that has passed on everything goes on.
func (s *store) compact() {
	for _, w := range s.watches {
		if w.upToDate() {
			w.pos = s.rev
		}
	}
	s.floor = s.rev
	s.logs = map[kind.Resource][]change{}
}

// backup is a store as it was at some time.
type backup struct {
	rev     uint64
	uid     string
	objects map[kind.Ref]*kind.Object
}

func (s *store) snapshot() *backup {
	return &backup{rev: s.rev, uid: s.uid, objects: maps.Clone(s.objects)}
}

// restore puts a backup in place of what is there. All watches end.
func (s *store) restore(b *backup) {
	s.rev, s.uid, s.floor = b.rev, b.uid, b.rev
	s.logs = map[kind.Resource][]change{}
	s.objects = make(map[kind.Ref]*kind.Object, len(b.objects))
	maps.Copy(s.objects, b.objects)
	s.cutWatches()
}

func (s *store) cutWatches() {
	for _, w := range slices.Clone(s.watches) {
		w.end()
	}
}
