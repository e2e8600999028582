// Package memcluster is an in-memory Kubernetes API server behind an http.RoundTripper. It implements what an agent
// needs. A benchmark can run thousands of agents in one process, each with its own cluster, and measure the agents,
// their connections and the hub instead of thousands of API servers.
//
// It supports list, watch (with bookmarks and a timeout), create, conditional update, merge patch, and delete with
// finalizers. One resourceVersion counts for the whole cluster.
package memcluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Cluster is one cluster. Create it with New.
type Cluster struct {
	uid string

	// Observe is called for every change of an object, with mu held. Set it before any other use. If nil, it is not
	// called.
	Observe func(resource string, fields map[string]any)

	mu       sync.Mutex
	revision uint64
	objects  map[key]*object
	log      []event       // latest changes, oldest first
	changed  chan struct{} // closed at the next change
	writes   int
}

// key identifies an object. resource is the path below the root of the API, such as
// apis/argoproj.io/v1alpha1/applications.
type key struct{ resource, namespace, name string }

type object struct {
	key
	fields map[string]any
	json   []byte // encoding of fields
}

type event struct {
	revision uint64
	kind     string // ADDED, MODIFIED, DELETED
	object   *object
}

// remembered limits the log. A watch from an older revision must list again.
const remembered = 512

// New returns a cluster with the default namespaces and the Argo CD namespace.
func New(uid string, namespaces ...string) *Cluster {
	c := &Cluster{uid: uid, revision: 1, objects: map[key]*object{}, changed: make(chan struct{})}
	for _, name := range append([]string{"kube-system"}, namespaces...) {
		_, _ = c.create("api/v1/namespaces", "", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "uid": uid + "-" + name}})
	}
	return c
}

// Applications is the resource path of Applications.
const Applications = "apis/argoproj.io/v1alpha1/applications"

// Revision returns the current resourceVersion.
func (c *Cluster) Revision() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.revision
}

// UID returns the UID of namespace kube-system, which identifies the cluster.
func (c *Cluster) UID() string { return c.uid + "-kube-system" }

// Writes returns the number of changes.
func (c *Cluster) Writes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// Each calls a function for every object of a resource. The function must not change it.
func (c *Cluster) Each(resource string, show func(fields map[string]any)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.objects {
		if o.resource == resource {
			show(o.fields)
		}
	}
}

// Count returns the number of objects of a resource.
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

// Create stores an object on behalf of Argo CD or a user.
func (c *Cluster) Create(resource, namespace string, fields map[string]any) error {
	_, err := c.create(resource, namespace, fields)
	return err
}

// Patch applies a merge patch to an object on behalf of Argo CD or a user.
func (c *Cluster) Patch(resource, namespace, name string, change map[string]any) error {
	_, err := c.patch(key{resource, namespace, name}, change)
	return err
}

// failure is an error response.
type failure struct {
	code            int
	reason, message string
	details         map[string]string // of an object that does not exist
}

func (f *failure) Error() string { return f.message }

func refuse(code int, reason, format string, args ...any) *failure {
	return &failure{code: code, reason: reason, message: fmt.Sprintf(format, args...)}
}

func notFound(k key) *failure {
	f := refuse(404, "NotFound", "%s %q not found", k.resource, k.name)
	f.details = map[string]string{"kind": path.Base(k.resource), "name": k.name}
	return f
}

// store stores a new state of an object. The caller must hold mu.
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
			return nil, notFound(key{resource: "api/v1/namespaces", name: namespace})
		}
	}
	if meta["uid"] == nil {
		meta["uid"] = fmt.Sprintf("%s-%d", c.uid, c.revision+1)
	}
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	meta["generation"] = 1
	return c.store("ADDED", k, fields)
}

// update replaces an object if its resourceVersion is unchanged.
func (c *Cluster) update(k key, fields map[string]any) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.objects[k]
	if now == nil {
		return nil, notFound(k)
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

// replace stores a new state of an object. It deletes the object if it is terminating and has no finalizer.
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
		return now, nil // a write without a change has no effect
	}
	return c.store("MODIFIED", k, fields)
}

func (c *Cluster) patch(k key, change map[string]any) (*object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.objects[k]
	if now == nil {
		return nil, notFound(k)
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
		return nil, notFound(k)
	}
	for what, want := range preconditions {
		if is := metadata(now.fields)[what]; is != want {
			return nil, refuse(409, "Conflict", "%s is %v, not %v", what, is, want)
		}
	}
	fields := merge(now.fields, map[string]any{"metadata": map[string]any{"deletionTimestamp": time.Now().UTC().Format(time.RFC3339)}})
	return c.replace(k, now, fields)
}

// Clear deletes all objects of a resource, including those with finalizers.
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

// metadata returns the metadata of an object. It creates them if necessary.
func metadata(fields map[string]any) map[string]any {
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		fields["metadata"] = meta
	}
	return meta
}

// merge applies a merge patch. The result shares no changed part with its arguments.
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
	if meta, ok := out["metadata"].(map[string]any); ok { // store changes it
		out["metadata"] = maps.Clone(meta)
	}
	return out
}
