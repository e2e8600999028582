package kube

import (
	"context"
	"log/slog"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// namespaceReader reads the Applications of single namespaces.
type namespaceReader struct {
	client   *Client
	sink     Sink
	log      *slog.Logger
	sessions chan struct{} // limits the reads that a session waits for
	others   chan struct{} // limits the others
	wg       sync.WaitGroup
	failed   logonce.Last[string] // by namespace

	mu      sync.Mutex
	pending map[reconcile.ReadApplications]bool // requests without an answer
}

// Limits of concurrent reads. Sessions have their own limit, so that they do not wait for the other reads.
const (
	parallelSessionReads = 32
	parallelOtherReads   = 2
)

func newNamespaceReader(c *Client, sink Sink, log *slog.Logger) *namespaceReader {
	return &namespaceReader{client: c, sink: sink, log: log, sessions: make(chan struct{}, parallelSessionReads), others: make(chan struct{}, parallelOtherReads),
		pending: map[reconcile.ReadApplications]bool{}}
}

// read reads a namespace. The result goes to the sink. It does not block. A request that is repeated before its answer
// is answered once.
func (r *namespaceReader) read(ctx context.Context, e reconcile.ReadApplications) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[e] {
		return
	}
	r.pending[e] = true
	limit := r.others
	if e.Session {
		limit = r.sessions
	}
	r.wg.Go(func() {
		select {
		case limit <- struct{}{}:
			defer func() { <-limit }()
		case <-ctx.Done():
			return
		}
		answer := r.answer(ctx, e.Namespace)
		r.mu.Lock()
		delete(r.pending, e)
		r.mu.Unlock()
		_ = r.sink(ctx, answer) // fails only if ctx ends
	})
}

func (r *namespaceReader) answer(ctx context.Context, namespace string) reconcile.ApplicationsRead {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	objects, err := r.client.List(limited, Watch{Resource: kind.Applications, Namespace: namespace})
	if err == nil {
		r.failed.Reset(namespace)
		return reconcile.ApplicationsRead{Namespace: namespace, Objects: objects}
	}
	if ctx.Err() == nil && r.failed.Changed(namespace, text.WithoutDigits(err.Error())) {
		r.log.WarnContext(ctx, "Failed to read Applications of an agent, retrying", "namespace", namespace, "error", err)
	}
	return reconcile.ApplicationsRead{Namespace: namespace, Reason: err.Error()}
}
