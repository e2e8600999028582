package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func TestStatusWriter_Metrics(t *testing.T) {
	skew := int64(-40)
	there, gone := openSession(1), openSession(1)
	there.skew, gone.open = &skew, false
	a := agent("a", 1, "managed")
	a.Annotations = map[string]string{v1alpha1.IssuedAnnotation: strings.Repeat("A", 64) + "/nonsense " + strings.Repeat("B", 64) + "/" + time.Unix(90_000, 0).UTC().Format(time.RFC3339)}
	known := NewRegistry(RegistryConfig{})
	known.objects["a"], known.objects["b"] = agentRecord{Agent: a}, agentRecord{Agent: agent("b", 2, "managed")}
	r := &StatusWriter{registry: known, sessions: map[string]sessionState{"a": *there, "b": *gone}}
	var got strings.Builder
	for _, m := range r.Metrics() {
		for _, s := range m.Samples {
			fmt.Fprintf(&got, "%s %v %g\n", strings.TrimPrefix(m.Name, metricPrefix), s.Labels, s.Value)
		}
	}
	if want := `_agent_info [agent a version v1 mode managed] 1
_connected_since_timestamp_seconds [agent a] 1000
_clock_skew_seconds [agent a] -40
_certificate_expiry_timestamp_seconds [agent a] 90000
`; got.String() != want {
		t.Errorf("%s, want\n%s", got.String(), want)
	}
	if got := lastExpiry(time.Time{}, nil); !got.IsZero() {
		t.Errorf("of nothing is known that it ends %s", got)
	}
}
