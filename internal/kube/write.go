package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Writer carries out a node's writes and reads. What waits is bounded by the
// node: it has one write under way for each object. What waits has no goroutine;
// those that work end when there is nothing left to do.
type Writer struct {
	client     *Client
	sink       func(context.Context, reconcile.Input) error
	log        *slog.Logger
	trace      *trace.Tracer // nil: nothing is traced
	namespaces NamespacePolicy
	remember   func(context.Context, reconcile.Memory) error // nil: nothing is written down before a write
	wg         sync.WaitGroup

	mu         sync.Mutex
	queue      queue
	working    int
	throttle       writeThrottle
	lastLogged map[kind.Ref]string // what was logged of objects that cannot be written or read
}

// task is a write or a read, and what becomes of it: an input for the node, if
// there is one to give, and what went wrong.
type task func(context.Context) (reconcile.Input, error)

// NamespacePolicy says what becomes of an object whose namespace is missing.
type NamespacePolicy struct {
	// Create reports whether a namespace may be created, and with which labels;
	// nil: none may.
	Create func(name string) (labels map[string]string, ok bool)
	Hint   string // what people can do about it
}

// NewWriter makes a writer with so many requests under way at once. Jitter is 0 to 1.
func NewWriter(c *Client, sink func(context.Context, reconcile.Input) error, namespaces NamespacePolicy, parallel int, jitter func() float64, log *slog.Logger) *Writer {
	return &Writer{client: c, sink: sink, log: log, namespaces: namespaces, lastLogged: map[kind.Ref]string{},
		throttle: writeThrottle{maxInFlight: parallel, limit: parallel, jitter: jitter}}
}

// requestTimeout bounds one request. After it nobody knows whether the write
// was done; the node looks again, and every write is conditional.
const requestTimeout = 30 * time.Second

// Write starts a write; its answer goes to the sink.
func (w *Writer) Write(ctx context.Context, write reconcile.Write) {
	span := w.startSpan(ctx, write)
	one := queuedTask{agent: write.Agent, session: write.WhileOpen}
	one.cancel = func() reconcile.Input {
		f := &reconcile.Failure{Code: engine.Unavailable, Message: "the session is closed"}
		endSpan(span, f)
		return reconcile.WriteResult{ID: write.ID, Failure: f}
	}
	one.do = func(ctx context.Context) (reconcile.Input, error) {
		span.Elapsed(trace.Waited)
		o, err := w.write(span.NewContext(ctx), write)
		if err != nil {
			f := toFailure(write.Verb, err, w.namespaces.Hint)
			endSpan(span, f)
			if !f.Stale {
				w.log.Log(ctx, w.failureLevel(ctx, write.Ref, err), "write refused", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
					"namespace", write.Ref.Namespace, "name", write.Ref.Name, "why", write.Reason, "error", f.Message)
			}
			return reconcile.WriteResult{ID: write.ID, Failure: f}, err
		}
		endSpan(span, nil)
		level := slog.LevelInfo
		if write.Reason == applyStatus {
			level = slog.LevelDebug
		}
		w.log.Log(ctx, level, "wrote", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
			"namespace", write.Ref.Namespace, "name", write.Ref.Name, "why", write.Reason)
		w.clearFailure(write.Ref)
		return reconcile.WriteResult{ID: write.ID, Object: o}, nil
	}
	w.enqueue(ctx, one)
}

// Abandon gives up what a session has asked for and was not begun: the session is
// over. While the API server is in trouble that may be minutes later, and the
// owner may have deleted since what is to be created. Nobody would know before the
// next comparison, and Argo CD deploys at once.
func (w *Writer) Abandon(ctx context.Context, agent string) { w.abandon(ctx, agent, false) }

// AbandonAll gives up everything about an agent that was not begun: its
// registration has ended.
func (w *Writer) AbandonAll(ctx context.Context, agent string) { w.abandon(ctx, agent, true) }

func (w *Writer) abandon(ctx context.Context, agent string, all bool) {
	w.mu.Lock()
	given := w.queue.removeSession(agent, all)
	w.mu.Unlock()
	if len(given) == 0 {
		return
	}
	w.wg.Go(func() { // whoever calls this is who would have to take it
		for _, one := range given {
			_ = w.sink(ctx, one.cancel()) // fails only when everything ends
		}
	})
}

// applyStatus is why most writes are made, all day long and at anybody's
// command but ours: no news.
const applyStatus = "apply " + kind.StatusScope

// Read starts the reading of one object that the watch does not show.
func (w *Writer) Read(ctx context.Context, read reconcile.Read) {
	ref := read.Ref
	w.enqueue(ctx, queuedTask{do: func(ctx context.Context) (reconcile.Input, error) {
		o, err := w.client.Get(ctx, ref)
		switch {
		case err != nil:
			w.log.Log(ctx, w.failureLevel(ctx, ref, err), "cannot read an object", "resource", ref.Resource.Plural,
				"namespace", ref.Namespace, "name", ref.Name, "error", err)
			return nil, err
		case o == nil:
			return reconcile.Deleted{Ref: ref, UID: read.UID, Read: true, ID: read.ID}, nil
		}
		return reconcile.Observed{Resource: ref.Resource, Object: o, Read: true, ID: read.ID}, nil
	}})
}

// failureLevel tells how important it is that something went wrong with an object. It
// is no news if that was the last thing that was said of it, for it is tried
// again and again, nor when the program ends; nor if it is the API server's
// trouble rather than the object's, which is told once for all.
func (w *Writer) failureLevel(ctx context.Context, ref kind.Ref, err error) slog.Level {
	if _, trouble := ServerUnavailable(err); trouble || errors.Is(ctx.Err(), context.Canceled) {
		return slog.LevelDebug
	}
	reason := normalizeReason(err.Error())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lastLogged[ref] == reason {
		return slog.LevelDebug
	}
	if len(w.lastLogged) >= maxLoggedErrors {
		clear(w.lastLogged)
	}
	w.lastLogged[ref] = reason
	return slog.LevelWarn
}

// clearFailure lets the next failure of an object be news.
func (w *Writer) clearFailure(ref kind.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.lastLogged, ref)
}

// maxLoggedErrors bounds what is remembered of failures. Beyond it some are told again.
const maxLoggedErrors = 4096

// enqueue has something done as soon as fewer than the permitted number of
// requests are under way, in the order in which it was asked for.
func (w *Writer) enqueue(ctx context.Context, one queuedTask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.add(one)
	w.startWorkers(ctx)
}

// startWorkers has as many at work as there is work for and the pace permits. Under mu.
func (w *Writer) startWorkers(ctx context.Context) {
	for range min(w.throttle.limit-w.working, w.queue.len()) {
		w.working++
		w.wg.Go(func() { w.runWorker(ctx) })
	}
}

func (w *Writer) runWorker(ctx context.Context) {
	for do := w.next(ctx); do != nil; do = w.next(ctx) {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		in, err := do(limited)
		cancel()
		w.recordResult(ctx, began, err)
		if in != nil {
			_ = w.sink(ctx, in) // fails only when everything ends
		}
	}
}

// recordResult fits the pace to how a request went, and says when trouble begins and ends.
func (w *Writer) recordResult(ctx context.Context, began time.Time, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if retryAfter, trouble := ServerUnavailable(err); trouble {
		if w.throttle.onUnavailable(began, now, retryAfter) {
			w.log.WarnContext(ctx, "the API server cannot take writes just now; writing slowly until it can", "waiting", w.queue.len(), "error", err)
		}
		return
	}
	if lasted, refused := w.throttle.onSuccess(began, now, w.queue.len()); refused > 0 {
		w.log.InfoContext(ctx, "the API server takes writes again", "after", lasted.Round(time.Millisecond), "refused", refused, "waiting", w.queue.len())
	}
	w.startWorkers(ctx)
}

// next takes what has waited longest, when the pace permits. Nil: there is nothing,
// others are enough, or it is over.
func (w *Writer) next(ctx context.Context) task {
	for {
		do, pause := w.tryNext(ctx)
		if pause <= 0 {
			return do
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (w *Writer) tryNext(ctx context.Context) (do task, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.len() == 0 || ctx.Err() != nil || w.working > w.throttle.limit {
		w.working--
		return nil, 0
	}
	if pause = time.Until(w.throttle.until); pause > 0 {
		return nil, pause
	}
	return w.queue.take().do, 0
}

// Stats tells how it gets on.
func (w *Writer) Stats() WriteStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WriteStats{Waiting: w.queue.len(), Limit: w.throttle.limit, Unavailable: w.throttle.totalFailures, Outage: !w.throttle.outageStart.IsZero()}
}

// Wait returns when nothing is under way any more.
func (w *Writer) Wait() { w.wg.Wait() }

func (w *Writer) write(ctx context.Context, write reconcile.Write) (*kind.Object, error) {
	ref := write.Ref
	if write.Remember != nil && w.remember != nil {
		if err := w.remember(ctx, *write.Remember); err != nil {
			return nil, &prerequisiteError{err}
		}
	}
	switch write.Verb {
	case reconcile.Create:
		o, err := w.create(ctx, ref, write.Object.Raw())
		if !isNamespaceMissing(err) || w.namespaces.Create == nil {
			return o, err
		}
		labels, ok := w.namespaces.Create(ref.Namespace)
		if !ok {
			return o, err
		}
		if err := w.client.CreateNamespace(ctx, ref.Namespace, labels); err != nil {
			return nil, fmt.Errorf("create namespace %s: %w", ref.Namespace, err)
		}
		w.log.InfoContext(ctx, "created a namespace", "name", ref.Namespace)
		return w.create(ctx, ref, write.Object.Raw())
	case reconcile.Update:
		b, err := w.client.do(ctx, http.MethodPut, w.client.urlOf(ref.Resource, ref.Namespace, ref.Name, fieldManager), write.Object.Raw())
		if err != nil {
			return nil, err
		}
		return parse(b)
	}
	return w.delete(ctx, ref, write.Object)
}

var fieldManager = url.Values{"fieldManager": {"argocd-agent"}}

func (w *Writer) create(ctx context.Context, ref kind.Ref, body []byte) (*kind.Object, error) {
	b, err := w.client.do(ctx, http.MethodPost, w.client.urlOf(ref.Resource, ref.Namespace, "", fieldManager), body)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

// delete deletes exactly the object that was looked at. Nil: it is gone;
// otherwise finalizers keep it for now.
func (w *Writer) delete(ctx context.Context, ref kind.Ref, o *kind.Object) (*kind.Object, error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
		"preconditions": map[string]string{"uid": o.UID(), "resourceVersion": o.ResourceVersion()},
	})
	if err != nil {
		return nil, fmt.Errorf("make delete options: %w", err)
	}
	b, err := w.client.do(ctx, http.MethodDelete, w.client.urlOf(ref.Resource, ref.Namespace, ref.Name, nil), body)
	if err != nil {
		return nil, err
	}
	return deleted(b, o)
}

// CreateNamespace makes sure that there is a namespace. One that is there stays
// as it is.
func (c *Client) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	_, err := c.Create(ctx, kind.Ref{Resource: Namespaces, Name: name}, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels}})
	if IsConflict(err) {
		return nil
	}
	return err
}
