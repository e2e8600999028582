package observe

import (
	"context"
	"net/http"
	"regexp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// Metric is one family of samples, as of one moment.
type Metric struct {
	Name    string
	Help    string
	Counter bool // otherwise a gauge
	Samples []Sample
}

// Sample is a value with labels, as name, value, name, value.
type Sample struct {
	Labels []string
	Value  float64
}

// Counter returns a counter with one sample.
func Counter(name, help string, value float64) Metric {
	return Metric{Name: name, Help: help, Counter: true, Samples: []Sample{{Value: value}}}
}

// Gauge returns a gauge with one sample.
func Gauge(name, help string, value float64) Metric {
	return Metric{Name: name, Help: help, Samples: []Sample{{Value: value}}}
}

// MetricsConfig configures Metrics.
type MetricsConfig struct {
	Prefix  string
	Version string // of this build
	Commit  string // of this build
	Date    string // of the commit
	// Gather returns the metrics of state that exists elsewhere. It is called for each scrape, so that the series of a
	// removed agent end with it.
	Gather     func(context.Context) ([]Metric, error)
	Collectors []prometheus.Collector
}

// Metrics serves /metrics: Gather, the Collectors, build information, and the Go and process collectors.
func Metrics(cfg MetricsConfig) http.Handler {
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: cfg.Prefix + "_build_info", Help: "Always 1. The labels describe the build.",
		ConstLabels: prometheus.Labels{"version": cfg.Version, "commit": cfg.Commit, "date": cfg.Date, "goversion": runtime.Version()}})
	build.Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(build, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector(
		collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/(gc/heap/live:bytes|cpu/classes/gc/total:cpu-seconds)$`)})))
	registry.MustRegister(cfg.Collectors...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		metrics, err := cfg.Gather(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		promhttp.HandlerFor(prometheus.Gatherers{registry, gathered(metrics)}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
	return mux
}

// gathered implements prometheus.Gatherer. It builds the families directly, because descriptors for the hundred thousand
// samples of a large fleet would cost more than the samples.
type gathered []Metric

func (g gathered) Gather() ([]*dto.MetricFamily, error) {
	families := make([]*dto.MetricFamily, 0, len(g))
	for i := range g {
		m := &g[i]
		kind := dto.MetricType_GAUGE
		if m.Counter {
			kind = dto.MetricType_COUNTER
		}
		family := &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &kind, Metric: make([]*dto.Metric, 0, len(m.Samples))}
		for j := range m.Samples {
			s := &m.Samples[j]
			one := &dto.Metric{Label: make([]*dto.LabelPair, 0, len(s.Labels)/2)}
			for k := 0; k+1 < len(s.Labels); k += 2 {
				one.Label = append(one.Label, &dto.LabelPair{Name: &s.Labels[k], Value: &s.Labels[k+1]})
			}
			if m.Counter {
				one.Counter = &dto.Counter{Value: &s.Value}
			} else {
				one.Gauge = &dto.Gauge{Value: &s.Value}
			}
			family.Metric = append(family.Metric, one)
		}
		if len(family.Metric) > 0 {
			families = append(families, family)
		}
	}
	return families, nil
}

// NewWriteLatency returns a histogram of the duration of writes to the API server.
func NewWriteLatency(prefix string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "_api_write_seconds",
		Help: "Duration of writes to the API server.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 10)})
}
