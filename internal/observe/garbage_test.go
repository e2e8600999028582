package observe

import (
	"bufio"
	"io"
	"strconv"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// What a scrape allocates has to be collected, on a hub that is otherwise at rest.
func TestAScrapeMakesLittleGarbage(t *testing.T) {
	const agents, scopes = 200, 5
	statuses := map[string]engine.Status{}
	for i := range agents {
		s := engine.Status{Connected: true}
		for j := range scopes {
			s.Scopes = append(s.Scopes, engine.ScopeStatus{Name: "scope" + strconv.Itoa(j), Role: engine.Role(j % 2), Items: 10, InSyncAt: 1})
		}
		statuses["agent-"+strconv.Itoa(i)] = s
	}
	out := bufio.NewWriter(io.Discard)
	allocs := testing.AllocsPerRun(10, func() {
		for _, m := range SyncMetrics("x", statuses, 5000) {
			writeMetric(out, m)
		}
	})
	if most := float64(agents*(scopes+1) + 200); allocs > most { // its labels, for each agent and scope
		t.Errorf("%v allocations for %d agents, at most %v are needed", allocs, agents, most)
	}
}

func TestProcessTellsWhatItTakes(t *testing.T) {
	seen := map[string]float64{}
	for _, m := range ProcessMetrics() {
		seen[m.Name] = m.Samples[0].Value
	}
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total", "process_resident_memory_bytes"} {
		if seen[name] <= 0 {
			t.Errorf("%s is %v", name, seen[name])
		}
	}
}
