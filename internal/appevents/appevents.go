// Package appevents writes Events of agents' Applications on the hub, where argocd-server reads the Events of an
// Application. Agents report them (engine.ApplicationEvents). Only the principal replica with the session gets them.
//
// The name of an Event follows from the agent and the UID of the Event on the workload cluster. So an Event that is
// reported again, also to another replica, is the same object and is not written twice.
package appevents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Limits. At each interval, one Event of each agent is written, and only so many.
const (
	interval         = 100 * time.Millisecond
	maxPerInterval   = 5
	maxQueuePerAgent = 64
	maxQueue         = 10_000
)

const (
	retryDelay = 2 * time.Second // for an Application that is not known yet, and after a failed write
	retryLimit = time.Minute     // after which an Event is dropped
	maxClock   = 24 * time.Hour  // between the clocks of hub and agent
)

// fieldManager is the owner of the Events in server-side apply.
const fieldManager = "argocd-agent-principal-events"

var resource = kind.Resource{Version: "v1", Plural: "events", Kind: "Event"}

// Config is what a Writer needs.
type Config struct {
	Off    bool // drops everything
	Client *kube.Client
	Do     func(context.Context, func(*reconcile.Reconciler)) error // calls a function with the reconciler
	Log    *slog.Logger
}

// Writer writes Events while Run runs.
type Writer struct {
	cfg    Config
	logged logonce.Last[string] // by agent
	wake   chan struct{}        // something was queued

	mu      sync.Mutex
	queues  map[string][]event // by agent
	queued  int
	last    string // agent that was served last
	written uint64
	dropped uint64
}

// event is an Event that waits to be written.
type event struct {
	engine.ApplicationEvent
	agent     string
	session   uint64
	received  time.Time
	notBefore time.Time
}

// New returns a Writer.
func New(cfg Config) *Writer {
	return &Writer{cfg: cfg, wake: make(chan struct{}, 1), queues: map[string][]event{}}
}

// Received queues the Events that an agent reports in a session. It does not block. What does not fit is dropped.
func (w *Writer) Received(agent string, session uint64, m engine.ApplicationEvents) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, one := range m.Items {
		if w.cfg.Off || !valid(one, now) || len(w.queues[agent]) >= maxQueuePerAgent || w.queued >= maxQueue {
			w.dropped++
			continue
		}
		w.queues[agent] = append(w.queues[agent], event{ApplicationEvent: one, agent: agent, session: session, received: now})
		w.queued++
	}
	if w.queued > 0 {
		select {
		case w.wake <- struct{}{}:
		default: // it will wake up
		}
	}
}

// Closed drops what waits of a session that has ended.
func (w *Writer) Closed(agent string, session uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.queues[agent]), func(e event) bool { return e.session == session })
	w.queued -= len(w.queues[agent]) - len(left)
	if w.queues[agent] = left; len(left) == 0 {
		delete(w.queues, agent)
	}
	w.logged.Reset(agent)
}

// valid reports whether an Event can be written. Lengths of texts were checked by the protocol.
func valid(e engine.ApplicationEvent, now time.Time) bool {
	age := now.Sub(time.UnixMilli(e.LastMillis))
	return e.UID != "" && e.ApplicationUID != "" && e.Count > 0 && (e.Type == "Normal" || e.Type == "Warning") &&
		e.FirstMillis > 0 && e.FirstMillis <= e.LastMillis && age < maxClock && age > -maxClock
}

// Run writes Events until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
		for w.waiting() {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(interval):
			}
			for _, e := range w.next(time.Now()) {
				w.write(ctx, e)
			}
		}
	}
}

func (w *Writer) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued > 0
}

// next takes an Event of each agent, beginning with the agent after the one that was served last.
func (w *Writer) next(now time.Time) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	agents := slices.Sorted(maps.Keys(w.queues))
	start, _ := slices.BinarySearch(agents, w.last+"\x00")
	var taken []event
	for _, agent := range slices.Concat(agents[start:], agents[:start]) {
		if len(taken) == maxPerInterval {
			break
		}
		i := slices.IndexFunc(w.queues[agent], func(e event) bool { return !e.notBefore.After(now) })
		if i < 0 {
			continue
		}
		taken = append(taken, w.queues[agent][i])
		w.queues[agent] = slices.Delete(w.queues[agent], i, i+1)
		w.queued--
		if len(w.queues[agent]) == 0 {
			delete(w.queues, agent)
		}
		w.last = agent
	}
	return taken
}

// write writes an Event if its Application belongs to the agent. An Application that is not known yet may be about to be
// replicated.
func (w *Writer) write(ctx context.Context, e event) {
	var app *kind.Object
	if err := w.cfg.Do(ctx, func(n *reconcile.Reconciler) { app = n.EventApplication(e.agent, e.session, e.Key, e.ApplicationUID) }); err != nil {
		return // ctx ended
	}
	if app == nil {
		w.retry(e)
		return
	}
	ref, object := objectOf(e, app)
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := w.cfg.Client.Apply(limited, ref, fieldManager, object)
	if _, unavailable := kube.ServerUnavailable(err); unavailable {
		w.retry(e)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.written++
		return
	}
	w.dropped++
	if w.logged.Changed(e.agent, text.WithoutDigits(err.Error())) {
		w.cfg.Log.WarnContext(ctx, "Failed to write Event of Application", "agent", e.agent, "namespace", ref.Namespace, "application", app.Name(), "error", err)
	}
}

// retry queues an Event again for some time.
func (w *Writer) retry(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if now.Sub(e.received) >= retryLimit || len(w.queues[e.agent]) >= maxQueuePerAgent || w.queued >= maxQueue {
		w.dropped++
		return
	}
	e.notBefore = now.Add(retryDelay)
	w.queues[e.agent] = append(w.queues[e.agent], e)
	w.queued++
}

// objectOf returns the Event on the hub. It refers to the Application that was looked up and to nothing else.
func objectOf(e event, app *kind.Object) (kind.Ref, map[string]any) {
	sum := sha256.Sum256([]byte(e.agent + "\x00" + e.UID))
	name := app.Name()
	ref := kind.Ref{Resource: resource, Namespace: app.Namespace(), Name: strings.TrimRight(name[:min(len(name), 200)], "-.") + "." + hex.EncodeToString(sum[:16])}
	at := func(millis int64) string { return time.UnixMilli(millis).UTC().Format(time.RFC3339) }
	return ref, map[string]any{
		"apiVersion": "v1", "kind": resource.Kind,
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace, "annotations": map[string]string{kind.AgentNameAnnotation: e.agent}},
		"involvedObject": map[string]any{"apiVersion": kind.Applications.Group + "/" + kind.Applications.Version, "kind": kind.Applications.Kind,
			"namespace": app.Namespace(), "name": app.Name(), "uid": app.UID()},
		"type": e.Type, "reason": e.Reason, "message": e.Message, "count": e.Count,
		"firstTimestamp": at(e.FirstMillis), "lastTimestamp": at(e.LastMillis),
		"source":             map[string]string{"component": cmp.Or(e.Component, "unknown"), "host": e.agent},
		"reportingComponent": "argocd-agent/" + e.agent, "reportingInstance": e.agent,
	}
}

// Metrics returns the counters of a Writer.
func (w *Writer) Metrics(prefix string) []observe.Metric {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []observe.Metric{
		observe.Counter(prefix+"_application_events_written_total", "Events of agents' Applications that were written on the hub.", float64(w.written)),
		observe.Counter(prefix+"_application_events_dropped_total", "Events of agents' Applications that were not written: invalid, too many, or of an unknown Application.", float64(w.dropped)),
	}
}
