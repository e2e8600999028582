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

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/node"
)

// Writer carries out a node's writes and reads. What waits is bounded by the
// node: it has one write under way for each object. What waits has no goroutine;
// those that work end when there is nothing left to do.
type Writer struct {
	client     *Client
	sink       func(context.Context, node.Input) error
	log        *slog.Logger
	namespaces NamespacePolicy
	parallel   int
	wg         sync.WaitGroup

	mu      sync.Mutex
	waiting []func(context.Context) node.Input
	working int
	said    map[kind.Ref]string // what was logged of objects that can not be written or read
}

// NamespacePolicy says what becomes of an object whose namespace is missing.
type NamespacePolicy struct {
	// Create tells whether a namespace may be created, and with which labels;
	// nil: none may.
	Create func(name string) (labels map[string]string, ok bool)
	Hint   string // what people can do about it
}

// NewWriter makes a writer with so many requests under way at once.
func NewWriter(c *Client, sink func(context.Context, node.Input) error, namespaces NamespacePolicy, parallel int, log *slog.Logger) *Writer {
	return &Writer{client: c, sink: sink, log: log, namespaces: namespaces, parallel: parallel, said: map[kind.Ref]string{}}
}

// requestTimeout bounds one request. After it nobody knows whether the write
// was done; the node looks again, and every write is conditional.
const requestTimeout = 30 * time.Second

// Write starts a write; its answer goes to the sink.
func (w *Writer) Write(ctx context.Context, write node.Write) {
	w.background(ctx, func(ctx context.Context) node.Input {
		o, err := w.write(ctx, write)
		if err != nil {
			f := failureOf(write.Verb, err, w.namespaces.Hint)
			if !f.Stale {
				w.log.Log(ctx, w.failed(ctx, write.Ref, f.Message), "write refused", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
					"namespace", write.Ref.Namespace, "name", write.Ref.Name, "why", write.Why, "error", f.Message)
			}
			return node.Wrote{ID: write.ID, Failure: f}
		}
		level := slog.LevelInfo
		if write.Why == applyStatus {
			level = slog.LevelDebug
		}
		w.log.Log(ctx, level, "wrote", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
			"namespace", write.Ref.Namespace, "name", write.Ref.Name, "why", write.Why)
		w.worked(write.Ref)
		return node.Wrote{ID: write.ID, Object: o}
	})
}

// applyStatus is why most writes are made, all day long and at anybody's
// command but ours: no news.
const applyStatus = "apply " + kind.StatusScope

// Read starts the reading of one object that the watch does not show.
func (w *Writer) Read(ctx context.Context, read node.Read) {
	ref := read.Ref
	w.background(ctx, func(ctx context.Context) node.Input {
		o, err := w.client.Get(ctx, ref)
		switch {
		case err != nil:
			w.log.Log(ctx, w.failed(ctx, ref, err.Error()), "can not read an object", "resource", ref.Resource.Plural,
				"namespace", ref.Namespace, "name", ref.Name, "error", err)
			return nil
		case o == nil:
			return node.Lost{Ref: ref, UID: read.UID, Read: true, ID: read.ID}
		}
		return node.Seen{Resource: ref.Resource, Object: o, Read: true, ID: read.ID}
	})
}

// failed tells how important it is that something went wrong with an object. It
// is no news if that was the last thing that was said of it, for it is tried
// again and again, nor when the program ends.
func (w *Writer) failed(ctx context.Context, ref kind.Ref, reason string) slog.Level {
	if errors.Is(ctx.Err(), context.Canceled) {
		return slog.LevelDebug
	}
	reason = withoutDigits(reason)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said[ref] == reason {
		return slog.LevelDebug
	}
	if len(w.said) >= maxSaid {
		clear(w.said)
	}
	w.said[ref] = reason
	return slog.LevelWarn
}

// worked lets the next failure of an object be news.
func (w *Writer) worked(ref kind.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.said, ref)
}

// maxSaid bounds what is remembered of failures. Beyond it some are told again.
const maxSaid = 4096

// background has something done as soon as fewer than the permitted number of
// requests are under way, in the order in which it was asked for.
func (w *Writer) background(ctx context.Context, do func(context.Context) node.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, do)
	if w.working < w.parallel {
		w.working++
		w.wg.Go(func() { w.workOff(ctx) })
	}
}

func (w *Writer) workOff(ctx context.Context) {
	for do := w.next(ctx); do != nil; do = w.next(ctx) {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		in := do(limited)
		cancel()
		if in != nil {
			_ = w.sink(ctx, in) // fails only when everything ends
		}
	}
}

// next takes what has waited longest. Nil: there is nothing, or it is over.
func (w *Writer) next(ctx context.Context) func(context.Context) node.Input {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 || ctx.Err() != nil {
		w.working--
		return nil
	}
	do := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	return do
}

// Wait returns when nothing is under way any more.
func (w *Writer) Wait() { w.wg.Wait() }

func (w *Writer) write(ctx context.Context, write node.Write) (*kind.Object, error) {
	ref := write.Ref
	switch write.Verb {
	case node.Create:
		o, err := w.create(ctx, ref, write.Object.Raw())
		if !lacksNamespace(err) || w.namespaces.Create == nil {
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
	case node.Update:
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
	deleted, err := parse(b)
	if err != nil || !deleted.IsDeleting() || len(deleted.Finalizers()) == 0 {
		return nil, nil //nolint:nilerr // a Status rather than an object: nothing is left
	}
	return deleted, nil
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
