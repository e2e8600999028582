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
	for _, g := range []struct {
		name, help string
		value      float64
	}{
		{"redis_clients", "Clients of the Redis proxy.", float64(s.Clients)},
		{"redis_subscriptions", "Subscriptions at agents' Redis.", float64(s.Subscriptions)},
		{"redis_cache_entries", "Cached resource trees of agents.", float64(s.CacheEntries)},
		{"redis_cache_bytes", "Size of the cached resource trees in bytes.", float64(s.CacheBytes)},
	} {
		out = append(out, observe.Gauge(metricPrefix+"_"+g.name, g.help, g.value))
	}
	for _, c := range []struct {
		name, help string
		value      int64
	}{
		{"redis_clients_refused_total", "Clients refused because the limit was reached.", s.Refused},
		{"redis_agent_requests_total", "Requests to agents' Redis.", s.Asked},
		{"redis_cache_hits_total", "Requests answered from the cache.", s.Hits},
		{"redis_stale_total", "Requests answered with the last known value because the agent did not respond.", s.Stale},
		{"redis_messages_total", "Change notifications received from agents' Redis.", s.Messages},
	} {
		out = append(out, observe.Counter(metricPrefix+"_"+c.name, c.help, float64(c.value)))
	}
	return out
}
