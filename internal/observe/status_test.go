package observe

import (
	"context"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestSyncMetrics_OfAgents(t *testing.T) {
	agents := map[string]engine.Status{"a": {Connected: true, UnexpectedMessages: 2, StoreHoldID: "store-1", RemoteHolds: []engine.Held{{Scope: "applications", Count: 7}, {Scope: "projects", Count: 1}}, Scopes: []engine.ScopeStatus{
		{Name: "applications", Role: engine.Owner, Items: 5, Dirty: 1, InFlight: 2, Bytes: 300, OldestAt: 4000, Rejected: 1, InSyncAt: 2000},
		{Name: "status", Role: engine.Replica, Items: 4, Held: 3, Diverged: 2, Lossy: 5},
	}}, "b": {RemoteHolds: []engine.Held{{ID: "store-2"}}}, "c": {}}
	_, body := get(t, Metrics(MetricsConfig{Prefix: "x", Gather: func(context.Context) ([]Metric, error) { return SyncMetrics("x", agents, 10000), nil }}), "/metrics")
	for _, want := range []string{
		`x_connected{agent="a"} 1`,
		`x_store_untrusted{agent="a"} 1`,
		`x_store_untrusted{agent="b"} 1`,
		`x_store_untrusted{agent="c"} 0`,
		`x_unexpected_messages_total{agent="a"} 2`,
		`x_items{agent="a",role="owner",scope="applications"} 5`,
		`x_dirty_items{agent="a",role="owner",scope="applications"} 1`,
		`x_unacked_items{agent="a",role="owner",scope="applications"} 2`,
		`x_unacked_bytes{agent="a",role="owner",scope="applications"} 300`,
		`x_oldest_unacked_seconds{agent="a",role="owner",scope="applications"} 6`,
		`x_rejected_items{agent="a",role="owner",scope="applications"} 1`,
		`x_last_in_sync_age_seconds{agent="a",role="owner",scope="applications"} 8`,
		`x_held_deletions{agent="a",role="owner",scope="applications"} 7`,
		`x_held_deletions{agent="a",role="replica",scope="status"} 3`,
		`x_divergent_items{agent="a",role="replica",scope="status"} 2`,
		`x_lossy_items{agent="a",role="replica",scope="status"} 5`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("there is no %s in:\n%s", want, body)
		}
	}
	if strings.Contains(body, `x_last_in_sync_age_seconds{agent="a",scope="status"`) {
		t.Error("an age of what was never proven")
	}
}

func TestWriteMetrics_HaveAllNames(t *testing.T) {
	_, body := get(t, Metrics(MetricsConfig{Prefix: "x", Gather: func(context.Context) ([]Metric, error) { return WriteMetrics("x", 7, 1, 12, true), nil }}), "/metrics")
	for _, want := range []string{"x_api_write_outage 1", "x_api_writes_limit 1", "x_api_writes_waiting 7", "x_api_writes_unavailable_total 12"} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("there is no %s in:\n%s", want, body)
		}
	}
}
