package appevents

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// hub is an API server that accepts server-side apply of Events, and a core with the agents w1 and w2.
type hub struct {
	t      *testing.T
	writer *Writer
	core   *reconcile.Reconciler
	owner  sync.Mutex // of core

	mu      sync.Mutex
	events  map[string]map[string]any // by path
	writes  []time.Time
	refuses int // status of the next responses; 0 if it accepts
}

func newHub(t *testing.T, off bool) *hub {
	t.Helper()
	h := &hub{t: t, events: map[string]map[string]any{}}
	client, err := kube.NewClient(&rest.Config{Host: "https://hub", Transport: h})
	if err != nil {
		t.Fatal(err)
	}
	h.core = reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "hub"})
	for _, agent := range []string{"w1", "w2"} {
		h.step(reconcile.Register{Agent: kind.Agent{Name: agent, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: agent, Server: "https://proxy?agentName=" + agent}})
	}
	project := h.parse(`{"metadata":{"name":"default","namespace":"argocd","uid":"p","resourceVersion":"1"},"spec":{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["*"]}}`)
	for _, r := range reconcile.Resources() {
		list := reconcile.List{Resource: r, Revision: 1}
		if r == kind.AppProjects {
			list.Objects = []*kind.Object{project}
		}
		h.step(list)
	}
	h.application("w1", "web")
	h.application("w2", "web")
	h.session("w1", 1)
	h.session("w2", 2)
	h.writer = New(Config{Off: off, Client: client, Log: slog.New(slog.DiscardHandler), Do: func(_ context.Context, f func(*reconcile.Reconciler)) error {
		h.owner.Lock()
		defer h.owner.Unlock()
		f(h.core)
		return nil
	}})
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { _ = h.writer.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return h
}

func (h *hub) step(in reconcile.Input) {
	h.owner.Lock()
	defer h.owner.Unlock()
	h.core.Step(0, in)
}

func (h *hub) parse(text string) *kind.Object {
	h.t.Helper()
	o, err := kind.Parse([]byte(text))
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

func (h *hub) application(namespace, name string) {
	h.step(reconcile.Observed{Resource: kind.Applications, Object: h.parse(fmt.Sprintf(
		`{"metadata":{"name":%[2]q,"namespace":%[1]q,"uid":"%[1]s-%[2]s","resourceVersion":"2"},"spec":{"project":"default","destination":{"name":%[1]q}}}`, namespace, name))})
}

func (h *hub) session(agent string, id uint64) {
	h.step(reconcile.FromPeer{Agent: agent, Input: engine.Connected{Session: id, Store: engine.Store{UID: "hub", Revision: 2}}})
	h.step(reconcile.FromPeer{Agent: agent, Input: engine.Received{Session: id, Message: engine.Hello{Epoch: engine.Epoch{Incarnation: id}, ClusterUID: agent, Mode: "managed",
		Protocol: engine.Range{Min: 1, Max: 1}, Projection: engine.Range{Min: 1, Max: 1}, Store: engine.Store{UID: agent, Revision: 1}}}})
}

// RoundTrip implements http.RoundTripper.
func (h *hub) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := httptest.NewRecorder()
	body, _ := io.ReadAll(r.Body)
	switch {
	case h.refuses != 0:
		w.WriteHeader(h.refuses)
		fmt.Fprintf(w, `{"kind":"Status","status":"Failure","reason":"Forbidden","code":%d}`, h.refuses)
	case r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("fieldManager") != fieldManager:
		h.t.Errorf("%s %s", r.Method, r.URL)
	default:
		var o map[string]any
		if err := json.Unmarshal(body, &o); err != nil {
			h.t.Error(err)
		}
		h.events[r.URL.Path] = o
		h.writes = append(h.writes, time.Now())
		_, _ = w.Write(body)
	}
	return w.Result(), nil
}

func (h *hub) state() (events map[string]map[string]any, writes []time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events, h.writes
}

func (h *hub) refuse(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuses = status
}

func (h *hub) counts() (written, dropped uint64) {
	h.writer.mu.Lock()
	defer h.writer.mu.Unlock()
	return h.writer.written, h.writer.dropped
}

// report is a valid Event of w1's Application web.
func report(uid string) engine.ApplicationEvent {
	now := time.Now().UnixMilli()
	return engine.ApplicationEvent{Key: engine.Key{Name: "web"}, ApplicationUID: "w1-web", UID: uid, Type: "Normal", Reason: "OperationCompleted", Message: "synced",
		Component: "argocd-application-controller", Count: 1, FirstMillis: now - 1000, LastMillis: now}
}

func reports(items ...engine.ApplicationEvent) engine.ApplicationEvents {
	return engine.ApplicationEvents{Items: items}
}

func TestWriter_WritesEventOfApplicationOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, false)
		one := report("u1")
		h.writer.Received("w1", 1, reports(one))
		time.Sleep(time.Second) // of virtual time
		one.Count = 2
		h.writer.Received("w1", 1, reports(one))
		time.Sleep(time.Second)
		events, writes := h.state()
		if len(events) != 1 || len(writes) != 2 {
			t.Fatalf("%d Events, %d writes", len(events), len(writes))
		}
		for at, o := range events {
			about, _ := o["involvedObject"].(map[string]any)
			if path.Dir(at) != "/api/v1/namespaces/w1/events" || about["name"] != "web" || about["namespace"] != "w1" || about["uid"] != "w1-web" ||
				o["count"] != float64(2) || o["reason"] != "OperationCompleted" || o["message"] != "synced" || o["reportingComponent"] != "argocd-agent/w1" {
				t.Errorf("%s: %v", at, o)
			}
		}
	})
}

func TestWriter_DropsWhatAnAgentMustNotWrite(t *testing.T) {
	for name, change := range map[string]func(*engine.ApplicationEvent){
		"type":                   func(e *engine.ApplicationEvent) { e.Type = "Fatal" },
		"no type":                func(e *engine.ApplicationEvent) { e.Type = "" },
		"no UID":                 func(e *engine.ApplicationEvent) { e.UID = "" },
		"count":                  func(e *engine.ApplicationEvent) { e.Count = 0 },
		"far future":             func(e *engine.ApplicationEvent) { e.LastMillis += int64(48 * time.Hour / time.Millisecond) },
		"far past":               func(e *engine.ApplicationEvent) { e.FirstMillis, e.LastMillis = 1, 2 },
		"ends before it begins":  func(e *engine.ApplicationEvent) { e.FirstMillis = e.LastMillis + 1 },
		"unknown Application":    func(e *engine.ApplicationEvent) { e.Key.Name = "other" },
		"Application elsewhere":  func(e *engine.ApplicationEvent) { e.Key.Namespace = "w2" },
		"UID of another":         func(e *engine.ApplicationEvent) { e.ApplicationUID = "w2-web" },
		"no UID of Application":  func(e *engine.ApplicationEvent) { e.ApplicationUID = "" },
		"nothing that is wrong":  nil,
		"overflow of the number": func(e *engine.ApplicationEvent) { e.LastMillis = 1 << 62 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub(t, false)
				one := report("u1")
				want := 0
				if change == nil {
					want = 1
				} else {
					change(&one)
				}
				h.writer.Received("w1", 1, reports(one))
				time.Sleep(2 * retryLimit)
				events, _ := h.state()
				if _, dropped := h.counts(); len(events) != want || dropped != uint64(1-want) {
					t.Errorf("%d Events, %d dropped", len(events), dropped)
				}
			})
		})
	}
}

func TestWriter_NothingIfOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, true)
		h.writer.Received("w1", 1, reports(report("u1")))
		time.Sleep(time.Minute)
		if events, _ := h.state(); len(events) != 0 {
			t.Errorf("%v", events)
		}
	})
}

func TestWriter_OnlyDuringTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, false)
		h.writer.Received("w1", 9, reports(report("refused connection")))
		h.writer.Received("w1", 1, reports(report("ended session")))
		h.writer.Closed("w1", 1)
		time.Sleep(2 * retryLimit)
		if events, _ := h.state(); len(events) != 0 {
			t.Errorf("%v", events)
		}
	})
}

func TestWriter_WaitsForApplicationAndAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, false)
		later := report("u1")
		later.Key.Name, later.ApplicationUID = "later", "w1-later"
		h.refuse(http.StatusServiceUnavailable)
		h.writer.Received("w1", 1, reports(later, report("u2")))
		time.Sleep(10 * time.Second)
		if events, _ := h.state(); len(events) != 0 {
			t.Fatalf("%v", events)
		}
		h.application("w1", "later")
		h.refuse(0)
		time.Sleep(10 * time.Second)
		if events, writes := h.state(); len(events) != 2 || len(writes) != 2 {
			t.Errorf("%d Events, %d writes", len(events), len(writes))
		}
	})
}

func TestWriter_DropsWhatTheAPIServerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, false)
		h.refuse(http.StatusForbidden)
		h.writer.Received("w1", 1, reports(report("u1")))
		time.Sleep(time.Second)
		h.refuse(0)
		time.Sleep(time.Minute)
		if written, dropped := h.counts(); written != 0 || dropped != 1 {
			t.Errorf("%d written, %d dropped", written, dropped)
		}
	})
}

func TestWriter_AgentWithManyEventsDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(t, false)
		start := time.Now()
		for i := range 1000 {
			h.writer.Received("w1", 1, reports(report(fmt.Sprint(i))))
		}
		other := report("u1")
		other.ApplicationUID = "w2-web"
		h.writer.Received("w2", 2, reports(other))
		time.Sleep(time.Minute)
		events, writes := h.state()
		if len(events) != maxQueuePerAgent+1 {
			t.Errorf("%d Events", len(events))
		}
		if took := writes[len(writes)-1].Sub(start); took < (maxQueuePerAgent-1)*interval {
			t.Errorf("%d writes in %s", len(writes), took)
		}
		for i := range writes[:len(writes)-maxPerInterval] {
			if writes[i+maxPerInterval].Sub(writes[i]) < interval {
				t.Errorf("more than %d writes in %s", maxPerInterval, interval)
			}
		}
		if _, dropped := h.counts(); dropped != 1000-maxQueuePerAgent {
			t.Errorf("%d dropped", dropped)
		}
		found := false
		for at := range events {
			found = found || strings.HasPrefix(at, "/api/v1/namespaces/w2/")
		}
		if !found {
			t.Error("no Event of the other agent")
		}
	})
}

func TestWriter_QueueIsBounded(t *testing.T) {
	w := New(Config{Log: slog.New(slog.DiscardHandler)})
	for i := range 2 * maxQueue / maxQueuePerAgent {
		for range maxQueuePerAgent {
			w.Received(fmt.Sprint("a", i), 1, reports(report("u")))
		}
	}
	if w.queued != maxQueue || w.dropped == 0 {
		t.Errorf("%d queued, %d dropped", w.queued, w.dropped)
	}
	for i := range 2 * maxQueue / maxQueuePerAgent {
		w.Closed(fmt.Sprint("a", i), 1)
	}
	if w.queued != 0 || len(w.queues) != 0 {
		t.Errorf("%d queued after all sessions ended", w.queued)
	}
}
