package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// An AppProject shows objects that belong to no Application. The agent decides whether the hub can open and delete them.
func orphans(t *testing.T, w *testEnv) {
	t.Helper()
	s := managedSubject(t, w, "orphans")
	s.w.hub.project("default").patch(t, `{"spec":{"orphanedResources":{"warn":false}}}`)
	t.Cleanup(func() { s.w.hub.project("default").patch(t, `{"spec":{"orphanedResources":null}}`) })
	left := s.object(configMapKind, "left")
	left.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"left": "over"}})
	shown := func() {
		t.Helper()
		await(t, "the orphan in the resource tree", func() error {
			w.argocd(t, "app", "get", s.String(), "--refresh")
			if out := w.argocd(t, "app", "resources", s.String(), "--orphaned"); !strings.Contains(out, "left") {
				return fmt.Errorf("the orphans are %s", out)
			}
			return nil
		})
	}
	shown()
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if out, err := s.try(method, "/resource", s.query(configMapKind, s.workload, "left"), nil); err == nil || !strings.Contains(err.Error(), "it belongs to no known Application") {
			t.Errorf("%s of an orphan that the agent does not permit: %s, %v", method, out, err)
		}
	}

	before := w.managed().args
	t.Cleanup(func() {
		w.managed().args = before
		w.managed().restart(t)
		w.managed().connected(t)
	})
	w.managed().args = append(slices.Clone(before), "--resource-proxy-orphans")
	w.managed().restart(t)
	w.managed().connected(t)
	shown()
	await(t, "the orphan to open", func() error {
		out, err := s.try(http.MethodGet, "/resource", s.query(configMapKind, s.workload, "left"), nil)
		if err == nil && !strings.Contains(out, "over") {
			err = fmt.Errorf("it shows %s", out)
		}
		return err
	})
	s.ask(t, http.MethodDelete, "/resource", s.query(configMapKind, s.workload, "left"), nil)
	left.goes(t)
}
