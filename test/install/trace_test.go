package install

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/collector"
)

// traced starts a collector of traces and audit logs, and returns the values of the chart for it.
func traced(t testing.TB) (*collector.Collector, func(role string) string) {
	t.Helper()
	c, err := collector.Start(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, func(role string) string {
		return fmt.Sprintf("%[1]s.settings.otlp-address=%[2]s,%[1]s.settings.otlp-insecure=true,%[1]s.settings.audit-log=otlp", role, c.Address())
	}
}

// bothTrace checks that both components send traces.
func bothTrace(t testing.TB, c *collector.Collector) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, service := range []string{"argocd-agent-principal", "argocd-agent-agent"} {
		if _, err := c.Find(ctx, func(s collector.Span) bool { return s.Resource["service.name"] == service }); err != nil {
			t.Errorf("no traces come from %s", service)
		}
	}
}
