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
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Watch says what is to be watched.
type Watch struct {
	Resource  kind.Resource
	Namespace string // empty: all
	Name      string // empty: every
	Selector  string // of labels
	Metadata  bool   // only metadata is of interest
}

// listKind returns the kind that a list has.
func (w Watch) listKind() string {
	if w.Metadata {
		return "PartialObjectMetadataList"
	}
	return w.Resource.Kind + "List"
}

// accept returns the media type to ask for.
func (w Watch) accept(partial string) string {
	if w.Metadata {
		return mediaTypeJSON + ";as=" + partial + ";g=meta.k8s.io;v=v1"
	}
	return mediaTypeJSON
}

// setSelectors adds what the API server has to filter by.
func (w Watch) setSelectors(query url.Values) {
	if w.Selector != "" {
		query.Set("labelSelector", w.Selector)
	}
	if w.Name != "" {
		query.Set("fieldSelector", "metadata.name="+w.Name)
	}
}

// Watcher keeps a node informed of one resource: a list, then a watch from
// there on, again from where it ended, and another list when the API server has
// forgotten that far back.
type Watcher struct {
	client *Client
	watch  Watch
	sink   func(context.Context, reconcile.Input) error
	log    *slog.Logger
	jitter func() float64 // 0 to 1
	relist chan struct{}
	newest uint64 // the newest revision seen
	shown  bool   // a list was passed on, and no blindness since
}

// ErrStoreRegressed says that the API server's store is older than it was: somebody
// has put it back from a backup. What is known of it is wrong from there on, in
// ways that nothing tells; the process has to begin again.
var ErrStoreRegressed = errors.New("the API server's store went back in time: it was restored from a backup; everything has to be read again")

// NewWatcher makes a watcher that gives its inputs to sink, which may block.
func NewWatcher(c *Client, w Watch, sink func(context.Context, reconcile.Input) error, log *slog.Logger, jitter func() float64) *Watcher {
	return &Watcher{client: c, watch: w, sink: sink, jitter: jitter, relist: make(chan struct{}, 1),
		log: log.With("resource", w.Resource.Plural)}
}

// Relist asks for a fresh list.
func (w *Watcher) Relist() {
	select {
	case w.relist <- struct{}{}:
	default: // one is on its way
	}
}

// The pause after a failure grows between these, and is shortened at random.
const (
	firstPause = 200 * time.Millisecond
	mostPause  = 30 * time.Second
)

// A watch that fails is taken up again where it ended, for as long as patience
// lasts: what was deleted meanwhile is then seen being deleted, which a list
// could only guess. After that the resource is called unreadable.
const (
	watchResumePeriod = 20 * time.Second
	mostWatchPause    = 3 * time.Second
)

// minWatchDuration is a watch that ends so soon, without having shown anything, that
// another at once would only be a burden.
const minWatchDuration = time.Second

// Run watches until the context ends, or the store goes back in time.
func (w *Watcher) Run(ctx context.Context) error {
	pause := firstPause
	said := ""
	for ctx.Err() == nil {
		began := time.Now()
		err := w.listAndWatch(ctx, func() { pause, said = firstPause, "" })
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			if time.Since(began) < minWatchDuration { // a list that is of no use at once: not again at once
				w.backoff(ctx, pause, nil)
				pause = min(2*pause, mostPause)
			}
			continue
		}
		if errors.Is(err, ErrStoreRegressed) {
			return err
		}
		reason := w.explain(err)
		news := normalizeReason(reason) != said
		if news {
			w.log.WarnContext(ctx, "cannot read objects; trying again", "error", reason)
			said = normalizeReason(reason)
		}
		if news || w.shown {
			if err := w.sink(ctx, reconcile.Unreadable{Resource: w.watch.Resource, Reason: reason}); err != nil {
				return err
			}
			w.shown = false
		}
		w.backoff(ctx, pause, err)
		pause = min(2*pause, mostPause)
	}
	return context.Cause(ctx)
}

// explain says what a failure means for the one who can do something about it.
func (w *Watcher) explain(err error) string {
	switch {
	case isStatus(err, http.StatusNotFound):
		return fmt.Sprintf("the API server does not know %s: is %s CRD installed?", w.watch.Resource.Plural, crdOwner(w.watch.Resource))
	case isStatus(err, http.StatusForbidden):
		return err.Error() + " (the Role of this program has to let it get, list and watch them)"
	}
	return err.Error()
}

// crdOwner tells whom to ask for the definition of a resource.
func crdOwner(r kind.Resource) string {
	if r.Group == "argoproj.io" {
		return "Argo CD's"
	}
	return "our own (install/crds/" + r.Plural + ".yaml)"
}

// normalizeReason is what two reasons have in common that differ in a port or a
// time only.
func normalizeReason(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// backoff waits after a failure, as long as the API server asks for.
func (w *Watcher) backoff(ctx context.Context, pause time.Duration, err error) {
	wait := time.Duration(float64(pause) * (0.5 + w.jitter()/2))
	var api *apiError
	if errors.As(err, &api) && api.retryAfter > 0 {
		wait = max(wait, time.Duration(api.retryAfter)*time.Second)
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// listAndWatch lists, then watches until a new list is needed. Nil: it is, for
// a reason that is no failure. It tells when a watch is of use: a list alone is
// not, for who may list may still not be allowed to watch.
func (w *Watcher) listAndWatch(ctx context.Context, watching func()) error {
	select {
	case <-w.relist: // this is it
	default:
	}
	objects, revision, err := w.client.list(ctx, w.watch)
	if err != nil {
		return err
	}
	if err := w.checkRevision(revision); err != nil {
		return err
	}
	if err := w.sink(ctx, reconcile.List{Resource: w.watch.Resource, Objects: objects, Revision: ParseResourceVersion(revision)}); err != nil {
		return err
	}
	w.shown = true
	pause, failing := firstPause, time.Time{}
	for {
		next, err := w.watchAgain(ctx, revision, !failing.IsZero())
		if next != revision || err == nil {
			pause, failing = firstPause, time.Time{}
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
			w.log.InfoContext(ctx, "listing again", "reason", err)
			return nil
		case errors.Is(err, ErrStoreRegressed), isStatus(err, http.StatusForbidden), isStatus(err, http.StatusNotFound):
			return err
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > watchResumePeriod:
			return err
		}
		w.log.DebugContext(ctx, "the watch was interrupted", "error", err)
		w.backoff(ctx, pause, err)
		pause = min(2*pause, mostWatchPause)
	}
}

// watchAgain watches from a revision on. After a failure it first makes sure
// that the store still is where it was: one that was put back from a backup
// shows nothing to a watch from its future, and does not say so.
func (w *Watcher) watchAgain(ctx context.Context, revision string, failed bool) (string, error) {
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
		err = errors.New("the API server ended the watch at once")
	}
	return next, err
}

// checkRevision compares how far the store is with how far it was.
func (w *Watcher) checkRevision(revision string) error {
	if n := ParseResourceVersion(revision); n == 0 {
		return fmt.Errorf("the API server does not say at which revision %s are", w.watch.Resource.Plural)
	} else if n < w.newest {
		return fmt.Errorf("%s are at revision %d after %d: %w", w.watch.Resource.Plural, n, w.newest, ErrStoreRegressed)
	}
	w.newest = ParseResourceVersion(revision)
	return nil
}

var (
	errRelist  = errors.New("the watch cannot go on")
	errOverdue = errors.New("the API server has not ended the watch in time")
)

// watchEndGrace is how long the end of a watch may be on its way.
const watchEndGrace = 30 * time.Second

// watchFrom watches from a revision on and returns how far it came.
func (w *Watcher) watchFrom(ctx context.Context, revision string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	seconds := 300 + int(w.jitter()*300)
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {revision}, "timeoutSeconds": {strconv.Itoa(seconds)},
	}
	// The server ends it. If that does not get through, nothing else would either.
	overdue := time.AfterFunc(time.Duration(seconds)*time.Second+watchEndGrace, func() { cancel(errOverdue) })
	defer overdue.Stop()
	w.watch.setSelectors(query)
	resp, err := w.client.start(ctx, http.MethodGet, w.client.urlOf(w.watch.Resource, w.watch.Namespace, "", query), w.watch.accept("PartialObjectMetadata"), "", nil)
	if err != nil {
		return revision, err
	}
	defer resp.Body.Close()

	// A relist that is asked for ends the watch by ending its request.
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
				return revision, nil // ended by the server: go on from here
			}
			return revision, fmt.Errorf("the watch was cut: %w", err)
		}
		if event.Type == "ERROR" {
			if rawjson.Text(event.Object, "reason") == "Expired" || string(rawjson.Get(event.Object, "code")) == "410" {
				return revision, fmt.Errorf("%w: %s", errRelist, rawjson.Text(event.Object, "message"))
			}
			return revision, fmt.Errorf("watch: %s", rawjson.Text(event.Object, "message"))
		}
		in, at, err := w.input(event.Type, event.Object)
		if err != nil { // the others must not wait for it; what was known of it stays
			w.log.WarnContext(ctx, "an object cannot be read; it is passed over", "error", err)
		} else if err := w.sink(ctx, in); err != nil {
			return revision, err
		}
		if at != "" {
			revision = at
		}
	}
}

// input turns a watch event into what the node is told.
func (w *Watcher) input(event string, object []byte) (reconcile.Input, string, error) {
	if event == "BOOKMARK" {
		at := rawjson.Text(object, "metadata", "resourceVersion")
		return reconcile.Bookmark{Resource: w.watch.Resource, Revision: ParseResourceVersion(at)}, at, nil
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

// ParseResourceVersion reads a resource version; within one resource they are numbers that
// grow.
func ParseResourceVersion(revision string) uint64 {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
