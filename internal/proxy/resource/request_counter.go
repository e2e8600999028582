package resource

import (
	"cmp"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// RequestCounter is a collector of request metrics.
type RequestCounter struct {
	requests  *prometheus.CounterVec
	firstByte prometheus.Histogram
	cached    prometheus.Counter
}

// NewRequestCounter returns a counter whose metrics have a prefix.
func NewRequestCounter(prefix string) *RequestCounter {
	c := &RequestCounter{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "_proxy_requests_total",
			Help: "Requests for objects, logs and exec sessions, by verb (\"document\" for discovery), HTTP code (0 if the caller disconnected) and the setting that denied them."},
			[]string{"verb", "code", "refused_by"}),
		firstByte: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "_proxy_first_byte_seconds",
			Help: "Time until the first byte of a response.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)}),
		cached: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "_proxy_cached_responses_total",
			Help: "Requests answered from cached discovery because the agent was disconnected."}),
	}
	c.requests.WithLabelValues(verbGet, "200", "") // so that the metric exists before the first request
	return c
}

// Observe counts a request.
func (c *RequestCounter) Observe(r RequestResult) {
	c.requests.WithLabelValues(cmp.Or(r.Request.Verb, "document"), strconv.Itoa(r.Code), r.Setting).Inc()
	if r.FirstByte > 0 {
		c.firstByte.Observe(r.FirstByte.Seconds())
	}
	if r.FromCache {
		c.cached.Inc()
	}
}

// Describe implements prometheus.Collector.
func (c *RequestCounter) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c *RequestCounter) Collect(ch chan<- prometheus.Metric) {
	c.requests.Collect(ch)
	c.firstByte.Collect(ch)
	c.cached.Collect(ch)
}
