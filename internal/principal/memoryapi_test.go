package principal

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
)

// memoryAPI is an API server that keeps what it is given: enough of one for whole
// principals to run against, and to see what several of them make of each other. A
// write under an old resource version is a conflict.
type memoryAPI struct {
	t      *testing.T
	server *httptest.Server // nil if time is virtual

	mu       sync.Mutex
	changed  chan struct{} // closed with each change
	revision uint64
	objects  map[string]map[string]any // by path
	events   []apiEvent

	watches map[string]int // number of watches by path and selectors

	// patching is called before each patch and may block. May be nil. Set it before the first request.
	patching func(path string, body []byte)
}

type apiEvent struct {
	collection string
	revision   uint64
	kind       string // ADDED, MODIFIED, DELETED
	object     map[string]any
}

func newMemoryAPI(t *testing.T) *memoryAPI {
	t.Helper()
	a := newVirtualAPI(t)
	a.server = httptest.NewServer(a)
	t.Cleanup(func() { a.server.CloseClientConnections(); a.server.Close() })
	return a
}

// newVirtualAPI returns a memoryAPI without a network, for tests with virtual time.
func newVirtualAPI(t *testing.T) *memoryAPI {
	t.Helper()
	a := &memoryAPI{t: t, changed: make(chan struct{}), revision: 100, objects: map[string]map[string]any{}, watches: map[string]int{}}
	a.put("/api/v1/namespaces/kube-system", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-system"}})
	return a
}

func (a *memoryAPI) config() *rest.Config {
	if a.server != nil {
		return &rest.Config{Host: a.server.URL}
	}
	return &rest.Config{Host: "http://memory", Transport: a}
}

// RoundTrip serves a request without a network.
func (a *memoryAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if !r.URL.Query().Has("watch") {
		recorder := httptest.NewRecorder()
		a.ServeHTTP(recorder, r)
		return recorder.Result(), nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	read, write := io.Pipe()
	context.AfterFunc(ctx, func() { _ = read.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer cancel()
		a.ServeHTTP(pipeWriter{write, http.Header{}}, r.WithContext(ctx))
		_ = write.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: pipeReader{read, cancel}, Request: r}, nil
}

// pipeWriter is the response to a watch.
type pipeWriter struct {
	*io.PipeWriter
	header http.Header
}

func (w pipeWriter) Header() http.Header { return w.header }
func (pipeWriter) WriteHeader(int)       {}
func (pipeWriter) Flush()                {}

// pipeReader is the body of the response to a watch. Closing it ends the request.
type pipeReader struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (r pipeReader) Close() error {
	r.cancel()
	return r.PipeReader.Close()
}

// put stores an object.
func (a *memoryAPI) put(path string, o map[string]any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store(path, o)
}

// get returns an object, or nil.
func (a *memoryAPI) get(path string) map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.objects[path]
}

func (a *memoryAPI) currentRevision() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revision
}

// store is put for who holds a.mu.
func (a *memoryAPI) store(path string, o map[string]any) map[string]any {
	old := a.objects[path]
	a.revision++
	meta, _ := o["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	meta["resourceVersion"] = strconv.FormatUint(a.revision, 10)
	meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	if meta["uid"] == nil {
		meta["uid"] = fmt.Sprint("uid-", a.revision)
	}
	o = maps.Clone(o)
	o["metadata"] = meta
	a.objects[path] = o
	event := "MODIFIED"
	if old == nil {
		event = "ADDED"
	}
	a.publish(apiEvent{collection: path[:strings.LastIndex(path, "/")], revision: a.revision, kind: event, object: o})
	return o
}

func (a *memoryAPI) publish(e apiEvent) {
	a.events = append(a.events, e)
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *memoryAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path, isStatus := strings.CutSuffix(r.URL.Path, "/status")
	if r.Method == http.MethodPatch && a.patching != nil {
		a.patching(r.URL.Path, body)
	}
	switch {
	case r.URL.Query().Has("watch"):
		a.watch(w, r)
		return
	case r.Method == http.MethodGet && collection(path):
		a.list(w, r)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var given map[string]any
	_ = json.Unmarshal(body, &given)
	if r.Method == http.MethodPost {
		meta, _ := given["metadata"].(map[string]any)
		path += "/" + fmt.Sprint(meta["name"])
	}
	old := a.objects[path]
	apply := strings.HasPrefix(r.Header.Get("Content-Type"), "application/apply-patch")
	switch {
	case old == nil && (r.Method == http.MethodPost || apply):
		a.answer(w, a.store(path, given))
	case old == nil:
		notFound(w, r)
	case r.Method == http.MethodPost, outdated(old, given):
		conflict(w)
	case r.Method == http.MethodGet:
		a.answer(w, old)
	case r.Method == http.MethodPatch && given != nil:
		if isStatus {
			given = map[string]any{"status": given["status"]}
		}
		a.answer(w, a.store(path, merged(old, given)))
	case r.Method == http.MethodPut && given != nil:
		next := maps.Clone(old)
		if isStatus {
			next["status"] = given["status"]
		} else if next = given; strings.Contains(path, "/agents/") {
			next["status"] = old["status"]
		}
		a.answer(w, a.store(path, next))
	case r.Method == http.MethodDelete:
		delete(a.objects, path)
		a.revision++
		a.publish(apiEvent{collection: path[:strings.LastIndex(path, "/")], revision: a.revision, kind: "DELETED", object: old})
		fmt.Fprint(w, `{"kind":"Status","status":"Success"}`)
	default: // JSON patches: nothing here needs them
		http.Error(w, "not served", http.StatusNotImplemented)
	}
}

// collection reports whether a path is that of a resource rather than an object.
func collection(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/") // api/v1/... or apis/group/version/...
	rest := parts[2:]
	if parts[0] == "apis" {
		rest = parts[3:]
	}
	return len(rest)%2 == 1
}

func outdated(old, given map[string]any) bool {
	meta, _ := given["metadata"].(map[string]any)
	revision := meta["resourceVersion"]
	return revision != nil && revision != "" && revision != old["metadata"].(map[string]any)["resourceVersion"]
}

// merged is a merge patch.
func merged(old, change map[string]any) map[string]any {
	out := maps.Clone(old)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range change {
		if inner, ok := value.(map[string]any); ok {
			before, _ := out[key].(map[string]any)
			out[key] = merged(before, inner)
		} else if value == nil {
			delete(out, key)
		} else {
			out[key] = value
		}
	}
	return out
}

func (a *memoryAPI) answer(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}

// selects reports whether an object of a collection is asked for.
func selects(r *http.Request, o map[string]any) bool {
	meta := o["metadata"].(map[string]any)
	if field := r.URL.Query().Get("fieldSelector"); field != "" && field != "metadata.name="+fmt.Sprint(meta["name"]) {
		return false
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	has := labels.Set{}
	given, _ := meta["labels"].(map[string]any)
	for key, value := range given {
		has[key] = fmt.Sprint(value)
	}
	return err == nil && selector.Matches(has)
}

// kinds names lists by their resource.
var kinds = map[string]string{"applications": "ApplicationList", "appprojects": "AppProjectList", "secrets": "SecretList", "configmaps": "ConfigMapList",
	"agents": "AgentList", "leases": "LeaseList", "customresourcedefinitions": "PartialObjectMetadataList"}

func (a *memoryAPI) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []any{}
	for _, path := range slices.Sorted(maps.Keys(a.objects)) {
		if path[:strings.LastIndex(path, "/")] == r.URL.Path && selects(r, a.objects[path]) {
			items = append(items, a.objects[path])
		}
	}
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	a.answer(w, map[string]any{"kind": kinds[resource], "metadata": map[string]any{"resourceVersion": strconv.FormatUint(a.revision, 10)}, "items": items})
}

func (a *memoryAPI) watch(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	a.mu.Lock()
	a.watches[strings.TrimSpace(r.URL.Path+" "+r.URL.Query().Get("fieldSelector")+r.URL.Query().Get("labelSelector"))]++
	a.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		a.mu.Lock()
		changed := a.changed
		var due []apiEvent
		for _, e := range a.events {
			if e.collection == r.URL.Path && e.revision > since && selects(r, e.object) {
				due = append(due, e)
			}
		}
		since = a.revision
		a.mu.Unlock()
		for _, e := range due {
			if json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.object}) != nil {
				return
			}
		}
		_ = flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// eventually waits for something that others bring about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
