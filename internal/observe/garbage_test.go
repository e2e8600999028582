package observe

import (
	"strconv"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// The samples of a scrape are garbage afterwards, also on an idle hub.
func TestSyncMetrics_AllocatesLittle(t *testing.T) {
	const agents, scopes = 200, 5
	statuses := map[string]engine.Status{}
	for i := range agents {
		s := engine.Status{Connected: true}
		for j := range scopes {
			s.Scopes = append(s.Scopes, engine.ScopeStatus{Name: "scope" + strconv.Itoa(j), Role: engine.Role(j % 2), Items: 10, InSyncAt: 1})
		}
		statuses["agent-"+strconv.Itoa(i)] = s
	}
	allocs := testing.AllocsPerRun(10, func() {
		SyncMetrics("x", statuses, 5000)
	})
	if most := float64(agents*(scopes+1) + 200); allocs > most { // its labels, for each agent and scope
		t.Errorf("%v allocations for %d agents, at most %v are needed", allocs, agents, most)
	}
}
