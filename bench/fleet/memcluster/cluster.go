// Package memory is a Kubernetes API server without a server: as much of one as an agent needs, in memory, behind the
// client's own transport. A benchmark runs thousands of agents in one process with it, each in a cluster of its own;
// what is measured are the agents, their connections and the hub, not thousands of API servers.
//
// It lists, watches (with bookmarks and an end after the time that was asked for), creates, updates under a
// precondition, merges patches and deletes with finalizers, at one revision for the whole cluster, as the real one does.
package memcluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Cluster is one cluster. Its zero value is not usable; see New.
type Cluster struct {
	uid string

	// Observe hears of every change of an object, with the lock held; it is set before anything else, or nil.
	Observe func(resource string, fields map[string]any)

	mu       sync.Mutex
	revision uint64
	objects  map[key]*object
	log      []event       // of the last changes, oldest first
	changed  chan struct{} // closed at the next change
	writes   int
}

// key is where an object is: resource is its path below the API's root, such as apis/argoproj.io/v1alpha1/applications.
type key struct{ resource, namespace, name string }

type object struct {
	key
	fields map[string]any
	json   []byte // of fields
}

type event struct {
	revision uint64
	kind     string // ADDED, MODIFIED, DELETED
	object   *object
}

// remembered bounds the log: a watch from further back has to list again.
const remembered = 512

// New makes a cluster with the namespaces that every cluster has, and Argo CD's.
func New(uid string, namespaces ...string) *Cluster {
	c := &Cluster{uid: uid, revision: 1, objects: map[key]*object{}, changed: make(chan struct{})}
	for _, name := range append([]string{"kube-system"}, namespaces...) {
		_, _ = c.create("api/v1/namespaces", "", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "uid": uid + "-" + name}})
	}
	return c
}

// Applications is where Applications are.
const Applications = "apis/argoproj.io/v1alpha1/applications"

// Revision tells how far its history has come.
func (c *Cluster) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// UID is that of its kube-system namespace, by which clusters are told apart.
func (c *Cluster) UID() string { return c.uid + "-kube-system" }

// Writes tells how many changes there have been.
func (c *Cluster) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// Each shows every object of a resource. Nothing may be changed in it.
func (c *Cluster) Each(resource string, show func(fields map[string]any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.objects {
		if o.resource == resource {
			show(o.fields)
		}
	}
}

// Count tells how many objects of a resource there are.
func (c *Cluster) Count(resource string) (n int) {
	c.Each(resource, func(map[string]any) { n++ })
	return n
}

// Changed returns a channel that is closed at the next change.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Create stores an object, for whoever plays Argo CD or a user there.
func (c *Cluster) Create(resource, namespace string, fields map[string]any) error {
	_, err := c.create(resource, namespace, fields)
	return err
}

// Patch merges a change into an object, for whoever plays Argo CD or a user there.
func (c *Cluster) Patch(resource, namespace, name string, change map[string]any) error {
	_, err := c.patch(key{resource, namespace, name}, change)
	return err
}

// failure is an answer that is no success.
type failure struct {
	code            int
	reason, message string
}

func (f *failure) Error() string { return f.message }

func refuse(code int, reason, format string, args ...any) *failure {
	return &failure{code, reason, fmt.Sprintf(format, args...)}
}

// store makes a new state of an object known. It is called with the lock held.
func (c *Cluster) store(what string, k key, fields map[string]any) (*object, error) {
	c.revision++
	c.writes++
	meta := metadata(fields)
	meta["resourceVersion"] = strconv.FormatUint(c.revision, 10)
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	o := &object{k, fields, body}
	if what == "DELETED" {
		delete(c.objects, k)
	} else {
		c.objects[k] = o
	}
	if len(c.log) == remembered {
		c.log = slices.Delete(c.log, 0, remembered/4)
	}
	c.log = append(c.log, event{c.revision, what, o})
	close(c.changed)
	c.changed = make(chan struct{})
	if c.Observe != nil && what != "DELETED" {
		c.Observe(k.resource, fields)
	}
	return o, nil
}

func (c *Cluster) create(resource, namespace string, fields map[string]any) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	meta := metadata(fields)
	name, _ := meta["name"].(string)
	k := key{resource, namespace, name}
	if name == "" {
		return nil, refuse(422, "Invalid", "a name is needed")
	}
	if c.objects[k] != nil {
		return nil, refuse(409, "AlreadyExists", "%s %q already exists", resource, name)
	}
	if namespace != "" {
		meta["namespace"] = namespace
		if c.objects[key{"api/v1/namespaces", "", namespace}] == nil {
			return nil, refuse(404, "NotFound", "namespaces %q not found", namespace)
		}
	}
	if meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("%s-%d", c.uid, c.revision+1)
	}
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	meta["generation"] = 1
	return c.store("ADDED", k, fields)
}

// update replaces an object, if it still is as the writer has seen it.
func (c *Cluster) update(k key, fields map[string]any) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.objects[k]
	if now == nil {
		return nil, refuse(404, "NotFound", "%s %q not found", k.resource, k.name)
	}
	meta, was := metadata(fields), metadata(now.fields)
	if rv, _ := meta["resourceVersion"].(string); rv != "" && rv != was["resourceVersion"] {
		return nil, refuse(409, "Conflict", "the object has been modified")
	}
	for _, kept := range []string{"uid", "creationTimestamp", "deletionTimestamp", "namespace", "name"} {
		if was[kept] != nil {
			meta[kept] = was[kept]
		}
	}
	return c.replace(k, now, fields)
}

// replace stores what an object becomes: nothing, if it is being deleted and nobody holds it any more.
func (c *Cluster) replace(k key, now *object, fields map[string]any) (*object, error) {
	meta := metadata(fields)
	if finalizers, _ := meta["finalizers"].([]any); meta["deletionTimestamp"] != nil && len(finalizers) == 0 {
		return c.store("DELETED", k, fields)
	}
	before, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(before, now.json) {
		return now, nil // a write that changes nothing is none
	}
	return c.store("MODIFIED", k, fields)
}

func (c *Cluster) patch(k key, change map[string]any) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.objects[k]
	if now == nil {
		return nil, refuse(404, "NotFound", "%s %q not found", k.resource, k.name)
	}
	if rv, _ := metadata(change)["resourceVersion"].(string); rv != "" && rv != metadata(now.fields)["resourceVersion"] {
		return nil, refuse(409, "Conflict", "the object has been modified")
	}
	return c.replace(k, now, merge(now.fields, change))
}

func (c *Cluster) delete(k key, preconditions map[string]any) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.objects[k]
	if now == nil {
		return nil, refuse(404, "NotFound", "%s %q not found", k.resource, k.name)
	}
	for what, want := range preconditions {
		if is := metadata(now.fields)[what]; is != want {
			return nil, refuse(409, "Conflict", "%s is %v, not %v", what, is, want)
		}
	}
	fields := merge(now.fields, map[string]any{"metadata": map[string]any{"deletionTimestamp": time.Now().UTC().Format(time.RFC3339)}})
	return c.replace(k, now, fields)
}

// Clear removes all objects of a resource, whoever holds them.
func (c *Cluster) Clear(resource string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, o := range c.objects {
		if k.resource != resource {
			continue
		}
		if _, err := c.store("DELETED", k, merge(o.fields, map[string]any{})); err != nil {
			return err
		}
	}
	return nil
}

// metadata returns the metadata of an object, made if there are none.
func metadata(fields map[string]any) map[string]any {
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		fields["metadata"] = meta
	}
	return meta
}

// merge applies a merge patch. What it returns shares nothing that it changes with what it was given.
func merge(fields, change map[string]any) map[string]any {
	out := maps.Clone(fields)
	if out == nil {
		out = map[string]any{}
	}
	for name, value := range change {
		switch value := value.(type) {
		case nil:
			delete(out, name)
		case map[string]any:
			inner, _ := out[name].(map[string]any)
			out[name] = merge(inner, value)
		default:
			out[name] = value
		}
	}
	if meta, ok := out["metadata"].(map[string]any); ok { // which store changes
		out["metadata"] = maps.Clone(meta)
	}
	return out
}
