package principal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// These tests run whole principals and the sync core of agents under virtual time, with connections in memory.

// memoryListener is the port of a principal.
type memoryListener struct {
	name   string
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: l.name} }

// memoryService selects a principal for each connection of an agent, one after the other, as a Service can.
type memoryService struct {
	mu        sync.Mutex
	listeners []*memoryListener
}

func (s *memoryService) set(listeners ...*memoryListener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = listeners
}

func (s *memoryService) selected(attempt int) *memoryListener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners[attempt%len(s.listeners)]
}

var errConnectionRefused = errors.New("connection refused")

func (l *memoryListener) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case <-l.closed:
		return nil, errConnectionRefused
	default:
	}
	select {
	case l.accept <- far:
		return near, nil
	case <-l.closed:
		return nil, errConnectionRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// lease returns what a principal publishes in its Lease.
func (h *replicated) lease(name string) string {
	h.api.mu.Lock()
	defer h.api.mu.Unlock()
	for path, o := range h.api.objects {
		annotations, _ := o["metadata"].(map[string]any)["annotations"].(map[string]any)
		if strings.Contains(path, "/leases/") && annotations[kind.Prefix+"replica-name"] == name {
			return fmt.Sprint(annotations[kind.Prefix+"replica-agents"])
		}
	}
	return ""
}

// run runs a principal. stop asks it to end, and ended is closed when it has ended.
func (h *replicated) run(name string, namespaces ...string) (l *memoryListener, stop func(), ended <-chan struct{}) {
	h.t.Helper()
	l = &memoryListener{name: name, accept: make(chan net.Conn), closed: make(chan struct{})}
	cfg := h.settings(name, l)
	cfg.ApplicationNamespaces = namespaces
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := Run(ctx, cfg); err != nil && !h.restarts.Load() {
			h.t.Errorf("principal %s ended with %v", name, err)
		}
	}()
	h.t.Cleanup(func() { cancel(); <-done })
	return l, cancel, done
}

// workload is a workload cluster with the sync core of a managed agent.
type workload struct {
	name   string
	api    *memoryAPI
	runner *kube.Runner
	conn   atomic.Pointer[transport.Conn]
	ctx    context.Context

	mu       sync.Mutex
	attempts uint64
	sessions []*workloadSession
	refused  int           // attempts without a session
	pause    time.Duration // the longest one after such an attempt
}

// workloadSession is what an agent received in one session.
type workloadSession struct {
	inSync bool
	items  []string // keys, once for each time
	bye    engine.Code
}

func (h *replicated) workload(name string, service *memoryService) *workload {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &workload{name: name, api: newVirtualAPI(h.t), ctx: ctx}
	client, err := kube.NewClient(w.api.config())
	if err != nil {
		h.t.Fatal(err)
	}
	log, objects := slog.New(slog.DiscardHandler), kube.NewReadiness(kube.KindWatches("", true, nil))
	w.runner = kube.NewRunner(client, kube.RunnerConfig{Watches: kube.KindWatches("argocd", false, nil), Parallel: 4, Jitter: func() float64 { return 0.5 }, Log: log,
		Reconciler: reconcile.New(reconcile.Config{Side: kind.Spoke, ArgoNamespace: "argocd", ClusterUID: "cluster-" + name, Version: "test", Mode: kind.Managed, Mapping: kind.ByNamespace})})
	dials := 0
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials++
		return service.selected(dials).dial(ctx)
	}
	dialer := transport.NewDialer(transport.DialerConfig{Events: w, Log: log, Name: name, Random: func() float64 { return 0.5 },
		Connectors: []transport.Connector{grpc.NewConnector(grpc.ClientConfig{Address: "hub:443", Metadata: []string{"agent", name}, Dial: dial})},
		Failed: func(_ string, _ error, next time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused++
			w.pause = max(w.pause, next)
		}})
	var running sync.WaitGroup
	running.Go(func() {
		_ = w.runner.Run(ctx, kube.Handlers{ToPeer: w.deliver, Report: w.report, Applied: objects.Follow})
	})
	running.Go(func() {
		select {
		case <-objects.Ready():
			_ = dialer.Run(ctx)
		case <-ctx.Done():
		}
	})
	h.t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

func (w *workload) Connected(c *transport.Conn) {
	w.mu.Lock()
	w.attempts++
	w.sessions = append(w.sessions, &workloadSession{})
	epoch := engine.Epoch{Incarnation: 5, Attempt: w.attempts}
	w.mu.Unlock()
	w.conn.Store(c)
	_ = w.runner.PostFromPeer(w.ctx, c.Done(), reconcile.FromPeer{Input: engine.Connected{Session: c.ID, Epoch: epoch,
		Store: engine.Store{UID: "cluster-" + w.name, Revision: w.api.currentRevision()}}})
}

func (w *workload) Received(c *transport.Conn, m engine.Message) {
	w.mu.Lock()
	session := w.sessions[len(w.sessions)-1]
	switch m := m.(type) {
	case engine.Delta:
		for _, item := range m.Items {
			session.items = append(session.items, item.Key.String())
		}
	case engine.Bye:
		session.bye = m.Code
	}
	w.mu.Unlock()
	_ = w.runner.PostFromPeer(w.ctx, c.Done(), reconcile.FromPeer{Input: engine.Received{Session: c.ID, Message: m}})
}

func (w *workload) Disconnected(c *transport.Conn, _ error) {
	w.conn.CompareAndSwap(c, nil)
	_ = w.runner.PostFromPeer(w.ctx, nil, reconcile.FromPeer{Input: engine.Disconnected{Session: c.ID}})
}

func (w *workload) deliver(e reconcile.ToPeer) {
	c := w.conn.Load()
	if c == nil {
		return
	}
	switch e := e.Effect.(type) {
	case engine.Send:
		if e.Session == c.ID {
			_ = c.Send(e.Message)
		}
	case engine.CloseSession:
		if e.Session == c.ID {
			c.CloseAfter(e.Code, e.Message, time.Duration(e.RetryAfter)*time.Millisecond)
		}
	}
}

func (w *workload) report(r reconcile.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.Event.Type {
	case engine.Opened:
		if c := w.conn.Load(); c != nil {
			c.Established()
		}
	case engine.InitialSyncDone:
		w.sessions[len(w.sessions)-1].inSync = true
	}
}

// last returns the number of sessions and the last one.
func (w *workload) last() (int, workloadSession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sessions) == 0 {
		return 0, workloadSession{}
	}
	last := *w.sessions[len(w.sessions)-1]
	last.items = slices.Clone(last.items)
	return len(w.sessions), last
}

// revision returns the revision of an Application on the workload cluster.
func (w *workload) revision(app string) any {
	spec, _ := w.api.get("/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/" + app)["spec"].(map[string]any)
	source, _ := spec["source"].(map[string]any)
	return source["targetRevision"]
}

const applicationsPerAgent = 6

// application writes an Application of an agent on the hub.
func (h *replicated) application(agent string, number int, revision string) {
	path := fmt.Sprintf("/apis/argoproj.io/v1alpha1/namespaces/%s/applications/app-%d", agent, number)
	name := fmt.Sprint("app-", number)
	metadata := map[string]any{"name": name, "namespace": agent}
	if o := h.api.get(path); o != nil {
		metadata["uid"] = o["metadata"].(map[string]any)["uid"]
	}
	h.api.put(path, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata, "spec": map[string]any{"project": "default",
		"source": map[string]any{"repoURL": "https://example.org/repo", "path": ".", "targetRevision": revision}, "destination": map[string]any{"name": agent, "namespace": "default"}}})
}

// fleet declares agents with Applications.
func (h *replicated) fleet(agents int) (names []string) {
	h.api.put("/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/default", map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "default", "namespace": "argocd"}, "spec": map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"namespace": "*", "server": "*"}}}})
	for i := range agents {
		name := fmt.Sprint("w", i)
		names = append(names, name)
		h.declare(name)
		for n := range applicationsPerAgent {
			h.application(name, n, "v1")
		}
	}
	return names
}

// connected reports whether all agents are connected to a principal, and in sync.
func (h *replicated) connected(principal string, all []*workload) bool {
	for _, w := range all {
		if s := h.status(w.name); !s.Connected || s.Principal != principal {
			return false
		}
		if _, last := w.last(); !last.inSync {
			return false
		}
	}
	return true
}

// A replica that is asked to end moves its agents to the other one and ends when they are there. What is changed at that time
// arrives, and what is equal is not sent again.
func TestDrain_MovesAgentsBeforeExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &replicated{t: t, api: newVirtualAPI(t)}
		names := h.fleet(5)
		service := &memoryService{}
		first, stop, ended := h.run("first", names...)
		service.set(first)
		var all []*workload
		for _, name := range names {
			all = append(all, h.workload(name, service))
		}
		eventually(t, "the agents are connected to the first principal", func() bool { return h.connected("first", all) })
		began := time.Now()
		second, _, _ := h.run("second", names...)
		eventually(t, "the second principal accepts agents", func() bool { return strings.Contains(h.lease("second"), `"Sessions":0`) })
		if took := time.Since(began); took > time.Second {
			t.Errorf("the second principal published after %v that it accepts agents", took)
		}
		service.set(first, second) // and it still leads to the first one

		changed := map[string]bool{}
		change := func(number int) {
			for _, name := range names {
				h.application(name, number, "v2")
			}
			changed[fmt.Sprint("app-", number)] = true
		}
		change(0) // these changes are underway when it is asked to end
		stop()
		change(1)
		time.Sleep(time.Millisecond)
		change(2)
		<-ended
		for _, w := range all {
			if s := h.status(w.name); !s.Connected || s.Principal != "second" {
				t.Errorf("the principal ended, and agent %s is connected to %q: %v", w.name, s.Principal, s.Connected)
			}
		}
		eventually(t, "all agents are in sync", func() bool { return h.connected("second", all) })
		for _, w := range all {
			count, last := w.last()
			if w.sessions[0].bye != engine.Reconnect || count != 2 {
				t.Errorf("agent %s: the session ended with %q, and there are %d sessions", w.name, w.sessions[0].bye, count)
			}
			if w.refused != 1 || w.pause > time.Second {
				t.Errorf("agent %s: %d attempts failed, the longest pause is %v", w.name, w.refused, w.pause)
			}
			for _, item := range last.items {
				if !changed[item] {
					t.Errorf("agent %s: %s was sent again", w.name, item)
				}
			}
			for n := range applicationsPerAgent {
				app, want := fmt.Sprint("app-", n), "v1"
				if changed[app] {
					want = "v2"
				}
				if got := w.revision(app); got != want {
					t.Errorf("agent %s: revision %v of %s, want %s", w.name, got, app, want)
				}
			}
		}
	})
}

// The only replica ends at once. Agents that cannot move in time are disconnected, at the latest after drainTime.
func TestDrain_EndsInTime(t *testing.T) {
	for name, test := range map[string]struct {
		others int
		within time.Duration
	}{"alone": {0, 2 * time.Second}, "agents reach no other replica": {1, drainTime + 2*time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &replicated{t: t, api: newVirtualAPI(t)}
				names := h.fleet(1)
				service := &memoryService{}
				first, stop, ended := h.run("first", names...)
				service.set(first)
				w := h.workload(names[0], service)
				eventually(t, "the agent is connected", func() bool { return h.connected("first", []*workload{w}) })
				for i := range test.others {
					h.run(fmt.Sprint("other-", i), names...)
					eventually(t, "the other principal accepts agents", func() bool { return strings.Contains(h.lease(fmt.Sprint("other-", i)), `"Sessions":0`) })
				}
				began := time.Now()
				stop()
				<-ended
				if took := time.Since(began); took > test.within {
					t.Errorf("ended after %v", took)
				}
				want := engine.ShuttingDown
				if test.others > 0 {
					want = engine.Reconnect
				}
				if _, last := w.last(); last.bye != want {
					t.Errorf("the session ended with %q, want %q", last.bye, want)
				}
			})
		})
	}
}

// A principal whose hub is demoted while it moves its agents ends at once.
func TestDrain_EndsIfTheHubIsDemoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &replicated{t: t, api: newVirtualAPI(t)}
		h.api.putHubState(hubState("active", "1"))
		names := h.fleet(1)
		service := &memoryService{}
		first, stop, ended := h.run("first", names...)
		service.set(first)
		w := h.workload(names[0], service)
		eventually(t, "the agent is connected", func() bool { return h.connected("first", []*workload{w}) })
		h.run("second", names...)
		eventually(t, "the second principal accepts agents", func() bool { return strings.Contains(h.lease("second"), `"Sessions":0`) })
		stop()
		eventually(t, "it drains", func() bool { return strings.Contains(h.lease("first"), `"Draining":true`) })
		if lease := h.lease("first"); strings.Contains(lease, `"Sessions"`) {
			t.Errorf("it accepts agents: %s", lease)
		}
		began := time.Now()
		h.restarts.Store(true)
		h.api.putHubState(hubState("standby", "1"))
		<-ended
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

// The Spreader of a principal moves sessions to another one that has fewer.
func TestSpread_MovesSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &replicated{t: t, api: newVirtualAPI(t)}
		names := h.fleet(8)
		service := &memoryService{}
		first, _, _ := h.run("first", names...)
		service.set(first)
		var all []*workload
		for _, name := range names {
			all = append(all, h.workload(name, service))
		}
		eventually(t, "the agents are connected to the first principal", func() bool { return h.connected("first", all) })
		second, _, _ := h.run("second", names...)
		service.set(second)
		time.Sleep(2 * time.Minute)
		moved := 0
		for _, w := range all {
			count, last := w.last()
			switch s := h.status(w.name); {
			case !s.Connected || !last.inSync:
				t.Errorf("agent %s is not in sync", w.name)
			case s.Principal == "second":
				moved++
				if count != 2 || w.sessions[0].bye != engine.Reconnect || len(last.items) > 0 {
					t.Errorf("agent %s: %d sessions, the first ended with %q, and %v was sent again", w.name, count, w.sessions[0].bye, last.items)
				}
			}
		}
		if moved != 4 {
			t.Errorf("%d of 8 agents have moved", moved)
		}
	})
}
