package e2e

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// liveByDestination is live access where Applications are placed by their destination: in Argo CD's own namespace, and in
// another.
func liveByDestination(t *testing.T, w *testEnv) {
	t.Helper()
	for _, a := range w.agents {
		liveRights(t, a.spoke.Cluster)
	}
	w.serveArgoCD(t)
	t.Run("in Argo CD's namespace", func(t *testing.T) { everyView(t, destinedSubject(t, w, "east", lab.ArgoCDNamespace, "live")) })
	t.Run("in another namespace", func(t *testing.T) { everyView(t, destinedSubject(t, w, "west", "teams", "live")) })
}
