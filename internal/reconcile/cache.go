package reconcile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// cache holds the objects of the local cluster, as fresh as they are known.
type cache struct {
	tables map[kind.Resource]*table

	// Applications, by the two things that say whose they are, and by AppProject.
	byNS          index
	byDestination index // by name or, without one, by URL
	byProject     index
}

// index lists objects by something that they say, in the order of their names. An
// agent has few objects of its own, and there are thousands of agents: a map for
// each would be larger than what is in it.
type index map[string][]*kind.Object

type table struct {
	objects  map[objectName]*kind.Object
	complete bool
	read     bool // it was complete once
	reason   string
	listAt   engine.Time // before that no other list is asked for
	frontier uint64      // everything up to this revision has been seen
	newest   uint64      // highest revision of an object

	// gone holds the UIDs of objects that are known to be gone although the watch
	// has not said so yet. Until it has, it may still speak of them.
	gone map[string]bool
}

type objectName struct{ namespace, name string }

func newCache(resources []kind.Resource) *cache {
	c := &cache{tables: map[kind.Resource]*table{}, byNS: index{}, byDestination: index{}, byProject: index{}}
	for _, r := range resources {
		c.tables[r] = &table{objects: map[objectName]*kind.Object{}, gone: map[string]bool{}, reason: "not read yet"}
	}
	return c
}

func nameOf(o *kind.Object) objectName { return objectName{o.Namespace(), o.Name()} }

func (c *cache) get(ref kind.Ref) *kind.Object {
	t := c.tables[ref.Resource]
	if t == nil {
		return nil
	}
	return t.objects[objectName{ref.Namespace, ref.Name}]
}

// put stores an object unless a newer one is there. It returns what was there
// before, and whether anything changed.
func (c *cache) put(r kind.Resource, o *kind.Object) (old *kind.Object, changed bool) {
	t := c.tables[r]
	rev := revision(o)
	old = t.objects[nameOf(o)]
	if old != nil && revision(old) >= rev {
		return old, false
	}
	t.objects[nameOf(o)] = o
	t.newest = max(t.newest, rev)
	if r == kind.Applications {
		c.byNS.put(o.Namespace(), o)
		c.byDestination.move(old, o, kind.DestinationOf)
		c.byProject.move(old, o, kind.ProjectOf)
	}
	return old, true
}

// drop forgets an object.
func (c *cache) drop(ref kind.Ref) {
	t := c.tables[ref.Resource]
	n := objectName{ref.Namespace, ref.Name}
	old := t.objects[n]
	delete(t.objects, n)
	if ref.Resource == kind.Applications && old != nil {
		c.byNS.drop(old.Namespace(), old)
		c.byDestination.drop(kind.DestinationOf(old), old)
		c.byProject.drop(kind.ProjectOf(old), old)
	}
}

// move replaces an object, nil if there was none, by one of the same name that
// may say something else.
func (x index) move(old, o *kind.Object, key func(*kind.Object) string) {
	now := key(o)
	if old != nil {
		if before := key(old); before != now {
			x.drop(before, old)
		}
	}
	x.put(now, o)
}

// put adds an object, or replaces the one of its name.
func (x index) put(key string, o *kind.Object) {
	if key == "" {
		return
	}
	i, found := slices.BinarySearchFunc(x[key], o, compareNames)
	if found {
		x[key][i] = o
	} else {
		x[key] = slices.Insert(x[key], i, o)
	}
}

func (x index) drop(key string, o *kind.Object) {
	if key == "" {
		return
	}
	i, found := slices.BinarySearchFunc(x[key], o, compareNames)
	if !found {
		return
	}
	if x[key] = slices.Delete(x[key], i, i+1); len(x[key]) == 0 {
		delete(x, key)
	}
}

func compareNames(a, b *kind.Object) int {
	return cmp.Or(strings.Compare(a.Namespace(), b.Namespace()), strings.Compare(a.Name(), b.Name()))
}

// inUse reports whether an Application names a project.
func (c *cache) inUse(project string) bool { return len(c.byProject[project]) > 0 }

// revision reads an object's resource version. Within one resource of one API
// server these are numbers that grow; those of two servers are never compared.
func revision(o *kind.Object) uint64 {
	n, err := strconv.ParseUint(o.ResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func refOf(r kind.Resource, o *kind.Object) kind.Ref {
	return kind.Ref{Resource: r, Namespace: o.Namespace(), Name: o.Name()}
}
