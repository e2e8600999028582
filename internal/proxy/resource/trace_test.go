package resource

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/lab/collector"
)

// tracedStage traces both halves, each as a service of its own.
func tracedStage(t *testing.T, server APIServer, policy Policy) (*stage, *collector.Collector) {
	t.Helper()
	c, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	tracer := func(service string) *trace.Tracer {
		tracer, err := trace.New(t.Context(), trace.Config{Address: c.Address(), Insecure: true, Service: service, Log: slog.New(slog.DiscardHandler), BatchTimeout: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(tracer.Close)
		return tracer
	}
	return newStage(t, server, options{
		hub:   func(h *HubConfig) { h.Trace = tracer("hub") },
		agent: func(a *AgentConfig) { a.Trace, a.Policy = tracer("agent"), policy },
	}), c
}

func spanOf(t *testing.T, c *collector.Collector, service, name string) collector.Span {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	s, err := c.Find(ctx, func(s collector.Span) bool { return s.Resource["service.name"] == service && s.Name == name })
	if err != nil {
		t.Fatalf("no span %q of the %s in %+v", name, service, c.Spans())
	}
	return s
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

func TestTrace_FromTheCallerToTheAPIServer(t *testing.T) {
	header := make(chan http.Header, 1)
	s, c := tracedStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		header <- r.Header.Clone()
		answer(w, r)
	}), Policy{Level: LevelAll, Secrets: SecretsPlain})
	s.ask(t, s.client, http.MethodPut, "/api/v1/namespaces/a/secrets/s?fieldManager=hidden-query", strings.NewReader(`{"data":"hidden-body"}`),
		"Traceparent", "00-"+callersTrace+"-"+callersSpan+"-01", "Tracestate", "vendor=hidden-state", "Baggage", "user=hidden-baggage", "Authorization", "Bearer hidden-token")

	hub, tunnel, agent := spanOf(t, c, "hub", "update secrets"), spanOf(t, c, "hub", "open a tunnel"), spanOf(t, c, "agent", "update secrets")
	if hub.Trace != callersTrace || hub.Parent != callersSpan || tunnel.Parent != hub.ID || agent.Parent != hub.ID || agent.Trace != callersTrace {
		t.Errorf("not one trace: %+v %+v %+v", hub, tunnel, agent)
	}
	got := await(t, "request", header)
	if got.Get("Traceparent") != "00-"+callersTrace+"-"+agent.ID+"-01" || got.Get("Tracestate") != "" || got.Get("Baggage") != "" {
		t.Errorf("the API server got %v", got)
	}
	for key, want := range map[string]string{trace.Method: "PUT", trace.Resource: "secrets", trace.Namespace: "a", trace.Object: "s", trace.StatusCode: "200"} {
		if hub.Attributes[key] != want || agent.Attributes[key] != want {
			t.Errorf("%s is %q and %q, not %q", key, hub.Attributes[key], agent.Attributes[key], want)
		}
	}
	if hub.Attributes[trace.Agent] != "w1" {
		t.Errorf("%+v", hub)
	}
	for _, span := range c.Spans() {
		texts := append([]string{span.Name, span.Why}, span.Events...)
		for _, text := range span.Attributes {
			texts = append(texts, text)
		}
		if all := strings.Join(texts, " "); strings.Contains(all, "hidden") {
			t.Errorf("a span has secret content: %s", all)
		}
	}
}

func TestTrace_ExecSessionIsOneSpan(t *testing.T) {
	s, c := tracedStage(t, fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.Copy(conn, buf)
		_ = conn.Close()
	}), Policy{Level: LevelAll})
	conn, reader := s.terminal(t, "echo")
	if _, err := io.ReadFull(reader, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	for _, span := range c.Spans() {
		if span.Name == "create pods/exec" {
			t.Error("it has ended before the terminal")
		}
	}
	_ = conn.Close()
	hub, agent := spanOf(t, c, "hub", "create pods/exec"), spanOf(t, c, "agent", "create pods/exec")
	if agent.Parent != hub.ID || hub.Attributes[trace.StatusCode] != "101" || strings.Join(agent.Events, ",") != "allowed,first byte" {
		t.Errorf("%+v %+v", hub, agent)
	}
}

func TestTrace_DenialHasTheSetting(t *testing.T) {
	s, c := tracedStage(t, fakeServer(t, answer), Policy{Level: LevelNone})
	s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil)
	agent := spanOf(t, c, "agent", "get pods")
	if agent.Attributes[trace.StatusCode] != "403" || agent.Attributes[trace.RefusedBy] != SettingLevel {
		t.Errorf("%+v", agent)
	}
}

func TestTrace_DisabledForwardsTheCallersTrace(t *testing.T) {
	header := make(chan http.Header, 1)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		header <- r.Header.Clone()
		answer(w, r)
	}), options{})
	parent := "00-" + callersTrace + "-" + callersSpan + "-01"
	for sent, want := range map[string]string{parent: parent, "hello": "", parent + strings.Repeat("x", 1000): ""} {
		s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/pods/p", nil, "Traceparent", sent, "Tracestate", "a=b", "Baggage", "a=b")
		if got := await(t, "request", header); got.Get("Traceparent") != want || got.Get("Tracestate") != "" || got.Get("Baggage") != "" {
			t.Errorf("%q becomes %v", sent, got)
		}
	}
}

func TestTrace_DisabledCostsNothing(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces/a/pods/p", nil)
	if err != nil {
		t.Fatal(err)
	}
	q := Request{Verb: verbGet, Resource: "pods", Subresource: "log"}
	if n := testing.AllocsPerRun(100, func() {
		span := startSpan(r.Context(), nil, r, &q)
		trace.SanitizeHeaders(r.Header)
		span.Inject(r.Header)
		span.Event("first byte")
		endSpan(span, http.StatusOK)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
