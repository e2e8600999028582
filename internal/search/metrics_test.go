package search

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// series returns the values of all counters and gauges, by name and labels.
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestMetrics_CountRequestsWithFewLabels(t *testing.T) {
	s, _ := newAgentServer(t)
	before := len(series(t, s.Metrics()))
	for _, path := range []string{"/v1/counts", "/v1/counts?groupBy=x", "/v1/agents/a/timeline", "/v1/agents/b/timeline"} {
		get(t, s, "admin", path)
	}
	for i := range 50 {
		get(t, s, "admin", fmt.Sprintf("/v1/nosuch%d", i))
		get(t, s, "", fmt.Sprintf("/v1/agents/name%d/timeline", i))
	}
	s.requests = newLimiter(0, 0)
	get(t, s, "admin", "/v1/counts")
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	openStream(t, server.URL, "admin", "").next()
	got := series(t, s.Metrics())
	for name, want := range map[string]float64{
		"_search_requests_total 2xx /v1/counts": 1, "_search_requests_total 4xx /v1/counts": 2, "_search_requests_total 2xx " + timelinePath: 2,
		"_search_requests_total 4xx " + timelinePath: 50, "_search_requests_total 4xx other": 50, "_search_limited_total": 1,
		"_search_request_seconds": 105, "_search_streams /v1/agents/stream": 1, "_search_streams /v1/watch": 0,
	} {
		if value, known := got[name]; !known || value != want {
			t.Errorf("%s: %v, want %v", name, value, want)
		}
	}
	if len(got) > before+3 {
		t.Errorf("%d series, before %d", len(got), before)
	}
}
