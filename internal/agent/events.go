package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Limits of Events. The hub writes ten per second for one agent.
const (
	eventInterval           = time.Second
	eventsPerInterval       = 10
	maxEvents               = 1000 // that wait to be sent
	maxEventsPerApplication = 20
	maxEventQueue           = 64 << 10 // bytes that wait in the connection, before which no Event is sent
)

// Events that are older than these are not sent at the start and after a reconnect. Those that the hub has already do no
// harm: it writes the same object again.
const (
	eventAge      = time.Hour
	eventOverlap  = 2 * time.Minute
	maxEventPause = 5 * time.Minute
)

// applicationEvents sends Events of Applications to the hub. It reads them only during a session with a hub that accepts
// them.
type applicationEvents struct {
	agent    *agent
	sessions chan *transport.Conn // of one: the newest session
	since    time.Time            // of the Events that are sent
	wake     chan struct{}        // something waits to be sent
	logged   logonce.One

	mu      sync.Mutex
	pending eventBuffer
}

func newApplicationEvents(a *agent) *applicationEvents {
	return &applicationEvents{agent: a, sessions: make(chan *transport.Conn, 1), wake: make(chan struct{}, 1), since: time.Now().Add(-eventAge)}
}

// opened is called at the start of each session.
func (e *applicationEvents) opened(c *transport.Conn, capabilities []string) {
	if c == nil || !e.agent.cfg.ApplicationEvents || !slices.Contains(capabilities, engine.AcceptsEvents) {
		return
	}
	select {
	case <-e.sessions: // it was not begun
	default:
	}
	e.sessions <- c
}

func (e *applicationEvents) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-e.sessions:
			e.serve(ctx, c)
			e.since = time.Now().Add(-eventOverlap)
		}
	}
}

// serve reads and sends Events until the session ends.
func (e *applicationEvents) serve(ctx context.Context, c *transport.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() { e.read(ctx) })
	if e.waiting() { // of the session before
		e.wakeUp()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Done():
			cancel()
			return
		case <-e.wake:
		}
		select { // Events that come together are sent together
		case <-ctx.Done():
			return
		case <-c.Done():
			cancel()
			return
		case <-time.After(eventInterval):
		}
		if c.Queued() < maxEventQueue {
			e.send(ctx, c)
		}
		if e.waiting() {
			e.wakeUp()
		}
	}
}

func (e *applicationEvents) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default: // it will wake up
	}
}

func (e *applicationEvents) waiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.pending.events) > 0
}

var eventResource = kind.Resource{Version: "v1", Plural: "events", Kind: "Event"}

func (e *applicationEvents) read(ctx context.Context) {
	w := kube.Watch{Resource: eventResource, Fields: "involvedObject.kind=" + kind.Applications.Kind}
	if !e.agent.anyNamespace() {
		w.Namespace = e.agent.cfg.Namespace
	}
	pause := backoff.Backoff{Min: time.Second, Max: maxEventPause, Jitter: e.agent.cfg.Jitter}
	for {
		err := e.agent.client.Stream(ctx, w, e.agent.log, e.agent.cfg.Jitter, e.add)
		if ctx.Err() != nil {
			return
		}
		if e.logged.Changed(text.WithoutDigits(err.Error())) {
			e.agent.log.WarnContext(ctx, "Failed to read Events of Applications, retrying", "error", err)
		}
		pause.Wait(ctx, 0)
	}
}

func (e *applicationEvents) add(o *kind.Object) {
	if one, ok := parseEvent(o); ok && one.LastMillis >= e.since.UnixMilli() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.pending.add(one)
		e.wakeUp()
	}
}

// send sends the oldest Events.
func (e *applicationEvents) send(ctx context.Context, c *transport.Conn) {
	e.mu.Lock()
	taken := e.pending.take(eventsPerInterval)
	e.mu.Unlock()
	if len(taken) == 0 {
		return
	}
	var m engine.ApplicationEvents
	_ = e.agent.runner.Do(ctx, func(n *reconcile.Reconciler) { // fails only if ctx ends
		for _, one := range taken {
			var ok bool
			if one.Key, one.ApplicationUID, ok = n.EventSubject(one.namespace, one.name, one.uid); ok {
				m.Items = append(m.Items, one.ApplicationEvent)
			}
		}
	})
	if len(m.Items) == 0 {
		return
	}
	if err := c.Send(m); err != nil && c.Cause() == nil {
		e.agent.log.DebugContext(ctx, "Failed to send Events of Applications", "error", err)
	}
}

// bufferedEvent is an Event and its Application.
type bufferedEvent struct {
	engine.ApplicationEvent // without the key and the owner's UID of the Application, which are looked up when it is sent
	namespace, name, uid    string
}

// parseEvent returns false if an Event is not one of an Application.
func parseEvent(o *kind.Object) (bufferedEvent, bool) {
	about := func(field string) string { return rawjson.Text(o.Get("involvedObject", field)) }
	first := func(paths ...[]string) string {
		for _, path := range paths {
			if s := rawjson.Text(o.Get(path...)); s != "" {
				return s
			}
		}
		return ""
	}
	number := func(path ...string) uint32 {
		n := kube.ParseResourceVersion(string(o.Get(path...)))
		return uint32(min(n, 1<<31-1))
	}
	one := bufferedEvent{namespace: about("namespace"), name: about("name"), uid: about("uid"), ApplicationEvent: engine.ApplicationEvent{
		UID: o.UID(), Type: token(first([]string{"type"}), 64), Reason: token(first([]string{"reason"}), 128), Message: first([]string{"message"}),
		Component: token(first([]string{"source", "component"}, []string{"reportingComponent"}), 128),
		Count:     max(1, number("count"), number("series", "count")),
	}}
	last, err := time.Parse(time.RFC3339, first([]string{"series", "lastObservedTime"}, []string{"lastTimestamp"}, []string{"eventTime"}, []string{"metadata", "creationTimestamp"}))
	if err != nil || one.UID == "" || one.uid == "" || about("kind") != kind.Applications.Kind || !strings.HasPrefix(about("apiVersion"), kind.Applications.Group+"/") {
		return bufferedEvent{}, false
	}
	one.LastMillis, one.FirstMillis = last.UnixMilli(), last.UnixMilli()
	if began, err := time.Parse(time.RFC3339, first([]string{"firstTimestamp"}, []string{"eventTime"})); err == nil {
		one.FirstMillis = began.UnixMilli()
	}
	return one, true
}

// token replaces what the protocol does not allow in a name.
func token(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, s)
	return s[:min(len(s), limit)]
}

// eventBuffer has the Events that wait to be sent. If there are too many, the oldest are removed.
type eventBuffer struct {
	events map[string]bufferedEvent // by UID
	perApp map[string]int           // number of Events by UID of the Application
}

func (b *eventBuffer) add(e bufferedEvent) {
	if b.events == nil {
		b.events, b.perApp = map[string]bufferedEvent{}, map[string]int{}
	}
	b.remove(e.UID)
	b.events[e.UID] = e
	b.perApp[e.uid]++
	if b.perApp[e.uid] > maxEventsPerApplication {
		b.removeOldest(e.uid)
	} else if len(b.events) > maxEvents {
		b.removeOldest("")
	}
}

func (b *eventBuffer) remove(uid string) {
	e, ok := b.events[uid]
	if !ok {
		return
	}
	delete(b.events, uid)
	if b.perApp[e.uid]--; b.perApp[e.uid] == 0 {
		delete(b.perApp, e.uid)
	}
}

// removeOldest removes the oldest Event of an Application or, if it is empty, of all.
func (b *eventBuffer) removeOldest(application string) {
	var oldest *bufferedEvent
	for _, e := range b.events {
		if (application == "" || e.uid == application) && (oldest == nil || olderEvent(e, *oldest) < 0) {
			oldest = &e
		}
	}
	b.remove(oldest.UID)
}

// take removes and returns the oldest Events.
func (b *eventBuffer) take(count int) []bufferedEvent {
	all := slices.SortedFunc(maps.Values(b.events), olderEvent)
	all = all[:min(len(all), count)]
	for _, e := range all {
		b.remove(e.UID)
	}
	return all
}

func olderEvent(a, b bufferedEvent) int {
	return cmp.Or(cmp.Compare(a.LastMillis, b.LastMillis), cmp.Compare(a.UID, b.UID))
}
