package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/observe"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Metrics returns the metrics of connected agents that the engine does not know.
func (r *StatusWriter) Metrics() []observe.Metric {
	gauge := func(name, help string) observe.Metric {
		return observe.Metric{Name: metricPrefix + name, Help: help}
	}
	info := gauge("_agent_info", "Always 1. The labels describe a connected agent.")
	since := gauge("_connected_since_timestamp_seconds", "Start time of the agent's session as a Unix timestamp.")
	skew := gauge("_clock_skew_seconds", "Offset of the agent's clock from the hub's at connect time. Negative if the agent's clock is behind.")
	expiry := gauge("_certificate_expiry_timestamp_seconds", "Expiry of the agent's newest known certificate as a Unix timestamp.")
	r.mu.Lock()
	sessions := maps.Clone(r.sessions)
	r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(sessions)) {
		t := sessions[name]
		if !t.open {
			continue
		}
		add := func(m *observe.Metric, value float64, labels ...string) {
			m.Samples = append(m.Samples, observe.Sample{Labels: append([]string{"agent", name}, labels...), Value: value})
		}
		rec, _, _, _ := r.registry.object(name)
		add(&info, 1, "version", text.Truncate(t.version, 128), "mode", rec.Spec.Mode)
		add(&since, float64(t.since.Unix()))
		if t.skew != nil {
			add(&skew, float64(*t.skew))
		}
		if until := lastExpiry(t.expires, rec.Annotations); !until.IsZero() {
			add(&expiry, float64(until.Unix()))
		}
	}
	return []observe.Metric{info, since, skew, expiry}
}

// lastExpiry returns when the newest certificate of an agent expires. It can be newer than the one of its connection.
func lastExpiry(connected time.Time, annotations map[string]string) time.Time {
	if last := pki.ParseRecord(annotations[issuedAnnotation]).LastExpiry(); last.After(connected) {
		return last
	}
	return connected
}
