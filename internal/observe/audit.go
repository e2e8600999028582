package observe

import (
	"maps"
	"slices"
)

// AuditMetrics returns the metrics of the audit log.
func AuditMetrics(prefix string, written, full, failed uint64) []Metric {
	return []Metric{
		Counter(prefix+"_audit_lines_total", "Lines of the audit log that were written.", float64(written)),
		{Name: prefix + "_audit_lines_lost_total", Help: "Lost lines of the audit log, by reason: the queue was full (queue), or the target did not accept them (target).", Counter: true,
			Samples: []Sample{{Labels: []string{"reason", "queue"}, Value: float64(full)}, {Labels: []string{"reason", "target"}, Value: float64(failed)}}},
	}
}

// AuditLossMetric returns the lost lines of the hub's audit log by agent.
func AuditLossMetric(prefix string, lost map[string]uint64) Metric {
	m := Metric{Name: prefix + "_audit_agent_lines_lost_total", Help: "Lost lines of the audit log, by agent. Lines without an agent have an empty label. Absent for an agent that lost none.", Counter: true,
		Samples: []Sample{{Labels: []string{"agent", ""}, Value: float64(lost[""])}}}
	for _, agent := range slices.Sorted(maps.Keys(lost)) {
		if agent == "" {
			continue
		}
		m.Samples = append(m.Samples, Sample{Labels: []string{"agent", agent}, Value: float64(lost[agent])})
	}
	return m
}
