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

// A standby may replace an object of its own by one with the same content. Only an operation without a name is not content.
func TestSameContent_WithoutUnnamedOperation(t *testing.T) {
	command := func(name string) tree {
		return tree{"sync": tree{"revision": "r1"}, "info": []any{tree{"name": name, "value": "c1"}}}
	}
	for name, c := range map[string]struct {
		change func(tree)
		same   bool
	}{
		"nothing":            {func(tree) {}, true},
		"an annotation":      {func(t tree) { put(t, "n", "metadata", "annotations", "note") }, true},
		"a click":            {func(t tree) { t["operation"] = command(requestInfo) }, true},
		"a command":          {func(t tree) { t["operation"] = command("argocd-agent/command") }, false},
		"a mirrored command": {func(t tree) { t["operation"] = command("argocd-agent/mirror") }, false},
		"the spec":           {func(t tree) { put(t, "r2", "spec", "source", "targetRevision") }, false},
		"the status":         {func(t tree) { put(t, "Healthy", "status", "health", "status") }, false},
	} {
		own, copied := application("argocd", "web", "in-cluster", "r1"), application("argocd", "web", "in-cluster", "r1")
		c.change(own)
		if same := sameContent(parsed([]byte(text(own))), parsed([]byte(text(copied)))); same != c.same {
			t.Errorf("%s: same %t", name, same)
		}
	}
}
