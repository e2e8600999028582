package principal

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
)

// The active hub renewed the certificate of an agent, and was lost before the standby received the record.
func TestPrincipal_PromotedHubRenewsCertificateOfPreviousHub(t *testing.T) {
	for name, test := range map[string]struct {
		predecessor engine.Store
		renews      bool
	}{
		"promoted": {engine.Store{UID: "lost-hub", Revision: 7}, true},
		"rebuilt":  {engine.Store{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := &replicated{t: t, api: newMemoryAPI(t)}
			cfg := h.config("first")
			t.Cleanup(func() { _ = cfg.Listener.Close() })
			cfg.Issue, cfg.PKINamespace = &issue.Config{}, "argocd"
			client, err := kube.NewClient(cfg.Cluster)
			if err != nil {
				t.Fatal(err)
			}
			clock := time.Now().Add(-time.Hour)
			secrets := &pki.FakeSecrets{}
			manager := &pki.Manager{Secrets: secrets, Now: func() time.Time { return clock }}
			if _, _, err := manager.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			ca, err := secrets.Get(t.Context(), pki.AuthoritySecret)
			if err != nil {
				t.Fatal(err)
			}
			data := map[string]any{}
			for key, value := range ca.Data {
				data[key] = base64.StdEncoding.EncodeToString(value)
			}
			h.api.put("/api/v1/namespaces/argocd/secrets/"+ca.Name, map[string]any{"apiVersion": "v1", "kind": "Secret", "data": data,
				"metadata": map[string]any{"name": ca.Name, "namespace": "argocd"}})
			certificate := func() pki.Issued {
				t.Helper()
				clock = clock.Add(time.Minute)
				issued, err := manager.Client(t.Context(), "w1")
				if err != nil {
					t.Fatal(err)
				}
				return issued
			}
			received, err := pki.EntryOf(certificate().Cert)
			if err != nil {
				t.Fatal(err)
			}
			h.api.put(agentPath+"w1", map[string]any{"apiVersion": v1alpha1.Group + "/" + v1alpha1.Version, "kind": v1alpha1.Kind, "spec": map[string]any{"mode": "managed"},
				"metadata": map[string]any{"name": "w1", "namespace": "argocd", "annotations": map[string]any{v1alpha1.IssuedAnnotation: pki.Record(nil).Joined(received).String()}}})
			certs, err := pki.Certificates(certificate().Cert)
			if err != nil {
				t.Fatal(err)
			}
			newest := pki.Describe(certs[0]).Fingerprint

			state := hubstate.State{Identity: "group-1", Role: hubstate.Active, Generation: 2, Predecessor: test.predecessor}
			p := assemble(t.Context(), cfg, client, hub{clusterUID: "hub-2", state: state}, func(error) {})
			request, _, err := pki.NewRequest("w1", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = p.issuer.Renew(t.Context(), enroll.RenewRequest{Agent: "w1", Fingerprint: newest, Certificate: certs[0], Request: request, KeyStored: true, Clock: time.Now()})
			annotations, _ := h.api.get(agentPath + "w1")["metadata"].(map[string]any)["annotations"].(map[string]any)
			text, _ := annotations[v1alpha1.IssuedAnnotation].(string)
			if record := pki.ParseRecord(text); (err == nil) != test.renews || record.Contains(newest) != test.renews {
				t.Errorf("%v, recorded %v", err, record)
			}
		})
	}
}
