package kube

import (
	"context"
	"encoding/json"
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
// node: it has one write under way for each object.
type Writer struct {
	client     *Client
	sink       func(context.Context, node.Input) error
	log        *slog.Logger
	namespaces bool // missing namespaces are created
	slots      chan struct{}
	wg         sync.WaitGroup
}

// NewWriter makes a writer with so many requests under way at once.
func NewWriter(c *Client, sink func(context.Context, node.Input) error, createNamespaces bool, parallel int, log *slog.Logger) *Writer {
	return &Writer{client: c, sink: sink, log: log, namespaces: createNamespaces, slots: make(chan struct{}, parallel)}
}

// requestTimeout bounds one request. After it nobody knows whether the write
// was done; the node looks again, and every write is conditional.
const requestTimeout = 30 * time.Second

// Write starts a write; its answer goes to the sink.
func (w *Writer) Write(ctx context.Context, write node.Write) {
	w.background(ctx, func(ctx context.Context) node.Input {
		o, err := w.write(ctx, write)
		if err != nil {
			f := failureOf(write.Verb, err)
			if !f.Stale {
				w.log.WarnContext(ctx, "write refused", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
					"namespace", write.Ref.Namespace, "name", write.Ref.Name, "why", write.Why, "error", f.Message)
			}
			return node.Wrote{ID: write.ID, Failure: f}
		}
		w.log.InfoContext(ctx, "wrote", "verb", write.Verb.String(), "resource", write.Ref.Resource.Plural,
			"namespace", write.Ref.Namespace, "name", write.Ref.Name, "why", write.Why)
		return node.Wrote{ID: write.ID, Object: o}
	})
}

// Read starts the reading of one object that the watch does not show.
func (w *Writer) Read(ctx context.Context, read node.Read) {
	ref := read.Ref
	w.background(ctx, func(ctx context.Context) node.Input {
		o, err := w.client.Get(ctx, ref)
		switch {
		case err != nil:
			w.log.WarnContext(ctx, "can not read an object", "resource", ref.Resource.Plural, "namespace", ref.Namespace, "name", ref.Name, "error", err)
			return nil
		case o == nil:
			return node.Lost{Ref: ref, UID: read.UID, Read: true}
		}
		return node.Seen{Resource: ref.Resource, Object: o, Read: true}
	})
}

func (w *Writer) background(ctx context.Context, do func(context.Context) node.Input) {
	w.wg.Go(func() {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		in := func() node.Input {
			defer func() { <-w.slots }()
			limited, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return do(limited)
		}()
		if in != nil {
			_ = w.sink(ctx, in) // fails only when everything ends
		}
	})
}

// Wait returns when nothing is under way any more.
func (w *Writer) Wait() { w.wg.Wait() }

func (w *Writer) write(ctx context.Context, write node.Write) (*kind.Object, error) {
	ref := write.Ref
	switch write.Verb {
	case node.Create:
		o, err := w.create(ctx, ref, write.Object.Raw())
		if w.namespaces && isStatus(err, http.StatusNotFound) {
			if nsErr := w.createNamespace(ctx, ref.Namespace); nsErr != nil {
				return nil, fmt.Errorf("create namespace %s: %w", ref.Namespace, nsErr)
			}
			return w.create(ctx, ref, write.Object.Raw())
		}
		return o, err
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

func (w *Writer) createNamespace(ctx context.Context, name string) error {
	_, err := w.client.Create(ctx, kind.Ref{Resource: Namespaces, Name: name}, map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": name}})
	if IsConflict(err) {
		return nil
	}
	return err
}
