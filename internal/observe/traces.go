package observe

// TraceMetrics returns the metrics of exported and dropped spans.
func TraceMetrics(prefix string, sent, full, refused uint64) []Metric {
	return []Metric{
		Counter(prefix+"_spans_sent_total", "Spans that the collector accepted.", float64(sent)),
		{Name: prefix + "_spans_dropped_total", Help: "Dropped spans, by reason: the queue was full (queue), or the collector was unreachable, slow or rejected them (collector).", Counter: true,
			Samples: []Sample{{Labels: []string{"reason", "queue"}, Value: float64(full)}, {Labels: []string{"reason", "collector"}, Value: float64(refused)}}},
	}
}
