package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Watch selects the objects of a watch.
type Watch struct {
	Resource  kind.Resource
	Namespace string // If empty, all namespaces.
	Name      string // If empty, all objects.
	Selector  string // label selector
	Fields    string // field selector; not with Name
	Metadata  bool   // only metadata is read
	Part      bool   // other namespaces have their own watches, so its lists have only the objects of Namespace
	Pages     bool   // its lists are passed on in pages, so that not all objects are in memory at once
}

// part returns the namespace of inputs, which is empty if the watch has everything that is read of its resource.
func (w Watch) part() string {
	if w.Part {
		return w.Namespace
	}
	return ""
}

func (w Watch) listKind() string {
	if w.Metadata {
		return "PartialObjectMetadataList"
	}
	return w.Resource.Kind + "List"
}

func (w Watch) accept(partial string) string {
	if w.Metadata {
		return mediaTypeJSON + ";as=" + partial + ";g=meta.k8s.io;v=v1"
	}
	return mediaTypeJSON
}

func (w Watch) setSelectors(query url.Values) {
	if w.Selector != "" {
		query.Set("labelSelector", w.Selector)
	}
	switch {
	case w.Name != "":
		query.Set("fieldSelector", "metadata.name="+w.Name)
	case w.Fields != "":
		query.Set("fieldSelector", w.Fields)
	}
}

// Sink receives the inputs of a watch. It may block. It returns an error only if ctx ends.
type Sink func(ctx context.Context, in reconcile.Input) error

// Watcher keeps the sink informed of one resource. It lists, watches, resumes the watch where it ended, and lists again
// if the API server no longer has the events since then.
type Watcher struct {
	client *Client
	watch  Watch
	sink   Sink
	log    *slog.Logger
	jitter func() float64 // 0 to 1
	relist chan struct{}
	newest uint64 // newest revision seen
	listed bool   // the sink got a list, and no Unreadable since
}

// ErrStoreRegressed means that the API server's storage is older than before. All cached state may be wrong, so the
// process must restart.
var ErrStoreRegressed = errors.New("API server storage was restored from a backup: restart required")

// NewWatcher returns a watcher that passes its inputs to sink.
func NewWatcher(c *Client, w Watch, sink Sink, log *slog.Logger, jitter func() float64) *Watcher {
	log = log.With("resource", w.Resource.Plural)
	if w.Name != "" {
		log = log.With("name", w.Name)
	}
	if w.Part {
		log = log.With("namespace", w.Namespace)
	}
	return &Watcher{client: c, watch: w, sink: sink, jitter: jitter, relist: make(chan struct{}, 1), log: log}
}

// Relist asks for a fresh list.
func (w *Watcher) Relist() {
	select {
	case w.relist <- struct{}{}:
	default: // already requested
	}
}

// The pause after a failed list grows from minListPause to maxListPause.
const (
	minListPause = 200 * time.Millisecond
	maxListPause = 30 * time.Second
)

// A failed watch is resumed where it ended for up to watchResumePeriod, because a resumed watch shows deletions and a
// list does not. After that the resource is reported as unreadable.
const (
	watchResumePeriod = 20 * time.Second
	maxWatchPause     = 3 * time.Second
)

// minWatchDuration is the time before which a watch that showed nothing counts as failed.
const minWatchDuration = time.Second

// Run watches until the context ends or the store regresses.
func (w *Watcher) Run(ctx context.Context) error {
	pause := backoff.Backoff{Min: minListPause, Max: maxListPause, Jitter: w.jitter}
	var logged logonce.One
	for ctx.Err() == nil {
		began := time.Now()
		err := w.listAndWatch(ctx, func() { pause.Reset(); logged.Reset() })
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			if time.Since(began) < minWatchDuration {
				pause.Wait(ctx, 0)
			}
			continue
		}
		if errors.Is(err, ErrStoreRegressed) {
			return err
		}
		reason := w.explain(err)
		changed := logged.Changed(text.WithoutDigits(reason))
		if changed {
			w.log.WarnContext(ctx, "Failed to read objects, retrying", "error", reason)
		}
		if changed || w.listed {
			if err := w.sink(ctx, reconcile.Unreadable{Resource: w.watch.Resource, Namespace: w.watch.part(), Reason: reason}); err != nil {
				return err
			}
			w.listed = false
		}
		pause.Wait(ctx, retryAfter(err))
	}
	return context.Cause(ctx)
}

// explain adds what an administrator can do about an error.
func (w *Watcher) explain(err error) string {
	switch {
	case isStatus(err, http.StatusNotFound):
		return fmt.Sprintf("API server does not serve %s: is %s CRD installed?", w.watch.Resource.Plural, crdOwner(w.watch.Resource))
	case isStatus(err, http.StatusForbidden):
		return err.Error() + " (needs get, list and watch permission)"
	}
	return err.Error()
}

// crdOwner returns who provides the CRD of a resource.
func crdOwner(r kind.Resource) string {
	if r.Group == "argoproj.io" {
		return "Argo CD's"
	}
	return "this project's (install/crds/" + r.Plural + ".yaml)"
}

// retryAfter returns the pause that the API server asks for, or 0.
func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*apiError](err); ok {
		return time.Duration(e.retryAfter) * time.Second
	}
	return 0
}

// listAndWatch lists, then watches until a new list is needed. It calls watching when a watch works: a list alone does
// not prove it, because list and watch are separate permissions.
func (w *Watcher) listAndWatch(ctx context.Context, watching func()) error {
	select {
	case <-w.relist: // this list answers it
	default:
	}
	revision, err := w.list(ctx)
	if err != nil {
		return err
	}
	w.listed = true
	pause, failingSince := backoff.Backoff{Min: minListPause, Max: maxWatchPause, Jitter: w.jitter}, time.Time{}
	for {
		next, err := w.resumeWatch(ctx, revision, !failingSince.IsZero())
		if next != revision || err == nil {
			pause.Reset()
			failingSince = time.Time{}
			watching()
		}
		revision = next
		w.newest = max(w.newest, ParseResourceVersion(next))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			continue
		case errors.Is(err, errRelist), isStatus(err, http.StatusGone):
			w.log.InfoContext(ctx, "Listing objects again", "reason", err)
			return nil
		case errors.Is(err, ErrStoreRegressed), isStatus(err, http.StatusForbidden), isStatus(err, http.StatusNotFound):
			return err
		case failingSince.IsZero():
			failingSince = time.Now()
		case time.Since(failingSince) > watchResumePeriod:
			return err
		}
		w.log.DebugContext(ctx, "Watch interrupted", "error", err)
		pause.Wait(ctx, retryAfter(err))
	}
}

// list passes a list to the sink, and returns its revision.
func (w *Watcher) list(ctx context.Context) (revision string, err error) {
	in := reconcile.List{Resource: w.watch.Resource, Namespace: w.watch.part()}
	return w.client.pages(ctx, w.watch, func(p listPage) error {
		in.Objects = append(in.Objects, p.objects...)
		if p.more && !w.watch.Pages {
			return nil
		}
		if err := w.checkRevision(p.revision); err != nil {
			return err
		}
		in.Revision, in.More = ParseResourceVersion(p.revision), p.more
		err := w.sink(ctx, in)
		in.Objects, in.Continues = nil, true
		return err
	}, func() { in.Objects, in.Continues = nil, false })
}

// resumeWatch watches from a revision on. After a failure it first checks that the store did not regress: a restored
// store sends no events to a watch from its future, and no error either.
func (w *Watcher) resumeWatch(ctx context.Context, revision string, failed bool) (string, error) {
	if failed {
		now, err := w.client.revision(ctx, w.watch)
		if err != nil {
			return revision, err
		}
		if err := w.checkRevision(now); err != nil {
			return revision, err
		}
	}
	began := time.Now()
	next, err := w.watchFrom(ctx, revision)
	if err == nil && next == revision && time.Since(began) < minWatchDuration {
		err = errors.New("API server ended the watch immediately")
	}
	return next, err
}

// checkRevision fails if the store regressed.
func (w *Watcher) checkRevision(revision string) error {
	if n := ParseResourceVersion(revision); n == 0 {
		return fmt.Errorf("API server returned no resourceVersion for %s", w.watch.Resource.Plural)
	} else if n < w.newest {
		return fmt.Errorf("resourceVersion of %s is %d after %d: %w", w.watch.Resource.Plural, n, w.newest, ErrStoreRegressed)
	}
	w.newest = ParseResourceVersion(revision)
	return nil
}

var (
	errRelist  = errors.New("watch cannot continue")
	errOverdue = errors.New("API server did not end the watch in time")
)

// watchEndGrace is how much longer than its timeout a watch may last.
const watchEndGrace = 30 * time.Second

// watchFrom watches from a revision on and returns the last revision that it saw.
func (w *Watcher) watchFrom(ctx context.Context, revision string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	seconds := 300 + int(w.jitter()*300)
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {revision}, "timeoutSeconds": {strconv.Itoa(seconds)},
	}
	// The API server ends the watch. If it does not, the connection is dead.
	overdue := time.AfterFunc(time.Duration(seconds)*time.Second+watchEndGrace, func() { cancel(errOverdue) })
	defer overdue.Stop()
	w.watch.setSelectors(query)
	resp, err := w.client.start(ctx, http.MethodGet, w.client.urlOf(w.watch.Resource, w.watch.Namespace, "", query), w.watch.accept("PartialObjectMetadata"), "", nil)
	if err != nil {
		return revision, err
	}
	defer resp.Body.Close()

	// A requested relist ends the watch by canceling its request.
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		select {
		case <-w.relist:
			cancel(errRelist)
		case <-done:
		}
	}()
	defer func() { close(done); <-finished }()

	dec := json.NewDecoder(resp.Body)
	for {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := dec.Decode(&event); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return revision, cause
			}
			if errors.Is(err, io.EOF) {
				return revision, nil // ended by the server: resume from here
			}
			return revision, fmt.Errorf("read watch event: %w", err)
		}
		if event.Type == "ERROR" {
			if rawjson.Text(event.Object, "reason") == "Expired" || string(rawjson.Get(event.Object, "code")) == "410" {
				return revision, fmt.Errorf("%w: %s", errRelist, rawjson.Text(event.Object, "message"))
			}
			return revision, fmt.Errorf("watch: %s", rawjson.Text(event.Object, "message"))
		}
		in, at, err := w.input(event.Type, event.Object)
		if err != nil { // skip it, so that other objects are not delayed; its last known state stays
			w.log.WarnContext(ctx, "Skipped unreadable object", "error", err)
		} else if err := w.sink(ctx, in); err != nil {
			return revision, err
		}
		if at != "" {
			revision = at
		}
	}
}

func (w *Watcher) input(event string, object []byte) (reconcile.Input, string, error) {
	if event == "BOOKMARK" {
		at := rawjson.Text(object, "metadata", "resourceVersion")
		return reconcile.Bookmark{Resource: w.watch.Resource, Namespace: w.watch.part(), Revision: ParseResourceVersion(at)}, at, nil
	}
	o, err := parse(object)
	if err != nil {
		return nil, rawjson.Text(object, "metadata", "resourceVersion"), fmt.Errorf("read a watch event of %s %s/%s: %w", w.watch.Resource.Plural,
			rawjson.Text(object, "metadata", "namespace"), rawjson.Text(object, "metadata", "name"), err)
	}
	at := o.ResourceVersion()
	if event == "DELETED" {
		ref := kind.Ref{Resource: w.watch.Resource, Namespace: o.Namespace(), Name: o.Name()}
		return reconcile.Deleted{Ref: ref, UID: o.UID(), Revision: ParseResourceVersion(at)}, at, nil
	}
	return reconcile.Observed{Resource: w.watch.Resource, Object: o}, at, nil
}

// ParseResourceVersion returns a resourceVersion as a number that grows within one resource, or 0.
func ParseResourceVersion(revision string) uint64 {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
