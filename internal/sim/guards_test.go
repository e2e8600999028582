package sim

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// A request that is on its way when the mode of an agent changes may still arrive. It is judged by the mode in which
// it was sent. What a process of the new mode sends is judged by the new one.
func TestGuards_ModeOfRequestDecides(t *testing.T) {
	for name, c := range map[string]struct {
		before, after kind.Mode
		source        string // of the replica that the agent creates
		bad           bool
	}{
		"managed":                         {kind.Managed, kind.Managed, "src-1", false},
		"managed, then autonomous":        {kind.Managed, kind.Autonomous, "src-1", false},
		"managed, and not for this agent": {kind.Managed, kind.Autonomous, "src-2", true},
		"autonomous":                      {kind.Autonomous, kind.Autonomous, "src-1", true},
		"autonomous, then managed":        {kind.Autonomous, kind.Managed, "src-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := newIdleWorld(t)
			w.ledger.note("src-1", "a", true)
			w.ledger.might["src-1/r1@a"] = true
			s.process.specs = map[string]uint64{}
			s.agent.Mode = c.before
			who := s.process.actor("apply application")
			s.agent.Mode = c.after
			app := application("argocd", "web", "in-cluster", "r1")
			put(app, tree{sourceKey: c.source, principalKey: principalUID}, "metadata", "annotations")
			if _, err := s.cluster.st.create(who, kind.Applications, encode(app)); err != nil {
				t.Fatal(err.message)
			}
			if (len(w.violations) > 0) != c.bad {
				t.Errorf("violations: %v", w.violations)
			}
		})
	}
}
