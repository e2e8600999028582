package principal

import (
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// No object of the hub arrives by two watches. Secrets are selected, because the principal must not read all of them. CRDs
// are selected by name, because of the permissions.
func TestRun_WatchesEachObjectOnce(t *testing.T) {
	t.Run("in all namespaces", func(t *testing.T) { watchesEachObjectOnce(t, nil) })
	t.Run("namespaced", func(t *testing.T) { watchesEachObjectOnce(t, []string{"w1", "w2"}) })
}

func watchesEachObjectOnce(t *testing.T, namespaces []string) {
	t.Helper()
	want := map[string]int{
		"/apis/argoproj.io/v1alpha1/applications":                                                                                       1,
		"/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects":                                                                      1,
		"/apis/argocd-agent.argoproj-labs.io/v1alpha1/namespaces/argocd/agents":                                                         1,
		"/apis/coordination.k8s.io/v1/namespaces/argocd/leases argocd-agent.argoproj-labs.io/replica":                                   1,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions metadata.name=applications.argoproj.io":                                1,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions metadata.name=appprojects.argoproj.io":                                 1,
		"/api/v1/namespaces/argocd/configmaps":                                                                                          1,
		"/api/v1/namespaces/argocd/secrets metadata.name=argocd-agent-ca":                                                               1,
		"/api/v1/namespaces/argocd/secrets argocd-agent.argoproj-labs.io/agent-name":                                                    1,
		"/api/v1/namespaces/argocd/secrets argocd.argoproj.io/secret-type in (repository,repo-creds,repository-write,repo-write-creds)": 1,
	}
	if len(namespaces) > 0 {
		delete(want, "/apis/argoproj.io/v1alpha1/applications")
	}
	for _, namespace := range namespaces {
		want["/apis/argoproj.io/v1alpha1/namespaces/"+namespace+"/applications"] = 1
	}
	h := &replicated{t: t, api: newMemoryAPI(t)}
	h.declare("w1")
	address := h.start("first", func(cfg *Config) {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Live.Resource, cfg.Live.ResourceTLS = listener, &tls.Config{MinVersion: tls.VersionTLS13,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("no client connects") }}
		cfg.ApplicationNamespaces = namespaces
		cfg.Secrets = map[string]func(map[string][]byte) error{"argocd-agent-ca": func(map[string][]byte) error { return nil }}
	})
	agent := h.call(address, "cluster-a", engine.Epoch{Incarnation: 5, Attempt: 1})
	eventually(t, "the agent is connected", func() bool { return agent.welcomed() && h.status("w1").Principal == "first" })
	watched := func() map[string]int {
		h.api.mu.Lock()
		defer h.api.mu.Unlock()
		return maps.Clone(h.api.watches)
	}
	eventually(t, "all resources are watched", func() bool { return len(watched()) >= len(want) })
	if got := watched(); !maps.Equal(got, want) {
		t.Errorf("watches:\n%v\nwant:\n%v", got, want)
	}
}
