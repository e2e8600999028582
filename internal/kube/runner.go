package kube

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// Runner runs the reconcile core. One goroutine owns the core and passes inputs to it. Watchers and a writer connect it
// to the cluster.
type Runner struct {
	cfg      RunnerConfig
	handlers Handlers // set by Run
	client   *Client
	inbox    chan any             // reconcile.Input or func(*reconcile.Reconciler)
	peers    chan reconcile.Input // from connections; without a buffer, so that one connection has one input waiting
	watchers map[Watch]*Watcher
	own      map[kind.Resource][]*Watcher // of the core
	writer   *Writer
	reader   *namespaceReader
	started  time.Time
}

// RunnerConfig configures a Runner.
type RunnerConfig struct {
	Reconciler *reconcile.Reconciler
	Watches    []Watch
	Namespaces NamespacePolicy // of missing namespaces
	Parallel   int             // maximum number of requests in flight
	PerAgent   AgentLimits     // of writes; zero on an agent
	Jitter     func() float64
	Log        *slog.Logger
	Trace      *trace.Tracer // of writes; may be nil

	// WriteLatency observes the duration of writes. May be nil.
	WriteLatency prometheus.Observer
	// Deleted is called after an attempt to delete an object. Failure is nil if it succeeded. May be nil.
	Deleted func(w reconcile.Write, failure *reconcile.Failure)
	// Remember stores state for the next process before a write is sent. If it fails, so does the write. If nil,
	// nothing is stored.
	Remember func(context.Context, reconcile.Memory) error
	// BeforeApplications is called before Applications are read, which waits for it. May be nil.
	BeforeApplications func(context.Context)
	// MayRestore returns an error if a session has begun or a later process of this agent has started. It is called before
	// a write without a session. If it fails, so does the write. If nil, nothing is checked.
	MayRestore func(context.Context) error
}

// AgentLimits limit the writes for one agent, so that it cannot slow down the API server for the others.
type AgentLimits struct {
	Parallel    int // maximum number of requests in flight
	Rate, Burst int // writes per second in the long run, and at once. Each 16 KiB of an object count as one more.
}

// Handlers receive the decisions of the core.
type Handlers struct {
	// ToPeer, Report and RecordFleetHold are called by the goroutine that owns the core. They must not block.
	// RecordFleetHold may be nil if there is no fleet check.
	ToPeer          func(reconcile.ToPeer)
	Report          func(reconcile.Report)
	RecordFleetHold func(reconcile.RecordFleetHold)
	// Applied is called after each input that the core has processed. May be nil.
	Applied func(reconcile.Input)
	// Writing is called before an object is written. May be nil.
	Writing func(kind.Ref)
}

// KindWatches returns the watches of all kinds. Applications outside Argo CD's namespace are watched only if anyNamespace is
// set. If there are namespaces, they are watched in these, each by itself, so that no permission for all namespaces is
// needed. The core must have the same ApplicationNamespaces.
func KindWatches(argoNamespace string, anyNamespace bool, namespaces []string) []Watch {
	var out []Watch
	for _, w := range kind.Watches(kind.All()) {
		one := Watch{Resource: w.Resource, Namespace: argoNamespace, Selector: w.Selector, Pages: w.AnyNamespace}
		switch {
		case w.AnyNamespace && len(namespaces) > 0:
			for _, namespace := range namespaces {
				one.Namespace, one.Part = namespace, true
				out = append(out, one)
			}
			continue
		case w.AnyNamespace && anyNamespace:
			one.Namespace = ""
		}
		out = append(out, one)
	}
	return out
}

// inboxSize bounds the queued inputs. If the inbox is full, watches are read more slowly.
const inboxSize = 1024

// NewRunner returns a runner. It does nothing until Run.
func NewRunner(c *Client, cfg RunnerConfig) *Runner {
	h := &Runner{cfg: cfg, client: c, inbox: make(chan any, inboxSize), peers: make(chan reconcile.Input), watchers: map[Watch]*Watcher{}, own: map[kind.Resource][]*Watcher{}, started: time.Now()}
	for _, w := range cfg.Watches {
		h.own[w.Resource] = append(h.own[w.Resource], h.Watch(w, h.postWatched))
	}
	h.writer = NewWriter(c, h.Post, cfg.Namespaces, cfg.Parallel, cfg.Jitter, cfg.Log)
	h.reader = newNamespaceReader(c, h.Post, cfg.Log)
	h.writer.deleted = cfg.Deleted
	h.writer.trace, h.writer.remember, h.writer.latency, h.writer.queue.perAgent = cfg.Trace, cfg.Remember, cfg.WriteLatency, cfg.PerAgent.Parallel
	if cfg.PerAgent.Rate > 0 {
		h.writer.budget = writeBudget{interval: time.Second / time.Duration(cfg.PerAgent.Rate), burst: cfg.PerAgent.Burst}
	}
	h.writer.mayRestore = cfg.MayRestore
	return h
}

// Watch passes the inputs of a watch to sink. All sinks of the same Watch share one watcher, and a slow sink delays the
// others. Watch must not be called after Run.
func (h *Runner) Watch(w Watch, sink Sink) *Watcher {
	known := h.watchers[w]
	if known == nil {
		known = NewWatcher(h.client, w, sink, h.cfg.Log, h.cfg.Jitter)
		h.watchers[w] = known
		return known
	}
	before := known.sink
	known.sink = func(ctx context.Context, in reconcile.Input) error {
		if err := before(ctx, in); err != nil {
			return err
		}
		return sink(ctx, in)
	}
	return known
}

// Post passes an input to the core. It waits while the inbox is full.
func (h *Runner) Post(ctx context.Context, in reconcile.Input) error { return h.post(ctx, in) }

// postWatched is Post for inputs of a watch. After a page of a list, it waits until the core has taken it: many pages in the
// inbox would need much memory.
func (h *Runner) postWatched(ctx context.Context, in reconcile.Input) error {
	if err := h.Post(ctx, in); err != nil {
		return err
	}
	if list, ok := in.(reconcile.List); ok && list.More {
		return h.Do(ctx, func(*reconcile.Reconciler) {})
	}
	return nil
}

// PostFromPeer is Post for inputs from a connection. It waits until the core takes the input, or the connection is done.
// Connections that wait take turns, so that the flood of one does not delay the others. If done is nil, only ctx ends the
// wait.
func (h *Runner) PostFromPeer(ctx context.Context, done <-chan struct{}, in reconcile.Input) error {
	select {
	case h.peers <- in:
		return nil
	case <-done:
		return errDone
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errDone = errors.New("connection is closing")

// Do calls f with the core between two inputs, and waits until f has returned.
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

// WriteStats returns the state of the writer.
func (h *Runner) WriteStats() WriteStats { return h.writer.Stats() }

// Run runs until the context ends or the store regresses. It returns when all its goroutines have ended.
func (h *Runner) Run(ctx context.Context, handlers Handlers) error {
	h.handlers = handlers
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var before sync.Once
	for _, w := range h.watchers {
		wg.Go(func() {
			if h.cfg.BeforeApplications != nil && w.watch.Resource == kind.Applications {
				before.Do(func() { h.cfg.BeforeApplications(ctx) })
			}
			if err := w.Run(ctx); errors.Is(err, ErrStoreRegressed) {
				cancel(err)
			}
		})
	}
	h.loop(ctx)
	wg.Wait()
	h.writer.Wait()
	h.reader.wg.Wait()
	return context.Cause(ctx)
}

// Now is the clock of the core. It starts with the wall clock and is monotonic.
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
			h.drain(ctx)
		case in := <-h.peers:
			h.takeFromPeer(ctx, in)
			h.drain(ctx)
		case <-timer.C:
			h.step(ctx, reconcile.Tick{})
		}
		h.setTimer(timer)
	}
}

// drain processes waiting inputs before the timer is set.
func (h *Runner) drain(ctx context.Context) {
	for range inboxSize {
		select {
		case in := <-h.inbox:
			h.take(ctx, in)
		case in := <-h.peers:
			h.takeFromPeer(ctx, in)
		default:
			return
		}
	}
}

// takeFromPeer processes an input of a connection after everything that was posted before it, such as the registration of
// the agent.
func (h *Runner) takeFromPeer(ctx context.Context, in reconcile.Input) {
	for range len(h.inbox) {
		h.take(ctx, <-h.inbox)
	}
	h.take(ctx, in)
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
		if h.handlers.Applied != nil {
			h.handlers.Applied(in)
		}
	}
}

func (h *Runner) step(ctx context.Context, in reconcile.Input) {
	for _, e := range h.cfg.Reconciler.Step(h.Now(), in) {
		switch e := e.(type) {
		case reconcile.Write:
			if h.handlers.Writing != nil {
				h.handlers.Writing(e.Ref)
			}
			h.writer.Write(ctx, e)
		case reconcile.Read:
			h.writer.Read(ctx, e)
		case reconcile.ReadApplications:
			h.reader.read(ctx, e)
		case reconcile.Abandon:
			h.writer.Abandon(ctx, e.Agent, true)
		case reconcile.Relist:
			for _, w := range h.own[e.Resource] {
				w.Relist()
			}
		case reconcile.ToPeer:
			h.handlers.ToPeer(e)
		case reconcile.Report:
			if e.Event.Type == engine.Closed {
				h.writer.Abandon(ctx, e.Agent, false)
			}
			h.handlers.Report(e)
		case reconcile.RecordFleetHold:
			h.handlers.RecordFleetHold(e)
		}
	}
}
