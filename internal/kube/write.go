package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Writer runs the writes and reads of the reconcile core. The core bounds the queue: it has one write in flight for each
// object. Queued tasks have no goroutine. Workers end when the queue is empty.
type Writer struct {
	client     *Client
	sink       func(context.Context, reconcile.Input) error
	log        *slog.Logger
	trace      *trace.Tracer // If nil, nothing is traced.
	namespaces NamespacePolicy
	remember   func(context.Context, reconcile.Memory) error // If nil, nothing is stored before a write.
	mayRestore func(context.Context) error                   // see RunnerConfig.MayRestore
	latency    prometheus.Observer                           // may be nil
	deleted    func(reconcile.Write, *reconcile.Failure)     // may be nil
	wg         sync.WaitGroup

	failures logonce.Last[kind.Ref]

	mu       sync.Mutex
	queue    queue
	budget   writeBudget
	workers  int
	throttle writeThrottle
}

// task is a write or a read. It returns an input for the core, if there is one, and the error of the request.
type task func(context.Context) (reconcile.Input, error)

// NamespacePolicy decides what happens if the namespace of an object is missing.
type NamespacePolicy struct {
	// Create reports whether a namespace may be created, and with which labels. If nil, none may.
	Create func(name string) (labels map[string]string, ok bool)
	Hint   string // what users can do about it
}

// NewWriter returns a writer with at most parallel requests in flight. Jitter is 0 to 1.
func NewWriter(c *Client, sink func(context.Context, reconcile.Input) error, namespaces NamespacePolicy, parallel int, jitter func() float64, log *slog.Logger) *Writer {
	return &Writer{client: c, sink: sink, log: log, namespaces: namespaces, throttle: newWriteThrottle(parallel, jitter)}
}

// requestTimeout bounds one request. After a timeout the result is unknown. The core then reads the object again, and
// every write is conditional.
const requestTimeout = 30 * time.Second

// Write queues a write. The result goes to the sink.
func (w *Writer) Write(ctx context.Context, write reconcile.Write) {
	span := w.startSpan(ctx, write)
	one := queuedTask{agent: write.Agent, session: write.WhileOpen}
	if write.Object != nil {
		one.bytes = len(write.Object.Raw())
	}
	one.cancel = func() reconcile.Input {
		f := &reconcile.Failure{Code: engine.Unavailable, Message: "the session ended"}
		endSpan(span, f)
		return reconcile.WriteResult{ID: write.ID, Failure: f}
	}
	one.do = func(ctx context.Context) (reconcile.Input, error) {
		span.Elapsed(trace.QueueWait)
		began := time.Now()
		o, err := w.write(span.NewContext(ctx), write)
		if w.latency != nil {
			w.latency.Observe(time.Since(began).Seconds())
		}
		if err != nil {
			f := toFailure(write.Verb, err, w.namespaces.Hint)
			endSpan(span, f)
			w.reportDeletion(write, f)
			if !f.Stale {
				w.log.Log(ctx, w.failureLevel(ctx, write.Ref, err), "Failed to write object", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
					"namespace", write.Ref.Namespace, "name", write.Ref.Name, "reason", write.Reason, "error", f.Message)
			}
			return reconcile.WriteResult{ID: write.ID, Failure: f}, err
		}
		endSpan(span, nil)
		w.reportDeletion(write, nil)
		level := slog.LevelInfo
		if write.Reason == applyStatus {
			level = slog.LevelDebug
		}
		w.log.Log(ctx, level, "Wrote object", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
			"namespace", write.Ref.Namespace, "name", write.Ref.Name, "reason", write.Reason)
		w.failures.Reset(write.Ref)
		return reconcile.WriteResult{ID: write.ID, Object: o}, nil
	}
	w.enqueue(ctx, one)
}

func (w *Writer) reportDeletion(write reconcile.Write, f *reconcile.Failure) {
	if write.Verb == reconcile.Delete && w.deleted != nil {
		w.deleted(write, f)
	}
}

// Abandon cancels the queued tasks of an agent's session, because the session ended. During a write outage a task may
// wait for minutes. The owner may have deleted the object since, and Argo CD would deploy a replica at once. With all, it
// cancels all tasks of the agent, because its registration ended.
func (w *Writer) Abandon(ctx context.Context, agent string, all bool) {
	w.mu.Lock()
	canceled := w.queue.removeSession(agent, all)
	w.mu.Unlock()
	if len(canceled) == 0 {
		return
	}
	w.wg.Go(func() { // not here: the caller is the goroutine that reads from the sink
		for _, one := range canceled {
			_ = w.sink(ctx, one.cancel()) // fails only if ctx ends
		}
	})
}

// applyStatus is the reason of most writes. They are logged at debug level.
const applyStatus = "apply " + kind.StatusScope

// Read queues the read of one object that the watch does not show.
func (w *Writer) Read(ctx context.Context, read reconcile.Read) {
	ref := read.Ref
	w.enqueue(ctx, queuedTask{do: func(ctx context.Context) (reconcile.Input, error) {
		o, err := w.client.Get(ctx, ref)
		switch {
		case err != nil:
			w.log.Log(ctx, w.failureLevel(ctx, ref, err), "Failed to read object", "resource", ref.Resource.Plural,
				"namespace", ref.Namespace, "name", ref.Name, "error", err)
			return nil, err
		case o == nil:
			return reconcile.Deleted{Ref: ref, UID: read.UID, Read: true, ID: read.ID}, nil
		}
		return reconcile.Observed{Resource: ref.Resource, Object: o, Read: true, ID: read.ID}, nil
	}})
}

// failureLevel returns the log level of a failure. It is debug if the same failure of the object was logged before, if
// the process ends, or if the API server is unavailable, which recordResult logs once for all objects.
func (w *Writer) failureLevel(ctx context.Context, ref kind.Ref, err error) slog.Level {
	if _, unavailable := ServerUnavailable(err); unavailable || errors.Is(ctx.Err(), context.Canceled) ||
		!w.failures.Changed(ref, text.WithoutDigits(err.Error())) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// enqueue runs a task as soon as fewer than the permitted number of requests are in flight. Agents take turns.
func (w *Writer) enqueue(ctx context.Context, one queuedTask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.add(one)
	w.startWorkers(ctx)
}

// startWorkers starts as many workers as there are tasks and the throttle permits. The caller must hold w.mu.
func (w *Writer) startWorkers(ctx context.Context) {
	for range min(w.throttle.limit-w.workers, w.queue.runnable) {
		w.workers++
		w.wg.Go(func() { w.runWorker(ctx) })
	}
}

func (w *Writer) runWorker(ctx context.Context) {
	for one, ok := w.next(ctx); ok; one, ok = w.next(ctx) {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		in, err := one.do(limited)
		cancel()
		w.recordResult(ctx, one, began, err)
		if in != nil {
			_ = w.sink(ctx, in) // fails only if ctx ends
		}
	}
}

// recordResult adapts the throttle to the result of a request, and logs when a write outage begins and ends.
func (w *Writer) recordResult(ctx context.Context, one queuedTask, began time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delay := w.budget.charge(one.agent, one.bytes, time.Now()); delay > 0 {
		w.wg.Go(func() { w.doneAfter(ctx, one.agent, delay) })
	} else {
		w.queue.done(one.agent)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	now := time.Now()
	if retryAfter, unavailable := ServerUnavailable(err); unavailable {
		if w.throttle.onUnavailable(began, now, retryAfter) {
			w.log.WarnContext(ctx, "API server does not accept writes, reducing concurrency", "queued", w.queue.len(), "error", err)
		}
		return
	}
	if lasted, failures := w.throttle.onSuccess(began, now, w.queue.len()); failures > 0 {
		w.log.InfoContext(ctx, "API server accepts writes again", "after", lasted.Round(time.Millisecond), "failures", failures, "queued", w.queue.len())
	}
	w.startWorkers(ctx)
}

// doneAfter ends a task of an agent that has used up its budget.
func (w *Writer) doneAfter(ctx context.Context, agent string, delay time.Duration) {
	backoff.Sleep(ctx, delay)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.done(agent)
	if ctx.Err() == nil {
		w.startWorkers(ctx)
	}
}

// next returns the next task, as soon as the throttle permits. It returns false if the worker has to end.
func (w *Writer) next(ctx context.Context) (one queuedTask, ok bool) {
	for {
		one, ok, pause := w.tryNext(ctx)
		if pause <= 0 {
			return one, ok
		}
		backoff.Sleep(ctx, pause)
	}
}

func (w *Writer) tryNext(ctx context.Context) (one queuedTask, ok bool, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue.runnable == 0 || ctx.Err() != nil || w.workers > w.throttle.limit {
		w.workers--
		return queuedTask{}, false, 0
	}
	if pause = time.Until(w.throttle.until); pause > 0 {
		return queuedTask{}, false, pause
	}
	one, ok = w.queue.take()
	return one, ok, 0
}

// Stats returns the state of the writer.
func (w *Writer) Stats() WriteStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return WriteStats{Waiting: w.queue.len(), Limit: w.throttle.limit, Unavailable: w.throttle.totalFailures, Outage: !w.throttle.outageStart.IsZero()}
}

// Wait returns when no request is in flight.
func (w *Writer) Wait() { w.wg.Wait() }

func (w *Writer) write(ctx context.Context, write reconcile.Write) (*kind.Object, error) {
	ref := write.Ref
	if write.Remember != nil && w.remember != nil {
		if err := w.remember(ctx, *write.Remember); err != nil {
			return nil, &prerequisiteError{err}
		}
	}
	if write.Offline && w.mayRestore != nil {
		if err := w.mayRestore(ctx); err != nil {
			return nil, &prerequisiteError{err}
		}
	}
	switch write.Verb {
	case reconcile.Create:
		create := func() (*kind.Object, error) {
			return w.writeIfStored(ctx, write, http.MethodPost, "")
		}
		o, err := create()
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
		w.log.InfoContext(ctx, "Created namespace", "name", ref.Namespace)
		return create()
	case reconcile.Update:
		return w.writeIfStored(ctx, write, http.MethodPut, ref.Name)
	}
	return w.client.delete(ctx, ref, write.Object)
}

// writeIfStored writes an object. If the write has fields that must be stored, a dry run shows whether they would be.
func (w *Writer) writeIfStored(ctx context.Context, write reconcile.Write, method, name string) (*kind.Object, error) {
	send := func(query url.Values) (*kind.Object, error) {
		address := w.client.urlOf(write.Ref.Resource, write.Ref.Namespace, name, query)
		return w.client.sendObject(ctx, method, address, mediaTypeJSON, write.Object.Raw())
	}
	if len(write.MustStore) > 0 {
		dryRun := url.Values{"dryRun": {"All"}}
		maps.Copy(dryRun, fieldManager)
		stored, err := send(dryRun)
		if err != nil {
			return nil, err
		}
		if lost := kind.NotStored(write.Object, stored, write.MustStore); len(lost) > 0 {
			return nil, &notStoredError{lost}
		}
	}
	stored, err := send(fieldManager)
	if err != nil || !write.Ref.Resource.HasStatus() {
		return stored, err
	}
	return w.client.replaceStatus(ctx, write.Ref, stored, write.Object.Get("status"))
}

var fieldManager = url.Values{"fieldManager": {"argocd-agent"}}

// CreateNamespace creates a namespace. An existing one stays unchanged.
func (c *Client) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	_, err := c.Create(ctx, kind.Ref{Resource: Namespaces, Name: name}, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels}})
	if IsConflict(err) {
		return nil
	}
	return err
}
