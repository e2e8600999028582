package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

const eventOfController = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"web.1","namespace":"argocd","uid":"e1","creationTimestamp":"2026-01-02T03:04:05Z"},
	"involvedObject":{"kind":"Application","apiVersion":"argoproj.io/v1alpha1","namespace":"argocd","name":"web","uid":"a1"},
	"source":{"component":"argocd-application-controller"},"type":"Normal","reason":"OperationCompleted","message":"synced","count":3,
	"firstTimestamp":"2026-01-02T03:04:01Z","lastTimestamp":"2026-01-02T03:04:05Z"}`

func TestParseEvent_ReadsBothForms(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli()
	for name, c := range map[string]struct {
		change      []string
		ok          bool
		first, last int64
		count       uint32
		component   string
	}{
		"of a controller":     {nil, true, at - 4000, at, 3, "argocd-application-controller"},
		"of another kind":     {[]string{`"kind":"Application"`, `"kind":"Pod"`}, false, 0, 0, 0, ""},
		"of another group":    {[]string{"argoproj.io/", "other.io/"}, false, 0, 0, 0, ""},
		"without UID":         {[]string{`"uid":"e1"`, `"uid":""`}, false, 0, 0, 0, ""},
		"without a reference": {[]string{`"uid":"a1"`, `"uid":""`}, false, 0, 0, 0, ""},
		"with a series": {[]string{`"source":{"component":"argocd-application-controller"}`, `"reportingComponent":"other one","eventTime":"2026-01-02T03:04:01.5Z","series":{"count":7,"lastObservedTime":"2026-01-02T03:04:05.25Z"}`,
			`"count":3,`, ``, `"firstTimestamp":"2026-01-02T03:04:01Z","lastTimestamp":"2026-01-02T03:04:05Z"`, `"lastTimestamp":null`}, true, at - 3500, at + 250, 7, "other-one"},
		"without times":     {[]string{`"firstTimestamp":"2026-01-02T03:04:01Z","lastTimestamp":"2026-01-02T03:04:05Z"`, `"lastTimestamp":null`}, true, at, at, 3, "argocd-application-controller"},
		"with a huge count": {[]string{`"count":3`, `"count":99999999999`}, true, at - 4000, at, 1<<31 - 1, "argocd-application-controller"},
	} {
		o, err := kind.Parse([]byte(strings.NewReplacer(c.change...).Replace(eventOfController)))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := parseEvent(o)
		if ok != c.ok || got.FirstMillis != c.first || got.LastMillis != c.last || got.Count != c.count || got.Component != c.component {
			t.Errorf("%s: %v %+v", name, ok, got)
		}
		if ok && (got.UID != "e1" || got.uid != "a1" || got.namespace != "argocd" || got.name != "web" || got.Type != "Normal" || got.Reason != "OperationCompleted" || got.Message != "synced") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestEventBuffer_KeepsTheNewest(t *testing.T) {
	var b eventBuffer
	add := func(application string, number int) {
		e := bufferedEvent{uid: application}
		e.UID, e.LastMillis = fmt.Sprint(application, number), int64(number)
		b.add(e)
	}
	for i := range 100 {
		add("busy", i)
		add("busy", i) // changed
	}
	if got := b.take(1); len(b.events) != maxEventsPerApplication-1 || got[0].LastMillis != 100-maxEventsPerApplication {
		t.Errorf("%d Events of one Application, the oldest is %+v", len(b.events)+1, got)
	}
	for i := range 2 * maxEvents {
		add(fmt.Sprint("a", i), 1000+i)
	}
	if len(b.events) != maxEvents {
		t.Errorf("%d Events", len(b.events))
	}
	taken := b.take(10 * maxEvents)
	for i := range taken {
		if taken[i].LastMillis < 1000+maxEvents || i > 0 && taken[i-1].LastMillis > taken[i].LastMillis {
			t.Fatalf("%d: %+v", i, taken[i])
		}
	}
	if len(b.events) != 0 || len(b.perApp) != 0 || len(b.take(1)) != 0 {
		t.Errorf("left: %v %v", b.events, b.perApp)
	}
}

// eventServer is an API server that has one Event, and another one after the watch has begun.
func eventServer(t *testing.T) (*kube.Client, chan string) {
	t.Helper()
	requests := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path + "?" + r.URL.Query().Get("fieldSelector")
		if r.URL.Query().Get("watch") == "" {
			fmt.Fprintf(w, `{"kind":"EventList","metadata":{"resourceVersion":"7"},"items":[%s]}`, eventOfController)
			return
		}
		var one json.RawMessage = []byte(strings.NewReplacer(`"uid":"e1"`, `"uid":"e2","resourceVersion":"8"`).Replace(eventOfController))
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": one})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	c, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c, requests
}

func TestApplicationEvents_ReadsExistingAndNewOnes(t *testing.T) {
	for mapping, path := range map[kind.Mapping]string{kind.ByNamespace: "/api/v1/namespaces/argocd/events", kind.ByDestination: "/api/v1/events"} {
		client, requests := eventServer(t)
		a := &agent{cfg: Config{Namespace: "argocd", Mode: kind.Managed, Mapping: mapping, Jitter: func() float64 { return 0 }}, client: client, log: slog.New(slog.DiscardHandler)}
		e := newApplicationEvents(a)
		e.since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.read(ctx) }()
		if got := <-requests; got != path+"?involvedObject.kind=Application" {
			t.Error(got)
		}
		for {
			e.mu.Lock()
			found := len(e.pending.events)
			e.mu.Unlock()
			if found == 2 {
				break
			}
			if t.Context().Err() != nil {
				t.Fatal("not read")
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
		e.since = e.since.Add(time.Second)
		e.pending = eventBuffer{}
		o, _ := kind.Parse([]byte(eventOfController))
		if e.add(o); len(e.pending.events) != 0 {
			t.Error("an old Event is sent")
		}
	}
}
