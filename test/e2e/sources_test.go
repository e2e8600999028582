package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// ociRegistry runs an OCI registry with a chart in charts/oci. It returns its address for pushes, and its address with TLS
// for clients with a name and a password.
func (w *testEnv) ociRegistry(t *testing.T, user, password string) (address string) {
	t.Helper()
	path, err := exec.CommandContext(t.Context(), "../../hack/tool", "crane").Output()
	if err != nil {
		t.Fatalf("build the registry: %v", err)
	}
	plain := net.JoinHostPort("127.0.0.1", w.freePort(t))
	w.run(t, "registry", strings.TrimSpace(string(path)), []string{"HOME=" + t.TempDir()}, "registry", "serve", "--address", plain)
	await(t, "the registry", func() error { return healthy("http://" + plain + "/v2/") })

	chart := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml":               "{apiVersion: v2, name: oci, version: 1.2.3}\n",
		"values.yaml":              "greeting: default\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-oci}\ndata: {GREETING: \"{{ .Values.greeting }} of {{ .Chart.Version }}\"}\n",
	} {
		file := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	helm := func(args ...string) {
		t.Helper()
		ctx, cancel := call()
		defer cancel()
		if out, err := w.Command(ctx, "helm", args...).CombinedOutput(); err != nil {
			t.Fatalf("helm %s: %v\n%s", args[0], err, out)
		}
	}
	packed := t.TempDir()
	helm("package", chart, "--destination", packed)
	helm("push", filepath.Join(packed, "oci-1.2.3.tgz"), "oci://"+plain+"/charts", "--plain-http")

	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: plain})
	front := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if name, given, ok := r.BasicAuth(); !ok || name != user || given != password {
			rw.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			http.Error(rw, "unauthorized", http.StatusUnauthorized)
			return
		}
		forward.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	return front.Listener.Addr().String()
}

// A managed agent deploys a chart of an OCI registry with the credentials of the hub's repository Secret.
func TestHelm_ChartOfOCIRegistryOnManagedAgent(t *testing.T) {
	w := shared(t)
	registry := w.ociRegistry(t, "reader", "secret") + "/charts"
	name := "helm-oci-" + now()
	app, deployed := w.hub.app("managed", name), w.managed().spoke.object(configMaps, name, "from-oci")
	spec := appSpec{destination: "managed", namespace: name, automated: true, cascade: true}.object()
	if err := unstructured.SetNestedMap(spec, map[string]any{"repoURL": registry, "chart": "oci", "targetRevision": "1.2.3",
		"helm": map[string]any{"valuesObject": map[string]any{"greeting": "hello"}}}, "spec", "source"); err != nil {
		t.Fatal(err)
	}
	app.create(t, spec)
	app.becomes(t, func(u *unstructured.Unstructured) error { // without the Secret
		if text := string(toJSON(t, u.Object["status"])); !strings.Contains(text, "ComparisonError") {
			return errors.New(text)
		}
		return nil
	})

	secret := w.hub.secret(name)
	secret.create(t, secretOf("repository", map[string]string{"project": "default", "type": "helm", "name": name, "url": registry,
		"enableOCI": "true", "insecure": "true", "username": "reader", "password": "secret"}))
	w.managed().spoke.secret(name).becomes(t)
	app.patch(t, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"hard"}}}`)
	app.becomes(t, synced, noOperation, field("status.sync.revision", "1.2.3"))
	deployed.becomes(t, field("data.GREETING", "hello of 1.2.3"))

	secret.delete(t)
	w.managed().spoke.secret(name).goes(t)
	app.delete(t)
	deployed.goes(t)
}

const pluginConfig = `
apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: {name: %s}
spec:
  version: v1.0
  generate:
    command: [sh, -c]
    args:
      - |
        printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-plugin}\ndata: {GREETING: "%%s of %%s"}\n' "$(cat greeting.txt)" "$ARGOCD_ENV_TEAM"
`

// A config management plugin of the workload cluster generates the manifests of a managed Application. The hub does not
// have the plugin.
func TestPlugin_GeneratesManifestsOnManagedAgent(t *testing.T) {
	w := shared(t)
	name := "plugin-" + now()
	conf, work := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "plugin.yaml"), fmt.Appendf(nil, pluginConfig, name), 0o600); err != nil {
		t.Fatal(err)
	}
	// The repo-server of the lab finds the sockets of its plugins here.
	sockets := filepath.Join(filepath.Dir(w.managed().spoke.Kubeconfig), "argocd-conf", "plugins")
	w.runArgoCD(t, "argocd-cmp-server", []string{"HOME=" + work, "ARGOCD_PLUGINSOCKFILEPATH=" + sockets, "ARGOCD_CMP_WORKDIR=" + work}, "--config-dir-path="+conf)
	await(t, "the plugin", func() error {
		_, err := os.Stat(filepath.Join(sockets, name+"-v1.0.sock"))
		return err
	})

	repo, repoURL := w.repository(t, gitserver.SamplePlain)
	commit(t, repo, map[string]string{"greeting.txt": "hello"})
	app, deployed := w.hub.app("managed", name), w.managed().spoke.object(configMaps, name, "from-plugin")
	spec := appSpec{repo: repoURL, destination: "managed", namespace: name, automated: true, cascade: true}.object()
	if err := unstructured.SetNestedMap(spec, map[string]any{"name": name + "-v1.0", "env": []any{map[string]any{"name": "TEAM", "value": "blue"}}}, "spec", "source", "plugin"); err != nil {
		t.Fatal(err)
	}
	app.create(t, spec)
	app.becomes(t, synced, noOperation, phase("Succeeded"))
	deployed.becomes(t, field("data.GREETING", "hello of blue"))
	commit(t, repo, map[string]string{"greeting.txt": "goodbye"})
	w.argocd(t, "app", "get", "managed/"+name, "--refresh")
	deployed.becomes(t, field("data.GREETING", "goodbye of blue"))
	app.delete(t)
	deployed.goes(t)
}
