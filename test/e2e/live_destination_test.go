package e2e

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// liveByDestination tests live access with destination mapping, in the Argo CD namespace and in another.
func liveByDestination(t *testing.T, w *testEnv) {
	t.Helper()
	for _, a := range w.agents {
		livePermissions(t, a.spoke.Cluster)
	}
	w.serveArgoCD(t)
	t.Run("in Argo CD's namespace", func(t *testing.T) { allViews(t, destinedSubject(t, w, "east", lab.ArgoCDNamespace, "live")) })
	t.Run("in another namespace", func(t *testing.T) { allViews(t, destinedSubject(t, w, "west", "teams", "live")) })
}
