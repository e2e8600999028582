package principal

import (
	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// metrics tells what the proxies do.
func (l *live) metrics() []observe.Metric {
	var out []observe.Metric
	if l.hub != nil {
		out = append(out, observe.ProxyMetrics(metricPrefix, l.tally.Each)...)
		total, answers := l.tally.FirstBytes()
		out = append(out,
			observe.Gauge(metricPrefix+"_proxy_requests_active", "Requests to agents' clusters that are under way, streams included.", float64(l.hub.Active())),
			observe.Counter(metricPrefix+"_proxy_first_byte_seconds_total", "Time to the first bytes of answers from agents' clusters, all together.", total.Seconds()),
			observe.Counter(metricPrefix+"_proxy_answers_total", "Answers from agents' clusters.", float64(answers)),
			observe.Counter(metricPrefix+"_proxy_remembered_total", "Requests that were answered from the last known copy, because the agent was away.", float64(l.tally.Remembered())))
		out = append(out, l.hopped.metrics()...)
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
		{"redis_cache_entries", "Resource trees of agents that are kept.", float64(s.CacheEntries)},
		{"redis_cache_bytes", "Bytes of those.", float64(s.CacheBytes)},
	} {
		out = append(out, observe.Gauge(metricPrefix+"_"+g.name, g.help, g.value))
	}
	for _, c := range []struct {
		name, help string
		value      int64
	}{
		{"redis_clients_refused_total", "Clients that were refused because there were too many.", s.Refused},
		{"redis_asked_total", "Questions to agents' Redis.", s.Asked},
		{"redis_cache_hits_total", "Questions that were answered without asking the agent.", s.Hits},
		{"redis_stale_total", "Questions that were answered with the last known value, because the agent did not answer.", s.Stale},
		{"redis_messages_total", "Changes of which agents' Redis told.", s.Messages},
	} {
		out = append(out, observe.Counter(metricPrefix+"_"+c.name, c.help, float64(c.value)))
	}
	return out
}
