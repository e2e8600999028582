package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/node"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Host runs a node: one goroutine owns it and gives it its inputs one by one;
// watchers and writer connect it to the cluster.
type Host struct {
	cfg      HostConfig
	client   *Client
	inbox    chan any // node.Input or func(*node.Node)
	watchers map[kind.Resource]*Watcher
	writer   *Writer
	started  time.Time
}

// HostConfig says what a Host runs, and who hears of it.
type HostConfig struct {
	Node       *node.Node
	Watches    []Watch
	Namespaces NamespacePolicy // those that are missing
	Parallel   int             // requests under way at once
	Jitter     func() float64
	Log        *slog.Logger
	Trace      *trace.Tracer // of writes; nil: none

	// ToPeer and Report are called by the goroutine that owns the node. They
	// must not block.
	ToPeer func(node.ToPeer)
	Report func(node.Report)
	// RecordFleetHold is called likewise; may be nil where there is no fleet check.
	RecordFleetHold func(node.RecordFleetHold)
	// Applied is called for every input after the node has taken it; may be nil.
	Applied func(node.Input)
	// Remember writes down what the node wants to be known to the next process
	// before a write is done. If it fails, so does the write. Nil: nothing is
	// written down.
	Remember func(context.Context, node.Memory) error
	// Writing is called before an object is written; may be nil.
	Writing func(kind.Ref)
}

// inboxSize bounds the inputs that wait. Whoever brings one more waits too: a
// watch is then read more slowly, and so is a peer's stream.
const inboxSize = 1024

// NewHost makes a host; nothing happens until Run.
func NewHost(c *Client, cfg HostConfig) *Host {
	h := &Host{cfg: cfg, client: c, inbox: make(chan any, inboxSize), watchers: map[kind.Resource]*Watcher{}, started: time.Now()}
	for _, w := range cfg.Watches {
		h.watchers[w.Resource] = NewWatcher(c, w, h.Post, cfg.Log, cfg.Jitter)
	}
	h.writer = NewWriter(c, h.Post, cfg.Namespaces, cfg.Parallel, cfg.Jitter, cfg.Log)
	h.writer.trace, h.writer.remember = cfg.Trace, cfg.Remember
	return h
}

// Post gives the node an input. It waits while the node is busy.
func (h *Host) Post(ctx context.Context, in node.Input) error { return h.post(ctx, in) }

// PostUntil is Post for what comes from a connection: it does not wait any longer
// once the connection is done.
func (h *Host) PostUntil(ctx context.Context, done <-chan struct{}, in node.Input) error {
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
func (h *Host) Do(ctx context.Context, f func(*node.Node)) error {
	done := make(chan struct{})
	if err := h.post(ctx, func(n *node.Node) { f(n); close(done) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *Host) post(ctx context.Context, in any) error {
	select {
	case h.inbox <- in:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Load tells how the writing gets on.
func (h *Host) Load() Load { return h.writer.Load() }

// Run runs until the context ends or the store goes back in time, and returns
// when everything has ended.
func (h *Host) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, w := range h.watchers {
		wg.Go(func() {
			if err := w.Run(ctx); errors.Is(err, ErrWentBack) {
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
func (h *Host) Now() engine.Time {
	return engine.Time(h.started.UnixMilli() + time.Since(h.started).Milliseconds())
}

func (h *Host) loop(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case in := <-h.inbox:
			h.take(ctx, in)
			h.takeWaiting(ctx)
		case <-timer.C:
			h.step(ctx, node.Tick{})
		}
		h.setTimer(timer)
	}
}

// takeWaiting takes what has come meanwhile, before the timer is looked at.
func (h *Host) takeWaiting(ctx context.Context) {
	for range inboxSize {
		select {
		case in := <-h.inbox:
			h.take(ctx, in)
		default:
			return
		}
	}
}

func (h *Host) setTimer(timer *time.Timer) {
	wait := time.Hour
	if at, ok := h.cfg.Node.NextWake(); ok {
		wait = max(0, time.Duration(at-h.Now())*time.Millisecond)
	}
	timer.Reset(wait)
}

func (h *Host) take(ctx context.Context, in any) {
	switch in := in.(type) {
	case func(*node.Node):
		in(h.cfg.Node)
	case node.Input:
		h.step(ctx, in)
		if h.cfg.Applied != nil {
			h.cfg.Applied(in)
		}
	}
}

func (h *Host) step(ctx context.Context, in node.Input) {
	for _, e := range h.cfg.Node.Step(h.Now(), in) {
		switch e := e.(type) {
		case node.Write:
			if h.cfg.Writing != nil {
				h.cfg.Writing(e.Ref)
			}
			h.writer.Write(ctx, e)
		case node.Read:
			h.writer.Read(ctx, e)
		case node.Abandon:
			h.writer.AbandonAll(ctx, e.Agent)
		case node.Relist:
			if w := h.watchers[e.Resource]; w != nil {
				w.Relist()
			}
		case node.ToPeer:
			h.cfg.ToPeer(e)
		case node.Report:
			if e.Fact.Event == engine.Closed {
				h.writer.Abandon(ctx, e.Agent)
			}
			h.cfg.Report(e)
		case node.RecordFleetHold:
			h.cfg.RecordFleetHold(e)
		}
	}
}
