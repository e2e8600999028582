package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Runner runs a node: one goroutine owns it and gives it its inputs one by one;
// watchers and writer connect it to the cluster.
type Runner struct {
	cfg      RunnerConfig
	client   *Client
	inbox    chan any // node.Input or func(*node.Node)
	watchers map[kind.Resource]*Watcher
	writer   *Writer
	started  time.Time
}

// RunnerConfig says what a Host runs, and who hears of it.
type RunnerConfig struct {
	Reconciler       *reconcile.Reconciler
	Watches    []Watch
	Namespaces NamespacePolicy // those that are missing
	Parallel   int             // requests under way at once
	Jitter     func() float64
	Log        *slog.Logger
	Trace      *trace.Tracer // of writes; nil: none

	// ToPeer and Report are called by the goroutine that owns the node. They
	// must not block.
	ToPeer func(reconcile.ToPeer)
	Report func(reconcile.Report)
	// RecordFleetHold is called likewise; may be nil where there is no fleet check.
	RecordFleetHold func(reconcile.RecordFleetHold)
	// Applied is called for every input after the node has taken it; may be nil.
	Applied func(reconcile.Input)
	// Remember writes down what the node wants to be known to the next process
	// before a write is done. If it fails, so does the write. Nil: nothing is
	// written down.
	Remember func(context.Context, reconcile.Memory) error
	// Writing is called before an object is written; may be nil.
	Writing func(kind.Ref)
}

// inboxSize bounds the inputs that wait. Whoever brings one more waits too: a
// watch is then read more slowly, and so is a peer's stream.
const inboxSize = 1024

// NewRunner makes a host; nothing happens until Run.
func NewRunner(c *Client, cfg RunnerConfig) *Runner {
	h := &Runner{cfg: cfg, client: c, inbox: make(chan any, inboxSize), watchers: map[kind.Resource]*Watcher{}, started: time.Now()}
	for _, w := range cfg.Watches {
		h.watchers[w.Resource] = NewWatcher(c, w, h.Post, cfg.Log, cfg.Jitter)
	}
	h.writer = NewWriter(c, h.Post, cfg.Namespaces, cfg.Parallel, cfg.Jitter, cfg.Log)
	h.writer.trace, h.writer.remember = cfg.Trace, cfg.Remember
	return h
}

// Post gives the node an input. It waits while the node is busy.
func (h *Runner) Post(ctx context.Context, in reconcile.Input) error { return h.post(ctx, in) }

// PostUntil is Post for what comes from a connection: it does not wait any longer
// once the connection is done.
func (h *Runner) PostUntil(ctx context.Context, done <-chan struct{}, in reconcile.Input) error {
	select {
	case h.inbox <- in:
		return nil
	case <-done:
		return errDone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errDone = errors.New("the connection is closing")

// Do lets f look at the node between two inputs, and waits until it has.
func (h *Runner) Do(ctx context.Context, f func(*reconcile.Reconciler)) error {
	done := make(chan struct{})
	if err := h.post(ctx, func(n *reconcile.Reconciler) { f(n); close(done) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Runner) post(ctx context.Context, in any) error {
	select {
	case h.inbox <- in:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WriteStats tells how the writing gets on.
func (h *Runner) WriteStats() WriteStats { return h.writer.Stats() }

// Run runs until the context ends or the store goes back in time, and returns
// when everything has ended.
func (h *Runner) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, w := range h.watchers {
		wg.Go(func() {
			if err := w.Run(ctx); errors.Is(err, ErrStoreRegressed) {
				cancel(err)
			}
		})
	}
	h.loop(ctx)
	wg.Wait()
	h.writer.Wait()
	return context.Cause(ctx)
}

// Now is the node's clock: it starts with the wall's and never goes back.
func (h *Runner) Now() engine.Time {
	return engine.Time(h.started.UnixMilli() + time.Since(h.started).Milliseconds())
}

func (h *Runner) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case in := <-h.inbox:
			h.take(ctx, in)
			h.drainInbox(ctx)
		case <-timer.C:
			h.step(ctx, reconcile.Tick{})
		}
		h.setTimer(timer)
	}
}

// drainInbox takes what has come meanwhile, before the timer is looked at.
func (h *Runner) drainInbox(ctx context.Context) {
	for range inboxSize {
		select {
		case in := <-h.inbox:
			h.take(ctx, in)
		default:
			return
		}
	}
}

func (h *Runner) setTimer(timer *time.Timer) {
	wait := time.Hour
	if at, ok := h.cfg.Reconciler.NextWake(); ok {
		wait = max(0, time.Duration(at-h.Now())*time.Millisecond)
	}
	timer.Reset(wait)
}

func (h *Runner) take(ctx context.Context, in any) {
	switch in := in.(type) {
	case func(*reconcile.Reconciler):
		in(h.cfg.Reconciler)
	case reconcile.Input:
		h.step(ctx, in)
		if h.cfg.Applied != nil {
			h.cfg.Applied(in)
		}
	}
}

func (h *Runner) step(ctx context.Context, in reconcile.Input) {
	for _, e := range h.cfg.Reconciler.Step(h.Now(), in) {
		switch e := e.(type) {
		case reconcile.Write:
			if h.cfg.Writing != nil {
				h.cfg.Writing(e.Ref)
			}
			h.writer.Write(ctx, e)
		case reconcile.Read:
			h.writer.Read(ctx, e)
		case reconcile.Abandon:
			h.writer.AbandonAll(ctx, e.Agent)
		case reconcile.Relist:
			if w := h.watchers[e.Resource]; w != nil {
				w.Relist()
			}
		case reconcile.ToPeer:
			h.cfg.ToPeer(e)
		case reconcile.Report:
			if e.Event.Type == engine.Closed {
				h.writer.Abandon(ctx, e.Agent)
			}
			h.cfg.Report(e)
		case reconcile.RecordFleetHold:
			h.cfg.RecordFleetHold(e)
		}
	}
}
