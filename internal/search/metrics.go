package search

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests. Labels have few values: paths of the API and classes of codes.
type metrics struct {
	requests *prometheus.CounterVec
	latency  prometheus.Histogram
	streams  *prometheus.GaugeVec
	limited  prometheus.Counter
}

func newMetrics(prefix string) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "_search_requests_total",
			Help: "Requests to the search API that ended, by path (other if there is no such path) and class of the HTTP code."}, []string{"path", "code"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "_search_request_seconds",
			Help: "Duration of requests to the search API, without watches and streams.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 10)}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: prefix + "_search_streams",
			Help: "Open watches and streams of the search API, by path."}, []string{"path"}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "_search_limited_total",
			Help: "Requests to the search API that were refused because their user or all users had too many at the same time."}),
	}
	for path, r := range routes {
		m.requests.WithLabelValues(path, "2xx") // so that the metric exists before the first request
		if r.stream != nil {
			m.streams.WithLabelValues(path)
		}
	}
	return m
}

// start counts a request to a route. The returned function must be called at its end.
func (m *metrics) start(w http.ResponseWriter, key string) (http.ResponseWriter, func()) {
	began, answer, stream := time.Now(), &codeWriter{ResponseWriter: w, code: http.StatusOK}, routes[key].stream != nil
	if key == "" {
		key = "other"
	}
	if stream {
		m.streams.WithLabelValues(key).Inc()
	}
	return answer, func() {
		m.requests.WithLabelValues(key, fmt.Sprintf("%dxx", answer.code/100)).Inc()
		if answer.code == http.StatusTooManyRequests {
			m.limited.Inc()
		}
		if stream {
			m.streams.WithLabelValues(key).Dec()
		} else {
			m.latency.Observe(time.Since(began).Seconds())
		}
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, one := range []prometheus.Collector{m.requests, m.latency, m.streams, m.limited} {
		one.Collect(ch)
	}
}

// codeWriter remembers the status of a response.
type codeWriter struct {
	http.ResponseWriter
	code int
}

func (w *codeWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap serves http.ResponseController.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
