package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// extensionSecret is known to argocd-server and to the principal.
const extensionSecret = "argocd-agent-extension"

// extensionOfPrincipal returns the flags of the principal, and the changes of argocd-server, for the UI extension.
func (w *testEnv) extensionOfPrincipal(t *testing.T) (flags []string, changes []lab.Change) {
	t.Helper()
	port := w.freePort(t)
	token := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("0123456789abcdef", 2) + "\n")) // argocd-server trims it
	secret := map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"token": token}}
	w.hub.secret(extensionSecret).create(t, secret)
	w.hub.secret(extensionSecret).patch(t, `{"metadata":{"labels":{"app.kubernetes.io/part-of":"argocd"}}}`)
	config := "services:\n- url: https://127.0.0.1:" + port + "\n  headers:\n  - name: Argocd-Agent-Extension\n    value: $" + extensionSecret + ":token\n"
	w.hub.configMap("argocd-cm").patch(t, `{"data":{"extension.config.argocd-agent":`+string(toJSON(t, config))+`}}`)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "ca.crt"), readFile(t, w.pki.file), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--search-port", port, "--search-extension-secret", extensionSecret},
		[]lab.Change{lab.Flag("--enable-proxy-extension", "true"), lab.Env("SSL_CERT_DIR", "/etc/ssl/certs:"+folder)}
}

// extension sends a request of the extension as the UI does, with the session of the user.
func (u *tenant) extension(t testing.TB, path, application, project string, headers ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+u.w.ArgoCD.Address+"/extensions/argocd-agent"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.AddCookie(&http.Cookie{Name: "argocd.token", Value: u.token})
	request.Header.Set("Argocd-Application-Name", application)
	request.Header.Set("Argocd-Project-Name", project)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client, err := u.w.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// extensionShowsItsOwn asks for Applications of both teams through the extension proxy of argocd-server.
func (u *tenant) extensionShowsItsOwn(t *testing.T) {
	t.Helper()
	refused := func(what string, path, application, project string, headers ...string) {
		t.Helper()
		code, body := u.extension(t, path, application, project, headers...)
		if code < 400 || code >= 500 || strings.Contains(body, "theirs") {
			t.Errorf("%s: %d %s", what, code, body)
		}
	}
	refused("without the right to call the extension", "/v1/application", "w1:mine", tenantProject)
	policy, _, _ := unstructured.NestedString(u.w.hub.configMap("argocd-rbac-cm").get(t).Object, "data", "policy.csv")
	// The extension proxy checks PROJECT/NAME, also for an Application outside of the Argo CD namespace.
	policy += "p, role:tenant, extensions, invoke, argocd-agent, allow\np, role:tenant, applications, get, " + tenantProject + "/*, allow\n"
	u.w.hub.configMap("argocd-rbac-cm").patch(t, `{"data":{"policy.csv":`+string(toJSON(t, policy))+`}}`)
	await(t, "its Application and the agent", func() error { // argocd-server reads the new policy after a moment
		code, body := u.extension(t, "/v1/application", "w1:mine", tenantProject)
		var got struct {
			Application struct{ Namespace, Name, Agent, Project string }
			Agent       struct {
				Name, Mode string
				Connected  bool
				Confirmed  int64
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		if got.Application.Name != "mine" || got.Application.Agent != "w1" || got.Agent.Name != "w1" || !got.Agent.Connected || got.Agent.Mode != "managed" || got.Agent.Confirmed == 0 {
			return fmt.Errorf("%s", body)
		}
		if strings.Contains(body, "theirs") || strings.Contains(body, "w2") {
			t.Fatalf("it shows another team: %s", body)
		}
		return nil
	})
	refused("an Application of another team", "/v1/application", "w2:theirs", neighborProject)
	refused("an Application of another team, with its own project", "/v1/application", "w2:theirs", tenantProject)
	refused("another Application in the query", "/v1/application?name=theirs&namespace=w2", "w1:mine", tenantProject)
	refused("all agents", "/v1/agents/stream", "w1:mine", tenantProject)
	refused("the timeline of another agent", "/v1/agents/w2/timeline", "w1:mine", tenantProject)
	for _, path := range []string{"/v1/applications?query=namespace%3Dw2", "/v1/applications", "/v1/counts?groupBy=agent"} {
		code, body := u.extension(t, path, "w1:mine", tenantProject, "Argocd-Agent-Extension", "mine", "Argocd-Username", "admin", "Argocd-User-Groups", "system:masters")
		if code != http.StatusOK || strings.Contains(body, "theirs") || strings.Contains(body, `"w2"`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}
