package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestRevoke_AllCertificatesOfAnAgent(t *testing.T) {
	hub := newCA(t)
	// config is that of a cluster Secret, with a certificate of this fingerprint.
	config := func(agent, token string) (config []byte, fingerprint string) {
		t.Helper()
		issued, err := hub.ProxyClient(t.Context(), agent)
		if err != nil {
			t.Fatal(err)
		}
		config, err = json.Marshal(map[string]any{"bearerToken": token, "tlsClientConfig": map[string][]byte{"certData": issued.Cert, "keyData": issued.Key, "caData": issued.Bundle}})
		if err != nil {
			t.Fatal(err)
		}
		certs, err := pki.Certificates(issued.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return config, identity.Fingerprint(certs[0])
	}
	own, forArgo := config("w1", "")
	shared, _ := config("w1", "token")
	others, _ := config("w2", "")
	seen, issued, connected, kubeconfig := strings.Repeat("A", 64), strings.Repeat("B", 64), strings.Repeat("C", 64), strings.Repeat("D", 64)
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	rec := agentRecord{Agent: agent("w1", 1, "managed", func(a *v1alpha1.Agent) {
		a.Status.Certificate = &v1alpha1.Certificate{Fingerprint: seen, Expires: &metav1.Time{Time: until}}
		a.Annotations = map[string]string{issuedAnnotation: issued + "/" + until.Format(time.RFC3339),
			v1alpha1.IssuedProxyAnnotation: kubeconfig + "/" + until.Format(time.RFC3339)}
	})}
	for title, test := range map[string]struct {
		config []byte
		made   bool
		want   []string
	}{
		"issued for it":    {own, true, []string{seen, issued, connected, kubeconfig, forArgo}},
		"in a user's own":  {own, false, []string{seen, issued, connected, kubeconfig}},
		"shared by all":    {shared, true, []string{seen, issued, connected, kubeconfig}},
		"another agent's":  {others, true, []string{seen, issued, connected, kubeconfig}},
		"no config at all": {[]byte("x"), true, []string{seen, issued, connected, kubeconfig}},
	} {
		annotations := map[string]string{}
		if test.made {
			annotations[createdByAnnotation] = "principal"
		}
		stored := parsed(t, map[string]any{"metadata": map[string]any{"name": "cluster-w1", "namespace": "argocd", "resourceVersion": "3",
			"labels": map[string]string{AgentLabel: "w1"}, "annotations": annotations}, "data": map[string][]byte{"config": test.config}})
		var patch struct{ Data map[string]*string }
		k := newReconcilerWithAPI(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.Method {
			case http.MethodPatch:
				body, _ := io.ReadAll(r.Body)
				if err := json.Unmarshal(body, &patch); err != nil {
					t.Error(err)
				}
				fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
			default:
				_, _ = w.Write(stored.Raw())
			}
		}, stored)
		k.cfg.Blocklist = readBlocklist(t, k.cfg.Client, listObject(t, revoke.ConfigMap, map[string]string{"old": "agent w0 was deleted on x; the certificate expires on 2020-01-01T00:00:00Z"}))
		k.cfg.Certificates = func(string) map[string]time.Time { return map[string]time.Time{connected: until, issued: {}} }
		if err := k.revoke(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		if old, there := patch.Data["old"]; !there || old != nil {
			t.Errorf("%s: what has expired is not dropped", title)
		}
		delete(patch.Data, "old")
		if patch.Data["proxy-clients.w1"] == nil {
			t.Errorf("%s: certificates of users are not revoked", title)
		}
		delete(patch.Data, "proxy-clients.w1")
		if got := slices.Sorted(maps.Keys(patch.Data)); !slices.Equal(got, slices.Sorted(slices.Values(test.want))) {
			t.Errorf("%s: revoked %q instead of %q", title, got, test.want)
		}
		for fingerprint, note := range patch.Data {
			if note == nil || !strings.Contains(*note, "; the certificate expires on ") || fingerprint != forArgo && !strings.HasSuffix(*note, until.Format(time.RFC3339)) {
				t.Errorf("%s: the entry of %s does not say when it expires", title, fingerprint)
			}
		}
	}
}

// An agent whose certificates cannot be revoked is not deleted. The status says what a user can do.
func TestReconcile_FullBlocklistHoldsDeletionAndIsReported(t *testing.T) {
	a := &archive{objects: map[string]any{definition: map[string]any{"metadata": map[string]any{"name": definition}}, "w1": version("u1", 5, true)}}
	k, _ := lagging(t, a)
	names := []string{revoke.ConfigMap}
	for i := range 16 {
		names = append(names, fmt.Sprintf("%s-%x", revoke.ConfigMap, i))
	}
	var full []*kind.Object
	for _, name := range names {
		full = append(full, listObject(t, name, map[string]string{fingerprintOf(name): strings.Repeat("x", 1<<20)}))
	}
	k.cfg.Blocklist = readBlocklist(t, k.cfg.Client, full...)
	if err := k.reconcile(t.Context(), "w1"); !errors.Is(err, revoke.ErrFull) || len(a.did) > 0 {
		t.Fatalf("%v, it did %q", err, a.did)
	}
	_, status, due := k.cfg.Status.due("w1")
	if !due {
		t.Fatal("the status is not written")
	}
	is(t, status, v1alpha1.ConditionRegistered, "False", "RevocationFailed: ", "argocd-agentctl blocklist tls list")
	k.cfg.Blocklist = readBlocklist(t, k.cfg.Client)
	if err := k.reconcile(t.Context(), "w1"); err != nil || !slices.Equal(a.did, []string{"POST configmaps", "PATCH w1"}) {
		t.Errorf("%v, it did %q after entries were removed", err, a.did)
	}
}

// newReconcilerWithAPI returns a Reconciler whose API server is a function and that has seen a Secret.
func newReconcilerWithAPI(t *testing.T, api http.HandlerFunc, secret *kind.Object) *Reconciler {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestRegistry(t)
	d.seeSecret(secret)
	return newTestReconciler(t, d, client)
}

func newTestReconciler(t *testing.T, d *testRegistry, client *kube.Client) *Reconciler {
	t.Helper()
	d.cfg.Client = client
	return NewReconciler(ReconcilerConfig{Client: client, Namespace: "argocd", JoinTokens: kube.Secrets{Client: client, Namespace: "argocd"}, Registry: d.Registry, Blocklist: readBlocklist(t, client), Status: newTestStatusWriter(d.Registry),
		Certificates: func(string) map[string]time.Time { return nil }, Deleted: func(v1alpha1.Agent) {}, Log: d.cfg.Log})
}

// readBlocklist returns a blocklist that has read these pages.
func readBlocklist(t *testing.T, client *kube.Client, pages ...*kind.Object) *revoke.Blocklist {
	t.Helper()
	b := revoke.New(client, "argocd", nil, slog.New(slog.DiscardHandler))
	if err := b.Sink(func([]string) {})(t.Context(), reconcile.List{Resource: kind.ConfigMaps, Objects: pages}); err != nil {
		t.Fatal(err)
	}
	return b
}

// newCA returns a CA with its Secrets in memory.
func newCA(t *testing.T) *pki.Manager {
	t.Helper()
	hub := &pki.Manager{Secrets: &pki.FakeSecrets{}}
	if _, _, err := hub.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return hub
}

// listObject is a ConfigMap of revoked certificates.
func listObject(t *testing.T, name string, data map[string]string) *kind.Object {
	t.Helper()
	return parsed(t, map[string]any{"metadata": map[string]any{"name": name, "namespace": "argocd", "resourceVersion": "1",
		"labels": map[string]string{kind.Prefix + "tls-blocklist": "continued"}}, "data": data})
}
