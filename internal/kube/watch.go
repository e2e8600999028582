package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// Watch says what is to be watched.
type Watch struct {
	Resource  kind.Resource
	Namespace string // empty: all
	Name      string // empty: every
	Selector  string // of labels
}

// narrow adds what the API server has to filter by.
func (w Watch) narrow(query url.Values) {
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
	sink   func(context.Context, node.Input) error
	log    *slog.Logger
	jitter func() float64 // 0 to 1
	relist chan struct{}
	newest uint64 // the newest revision seen
}

// ErrWentBack says that the API server's store is older than it was: somebody
// has put it back from a backup. What is known of it is wrong from there on, in
// ways that nothing tells; the process has to begin anew.
var ErrWentBack = errors.New("the API server's store went back in time: it was restored from a backup; everything has to be read anew")

// NewWatcher makes a watcher that gives its inputs to sink, which may block.
func NewWatcher(c *Client, w Watch, sink func(context.Context, node.Input) error, log *slog.Logger, jitter func() float64) *Watcher {
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

// Run watches until the context ends, or the store goes back in time.
func (w *Watcher) Run(ctx context.Context) error {
	pause := firstPause
	lastReason := ""
	for ctx.Err() == nil {
		err := w.listAndWatch(ctx, func() { pause, lastReason = firstPause, "" })
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			continue
		}
		if errors.Is(err, ErrWentBack) {
			return err
		}
		reason := err.Error()
		if isStatus(err, http.StatusNotFound) {
			reason = fmt.Sprintf("the API server does not know %s: is Argo CD's CRD installed?", w.watch.Resource.Plural)
		}
		if reason != lastReason {
			w.log.WarnContext(ctx, "can not read objects; trying again", "error", reason)
			lastReason = reason
		}
		if err := w.sink(ctx, node.Blind{Resource: w.watch.Resource, Reason: reason}); err != nil {
			return err
		}
		wait := time.Duration(float64(pause) * (0.5 + w.jitter()/2))
		var api *apiError
		if errors.As(err, &api) && api.retryAfter > 0 {
			wait = max(wait, time.Duration(api.retryAfter)*time.Second)
		}
		pause = min(2*pause, mostPause)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	return context.Cause(ctx)
}

// listAndWatch lists, then watches until a new list is needed. Nil: it is, for
// a reason that is no failure.
func (w *Watcher) listAndWatch(ctx context.Context, listed func()) error {
	select {
	case <-w.relist: // this is it
	default:
	}
	objects, revision, err := w.client.list(ctx, w.watch)
	if err != nil {
		return err
	}
	if Number(revision) < w.newest {
		return fmt.Errorf("list %s at revision %s after %d: %w", w.watch.Resource.Plural, revision, w.newest, ErrWentBack)
	}
	if err := w.sink(ctx, node.List{Resource: w.watch.Resource, Objects: objects, Revision: Number(revision)}); err != nil {
		return err
	}
	listed()
	for failures := 0; ; {
		next, err := w.watchFrom(ctx, revision)
		w.newest = max(w.newest, Number(next))
		if next != revision {
			failures = 0
		}
		revision = next
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errRelist), isStatus(err, http.StatusGone):
			w.log.InfoContext(ctx, "listing anew", "reason", err)
			return nil
		case err != nil:
			if failures++; failures > 3 {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(float64(firstPause) * float64(failures) * (0.5 + w.jitter()/2))):
			}
		}
	}
}

var errRelist = errors.New("the watch can not go on")

// watchFrom watches from a revision on and returns how far it came.
func (w *Watcher) watchFrom(ctx context.Context, revision string) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	query := url.Values{
		"watch": {"1"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {revision},
		"timeoutSeconds": {strconv.Itoa(300 + int(w.jitter()*300))},
	}
	w.watch.narrow(query)
	resp, err := w.client.start(ctx, http.MethodGet, w.client.urlOf(w.watch.Resource, w.watch.Namespace, "", query), "", nil)
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
			return revision, nil // ended by the server, or cut: go on from here
		}
		if event.Type == "ERROR" {
			if raw.Text(event.Object, "reason") == "Expired" || string(raw.Get(event.Object, "code")) == "410" {
				return revision, fmt.Errorf("%w: %s", errRelist, raw.Text(event.Object, "message"))
			}
			return revision, fmt.Errorf("watch: %s", raw.Text(event.Object, "message"))
		}
		in, at, err := w.input(event.Type, event.Object)
		if err != nil {
			return revision, err
		}
		if err := w.sink(ctx, in); err != nil {
			return revision, err
		}
		revision = at
	}
}

// input turns a watch event into what the node is told.
func (w *Watcher) input(event string, object []byte) (node.Input, string, error) {
	if event == "BOOKMARK" {
		at := raw.Text(object, "metadata", "resourceVersion")
		return node.Bookmark{Resource: w.watch.Resource, Revision: Number(at)}, at, nil
	}
	o, err := parse(object)
	if err != nil {
		return nil, "", fmt.Errorf("read a watch event of %s: %w", w.watch.Resource.Plural, err)
	}
	at := o.ResourceVersion()
	if event == "DELETED" {
		ref := kind.Ref{Resource: w.watch.Resource, Namespace: o.Namespace(), Name: o.Name()}
		return node.Lost{Ref: ref, UID: o.UID(), Revision: Number(at)}, at, nil
	}
	return node.Seen{Resource: w.watch.Resource, Object: o}, at, nil
}

// Number reads a resource version; within one resource they are numbers that
// grow.
func Number(revision string) uint64 {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
