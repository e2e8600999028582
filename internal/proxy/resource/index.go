package resource

import (
	"fmt"
	"slices"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Node is an object in the resource tree of an Application.
type Node struct {
	Group, Kind, Namespace, Name, UID string
	Orphaned                          bool // it is in the namespace of the Application and belongs to none
}

// Nodes returns the objects of a resource tree in Argo CD's cache (uncompressed JSON), with orphaned objects if they are
// wanted.
func Nodes(tree []byte, orphans bool) ([]Node, error) {
	nodes, err := nodesOf(nil, rawjson.Get(tree, "nodes"), false)
	if err != nil || !orphans {
		return nodes, err
	}
	return nodesOf(nodes, rawjson.Get(tree, "orphanedNodes"), true)
}

func nodesOf(nodes []Node, list []byte, orphaned bool) ([]Node, error) {
	if rawjson.IsNull(list) {
		return nodes, nil
	}
	elements, err := rawjson.Elements(list)
	if err != nil {
		return nil, fmt.Errorf("parse nodes of a resource tree: %w", err)
	}
	nodes = slices.Grow(nodes, len(elements))
	for _, e := range elements {
		n := Node{
			Group: rawjson.Text(e, "group"), Kind: rawjson.Text(e, "kind"), Namespace: rawjson.Text(e, "namespace"),
			Name: rawjson.Text(e, "name"), UID: rawjson.Text(e, "uid"), Orphaned: orphaned,
		}
		if n.Kind != "" && n.Name != "" {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}

// Index maps the objects of a cluster to their Applications. The zero value is empty.
type Index struct {
	mu         sync.RWMutex
	apps       map[string][]Node
	objects    map[Node]map[string]int    // as Node.object returns it → Applications, how often
	subjects   map[[2]string]map[Node]int // namespace and name → nodes with UID, how often
	namespaces map[string]map[string]int  // → Applications, how many objects that are not orphaned
}

// Set replaces the objects of an Application. Without nodes, it removes the Application.
func (x *Index) Set(app string, nodes []Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.apps == nil {
		x.apps, x.objects = map[string][]Node{}, map[Node]map[string]int{}
		x.subjects, x.namespaces = map[[2]string]map[Node]int{}, map[string]map[string]int{}
	}
	for _, n := range x.apps[app] {
		x.remove(app, n)
	}
	delete(x.apps, app)
	if len(nodes) == 0 {
		return
	}
	for _, n := range nodes {
		x.add(app, n)
	}
	x.apps[app] = slices.Clone(nodes)
}

func (x *Index) add(app string, n Node) {
	put(x.subjects, [2]string{n.Namespace, n.Name}, n)
	if !n.Orphaned {
		put(x.namespaces, n.Namespace, app)
	}
	put(x.objects, n.object(), app)
}

func (x *Index) remove(app string, n Node) {
	take(x.subjects, [2]string{n.Namespace, n.Name}, n)
	if !n.Orphaned {
		take(x.namespaces, n.Namespace, app)
	}
	take(x.objects, n.object(), app)
}

// object returns the node without what does not name the object.
func (n Node) object() Node {
	n.UID, n.Orphaned = "", false
	return n
}

func put[K, V comparable](m map[K]map[V]int, key K, value V) {
	if m[key] == nil {
		m[key] = map[V]int{}
	}
	m[key][value]++
}

func take[K, V comparable](m map[K]map[V]int, key K, value V) {
	if m[key][value]--; m[key][value] == 0 {
		delete(m[key], value)
	}
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// OwnerOf returns the Application whose tree has an object.
func (x *Index) OwnerOf(group, kind, namespace, name string) (string, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.owner(Node{Group: group, Kind: kind, Namespace: namespace, Name: name})
}

func (x *Index) owner(n Node) (string, bool) {
	for app := range x.objects[n.object()] {
		return app, true
	}
	return "", false
}

// OwnerOfSubject returns the Application whose tree has the subject of events.
func (x *Index) OwnerOfSubject(s Subject) (string, bool) {
	if s.AnyNamespace {
		return "", false // Argo CD and kubectl do not send such requests
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	for n := range x.subjects[[2]string{s.Namespace, s.Name}] {
		if (s.Kind == "" || s.Kind == n.Kind) && (s.UID == "" || n.UID == "" || s.UID == n.UID) {
			return x.owner(n)
		}
	}
	return "", false
}

// HasNamespace returns an Application that has objects in a namespace.
func (x *Index) HasNamespace(namespace string) (string, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for app := range x.namespaces[namespace] {
		return app, true
	}
	return "", false
}
