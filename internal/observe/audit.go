package observe

// AuditMetrics returns the metrics of the audit log.
func AuditMetrics(prefix string, written, full, failed uint64) []Metric {
	return []Metric{
		Counter(prefix+"_audit_lines_total", "Lines of the audit log that were written.", float64(written)),
		{Name: prefix + "_audit_lines_lost_total", Help: "Lost lines of the audit log, by reason: the queue was full (queue), or the target did not accept them (target).", Counter: true,
			Samples: []Sample{{Labels: []string{"reason", "queue"}, Value: float64(full)}, {Labels: []string{"reason", "target"}, Value: float64(failed)}}},
	}
}
