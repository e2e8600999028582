package observe

// TraceMetrics tells what has become of spans: how many the collector has taken, how
// many found no room to wait for it, and how many it did not take.
func TraceMetrics(prefix string, sent, full, refused uint64) []Metric {
	return []Metric{
		Counter(prefix+"_spans_sent_total", "Spans of traces that the collector has taken.", float64(sent)),
		{Name: prefix + "_spans_dropped_total", Help: "Spans of traces that are lost: too many waited (queue), or the collector was away, too slow or did not want them (collector).", Counter: true,
			Samples: []Sample{{Labels: []string{"reason", "queue"}, Value: float64(full)}, {Labels: []string{"reason", "collector"}, Value: float64(refused)}}},
	}
}
