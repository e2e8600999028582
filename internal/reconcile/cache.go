package reconcile

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// cache has the objects of the local cluster.
type cache struct {
	tables map[kind.Resource]*table

	// Applications by the two fields that determine their agent, and by AppProject.
	byNS          index
	byDestination index // by name or, if empty, by URL
	byProject     index

	// By AppProject: Applications with a source hydrator, and Secrets with credentials to push.
	hydrated index
	writers  index
	branches index // Applications by the branch to which their source hydrator pushes
}

// index lists objects by a field, sorted by name. An agent has few objects and there are thousands of agents: a map per
// agent would be larger than its content.
type index map[string][]*kind.Object

type table struct {
	objects map[objectName]*kind.Object
	listAt  engine.Time // earliest time of the next list
	parts   parts
}

type objectName struct{ namespace, name string }

// newCache returns an empty cache. If there are namespaces of a resource, it is watched in each of them by itself.
func newCache(resources []kind.Resource, namespaces map[kind.Resource][]string) *cache {
	c := &cache{tables: map[kind.Resource]*table{}, byNS: index{}, byDestination: index{}, byProject: index{}, hydrated: index{}, writers: index{}, branches: index{}}
	for _, r := range resources {
		c.tables[r] = &table{objects: map[objectName]*kind.Object{}, parts: newParts(namespaces[r])}
	}
	return c
}

// inNamespace returns the objects of one namespace.
func (c *cache) inNamespace(r kind.Resource, namespace string) (found []*kind.Object) {
	if r == kind.Applications {
		return c.byNS[namespace]
	}
	for name, o := range c.tables[r].objects {
		if name.namespace == namespace {
			found = append(found, o)
		}
	}
	return found
}

func nameOf(o *kind.Object) objectName { return objectName{o.Namespace(), o.Name()} }

func (c *cache) get(ref kind.Ref) *kind.Object {
	t := c.tables[ref.Resource]
	if t == nil {
		return nil
	}
	return t.objects[objectName{ref.Namespace, ref.Name}]
}

// put stores an object unless a newer one is cached. It returns the previous object, and whether anything changed.
func (c *cache) put(r kind.Resource, o *kind.Object) (old *kind.Object, changed bool) {
	t := c.tables[r]
	rev := revision(o)
	old = t.objects[nameOf(o)]
	if old != nil && revision(old) >= rev {
		return old, false
	}
	t.objects[nameOf(o)] = o
	p := t.parts.of(o.Namespace())
	p.newest = max(p.newest, rev)
	if r == kind.Applications {
		c.byNS.put(o.Namespace(), o)
		c.byDestination.move(old, o, kind.DestinationOf)
		c.byProject.move(old, o, kind.ProjectOf)
		c.hydrated.move(old, o, pushingProject)
		c.branches.move(old, o, kind.PushedBranch)
	}
	if r == kind.Secrets {
		c.writers.move(old, o, writerProject)
	}
	return old, true
}

func (c *cache) drop(ref kind.Ref) {
	t := c.tables[ref.Resource]
	n := objectName{ref.Namespace, ref.Name}
	old := t.objects[n]
	delete(t.objects, n)
	if ref.Resource == kind.Applications && old != nil {
		c.byNS.drop(old.Namespace(), old)
		c.byDestination.drop(kind.DestinationOf(old), old)
		c.byProject.drop(kind.ProjectOf(old), old)
		c.hydrated.drop(pushingProject(old), old)
		c.branches.drop(kind.PushedBranch(old), old)
	}
	if ref.Resource == kind.Secrets && old != nil {
		c.writers.drop(writerProject(old), old)
	}
}

// pushingProject returns the AppProject of an Application with a source hydrator, or "".
func pushingProject(o *kind.Object) string {
	if kind.PushesTo(o) == "" {
		return ""
	}
	return kind.ProjectOf(o)
}

// writerProject returns the AppProject of a Secret with credentials to push, or "".
func writerProject(o *kind.Object) string {
	if !kind.CanPush(o) {
		return ""
	}
	return kind.RepositoryProject(o)
}

// pushing implements kind.Env.Pushing.
func (c *cache) pushing(project string) []*kind.Object { return c.hydrated[project] }

// move replaces an object, or nil, by one of the same name that may have another key.
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

// inUse reports whether an Application uses a project.
func (c *cache) inUse(project string) bool { return len(c.byProject[project]) > 0 }

// revision parses an object's resourceVersion. Revisions of one resource in one API server are comparable.
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
