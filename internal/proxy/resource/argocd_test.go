package resource

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// register makes the cluster Secret by which the hub's Argo CD knows the cluster behind the stage.
func (s *labStage) register(t *testing.T, name string) {
	t.Helper()
	cert, key := keyPair(t, s.ca.issue(t, "w1"))
	encode := base64.StdEncoding.EncodeToString
	secrets := s.lab.Hub().Client().CoreV1().Secrets(lab.ArgoCDNamespace)
	_, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cluster-" + name, Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"},
			Annotations: map[string]string{"argocd.argoproj.io/skip-reconcile": "true"},
		},
		StringData: map[string]string{
			"name": name, "server": "https://" + s.address + "?agentName=" + name,
			"config": fmt.Sprintf(`{"tlsClientConfig":{"certData":%q,"keyData":%q,"caData":%q}}`, encode(cert), encode(key), encode(s.ca.pem())),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = secrets.Delete(context.Background(), "cluster-"+name, metav1.DeleteOptions{}) })
}

// createApplication asks the hub's Argo CD to create an Application; it looks at the destination before it does.
func (s *labStage) createApplication(t *testing.T, name, cluster string) (int, string) {
	t.Helper()
	client, err := s.lab.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"project":     "default",
			"source":      map[string]any{"repoURL": s.lab.RepoURL(gitserver.SamplePlain), "path": ".", "targetRevision": "main"},
			"destination": map[string]any{"name": cluster, "namespace": s.namespace},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	address := "https://" + s.lab.ArgoCD.Address + "/api/v1/applications"
	send := func(ctx context.Context, method, address string, body io.Reader) (int, string) {
		request, err := http.NewRequestWithContext(ctx, method, address, body)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	t.Cleanup(func() { send(context.Background(), http.MethodDelete, address+"/"+name+"?cascade=false", nil) })
	return send(t.Context(), http.MethodPost, address, strings.NewReader(string(body)))
}

func TestHub_ArgoCDCreatesApplicationsForADisconnectedAgent(t *testing.T) {
	s := newLabStage(t, "argocd", options{})
	if err := s.hub.PrefetchDiscovery(t.Context(), "w1"); err != nil { // as happens when an agent connects
		t.Fatal(err)
	}
	s.register(t, "resource-proxy")
	s.leave(&NotConnectedError{Agent: "w1", Since: time.Now()})
	if code, text := s.createApplication(t, "resource-proxy-away", "resource-proxy"); code != http.StatusOK {
		t.Errorf("away: %d: %s", code, text)
	}
	s.mu.Lock()
	s.away = nil
	asked, remembered := len(s.outcomes), 0
	for _, o := range s.outcomes {
		if o.FromCache {
			remembered++
		}
	}
	s.mu.Unlock()
	if remembered == 0 || remembered != asked {
		t.Errorf("of %d questions %d were answered from copies", asked, remembered)
	}
	if code, text := s.createApplication(t, "resource-proxy-back", "resource-proxy"); code != http.StatusOK {
		t.Errorf("back: %d: %s", code, text)
	}
}
