package observe

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestProbes_NameFailedChecks(t *testing.T) {
	var broken error
	h := Probes(Check{Name: "a", Run: func() error { return nil }}, Check{Name: "b", Run: func() error { return broken }})
	if code, body := get(t, h, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("ready: %d %q", code, body)
	}
	broken = errors.New("not connected")
	if code, body := get(t, h, "/healthz"); code != 503 || body != "b: not connected\n" {
		t.Errorf("not ready: %d %q", code, body)
	}
	if code, _ := get(t, h, "/livez"); code != 200 {
		t.Errorf("alive although not ready: %d", code)
	}
}

func TestProbes_WarningsDoNotMakeUnready(t *testing.T) {
	var broken error
	h := Probes(Check{Name: "a", Run: func() error { return broken }}, Check{Name: "b", WarnOnly: true, Run: func() error { return errors.New("full\nof it") }})
	for path, want := range map[string]string{"/healthz": "ok\nb: full of it\n", "/healthz?verbose": "ok a\nwarning b: full of it\n"} {
		if code, body := get(t, h, path); code != 200 || body != want {
			t.Errorf("ready, %s: %d %q", path, code, body)
		}
	}
	broken = errors.New("not connected")
	for path, want := range map[string]string{"/healthz": "a: not connected\nb: full of it\n", "/readyz?verbose": "bad a: not connected\nwarning b: full of it\n"} {
		if code, body := get(t, h, path); code != 503 || body != want {
			t.Errorf("not ready, %s: %d %q", path, code, body)
		}
	}
}

func TestMetrics_ServesGatheredMetricsAndCollectors(t *testing.T) {
	writes := NewWriteLatency("x")
	writes.Observe(0.002)
	h := Metrics(MetricsConfig{Prefix: "x", Version: "v1", Commit: "abc", Date: "today", Collectors: []prometheus.Collector{writes}, Gather: func(context.Context) ([]Metric, error) {
		return []Metric{
			{Name: "x_total", Help: "What x is.", Counter: true, Samples: []Sample{{Labels: []string{"agent", "a\"b\\c\nd", "x", "y"}, Value: 3}}},
			{Name: "y", Help: "What y is.", Samples: []Sample{{Value: 0.5}}},
			{Name: "z", Help: "What z is."},
		}, nil
	}})
	_, body := get(t, h, "/metrics")
	for _, want := range []string{
		"# HELP x_total What x is.\n# TYPE x_total counter\nx_total{agent=\"a\\\"b\\\\c\\nd\",x=\"y\"} 3\n",
		"# HELP y What y is.\n# TYPE y gauge\ny 0.5\n",
		"# TYPE x_api_write_seconds histogram\n", "x_api_write_seconds_bucket{le=\"0.0025\"} 1\n", "x_api_write_seconds_sum 0.002\n",
		"x_build_info{commit=\"abc\",date=\"today\",goversion=\"" + runtime.Version() + "\",version=\"v1\"} 1\n",
		"\ngo_goroutines ", "\ngo_gc_heap_live_bytes ", "\ngo_cpu_classes_gc_total_cpu_seconds_total ",
		"\nprocess_cpu_seconds_total ", "\nprocess_resident_memory_bytes ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	failing := Metrics(MetricsConfig{Prefix: "x", Gather: func(context.Context) ([]Metric, error) { return nil, errors.New("stopping") }})
	if code, body := get(t, failing, "/metrics"); code != 503 || !strings.Contains(body, "stopping") {
		t.Errorf("failing: %d %q", code, body)
	}
}
