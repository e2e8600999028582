package live

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent/argocd-agent/internal/observe"
)

const metricPrefix = "argocd_agent_principal"

// Collectors returns the collectors of the proxies.
func (l *Live) Collectors() []prometheus.Collector {
	if l.requests == nil {
		return nil
	}
	return []prometheus.Collector{l.requests}
}

// Metrics returns the metrics of the proxies.
func (l *Live) Metrics() []observe.Metric {
	var out []observe.Metric
	if l.hub != nil {
		out = append(out, observe.Gauge(metricPrefix+"_proxy_requests_active", "Requests to agents' clusters in progress, including streams.", float64(l.hub.Active())))
		out = append(out, l.forwarder.Metrics()...)
	}
	if l.redis == nil {
		return out
	}
	s := l.redis.Stats()
	gauge := func(name, help string, value float64) {
		out = append(out, observe.Gauge(metricPrefix+"_redis_"+name, help, value))
	}
	counter := func(name, help string, value int64) {
		out = append(out, observe.Counter(metricPrefix+"_redis_"+name, help, float64(value)))
	}
	gauge("clients", "Clients of the Redis proxy.", float64(s.Clients))
	gauge("subscriptions", "Subscriptions at agents' Redis.", float64(s.Subscriptions))
	gauge("cache_entries", "Cached resource trees of agents.", float64(s.CacheEntries))
	gauge("cache_bytes", "Size of the cached resource trees in bytes.", float64(s.CacheBytes))
	counter("clients_refused_total", "Clients refused because the limit was reached.", s.Refused)
	counter("agent_requests_total", "Requests to agents' Redis.", s.Asked)
	counter("cache_hits_total", "Requests answered from the cache.", s.Hits)
	counter("stale_total", "Requests answered with the last known value because the agent did not respond.", s.Stale)
	counter("messages_total", "Change notifications received from agents' Redis.", s.Messages)
	return out
}
