package browser

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/fleetui"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const shownApplication = `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: web, namespace: argocd}
spec:
  project: default
  source: {repoURL: "https://git.example.com/shop.git", path: web}
  destination: {server: "https://kubernetes.default.svc", namespace: shop}
status:
  health: {status: Healthy}
  sync: {status: Synced, revision: 4f2a9c1d0e3b5a7788990011223344556677aabb, comparedTo: {source: {repoURL: "https://git.example.com/shop.git", path: web}, destination: {server: "https://kubernetes.default.svc", namespace: shop}}}
  resources: []
  history: []
  summary: {}
`

const permission = `
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-rbac-cm, namespace: argocd, labels: {app.kubernetes.io/part-of: argocd}}
data: {policy.csv: "p, role:admin, extensions, invoke, argocd-agent, allow"}
`

// cache writes what the application controller of a workload cluster writes into Redis.
func cache(t *testing.T, address, password, key, value string) {
	t.Helper()
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = w.Write([]byte(value))
	_ = w.Close()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, request := range [][]string{{"AUTH", password}, {"SET", key, compressed.String()}} {
		fmt.Fprintf(conn, "*%d\r\n", len(request))
		for _, word := range request {
			fmt.Fprintf(conn, "$%d\r\n%s\r\n", len(word), word)
		}
		if line, err := in.ReadString('\n'); err != nil || line != "+OK\r\n" {
			t.Fatalf("%s: %q, %v", request[0], line, err)
		}
	}
}

// The lab builds Argo CD without its web UI.
func withUI(t *testing.T) {
	t.Helper()
	given := os.Getenv("ARGOCD_AGENT_LAB_ARGOCD")
	if given == "" {
		t.Skip("the Argo CD of the lab has no web UI: run with ARGOCD=<directory> of one that has")
	}
	binary, err := os.ReadFile(filepath.Join(given, "argocd"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(binary, []byte("dist/app/main.")) {
		t.Skipf("the Argo CD in %s has no web UI", given)
	}
}

// The extension in the web UI of a real argocd-server, which forwards its requests.
func TestArgoCD_ShowsExtension(t *testing.T) {
	withUI(t)
	t.Chdir(root) // where the lab finds its tools
	l := lab.New(t, lab.Options{Spokes: []lab.Spoke{}})
	proxied := make(chan http.Header, 100)
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/application" {
			http.NotFound(w, r)
			return
		}
		proxied <- r.Header.Clone()
		write(w, row{"application": application("w1", "web"), "agent": held("w1")})
	}))
	t.Cleanup(backend.Close)
	s := small(t)
	s.token, s.about["login"], s.about["argocd"], s.origin = "right", "token", "", "https://"+l.ArgoCD.Address

	// argocd-server reads extensions only from this directory.
	folder := "/tmp/extensions/argocd-agent-test"
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.WriteFile(folder+"/extension-argocd-agent.js", fleetui.Extension(s.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, _ := json.Marshal(row{"data": row{"extension.config": "extensions: [{name: argocd-agent, backend: {services: [{url: \"" + backend.URL + "\"}]}}]"}})
	if _, err := l.Hub().Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("argocd").Patch(t.Context(), "argocd-cm", types.MergePatchType, settings, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Hub().Apply(t.Context(), shownApplication); err != nil {
		t.Fatal(err)
	}
	redis := l.Hub().Redis
	cache(t, redis.Address, redis.Password, "app|resources-tree|web|1.8.3.gz", `{"nodes": []}`)
	cache(t, redis.Address, redis.Password, "app|managed-resources|web|1.8.3.gz", `[]`)
	if err := l.Restart(t.Context(), "hub/argocd-server", lab.Flag("--enable-proxy-extension", "true")); err != nil {
		t.Fatal(err)
	}

	b := open(t, "about:blank")
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
		return err
	})
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, network.SetCookie, network.SetCookieParams{Name: "argocd.token", Value: l.ArgoCD.Token, URL: "https://" + l.ArgoCD.Address})
		return err
	})
	b.run(chromedp.Navigate(fmt.Sprintf("https://%s/applications/argocd/web?node=%s", l.ArgoCD.Address, "argoproj.io%2FApplication%2Fargocd%2Fweb%2F0")))
	b.press("AGENT")                                           // as the styles show it
	b.sees("p, ROLE, extensions, invoke, argocd-agent, allow") // no role has this right by default
	if err := l.Hub().Apply(t.Context(), permission); err != nil {
		t.Fatal(err)
	}
	b.sees("Agent w1, managed", "Confirmation required: 42 deletions of application", "argocd-agentctl pending confirm 5f2c9b0e7d1a4c33")
	if one := <-proxied; one.Get("Argocd-Application-Name") != "argocd:web" || one.Get("Argocd-Project-Name") != "default" || one.Get("Argocd-Username") != "admin" {
		t.Errorf("argocd-server forwards %v", one)
	}
	b.do("document.querySelectorAll('.Toastify').forEach((e) => { e.style.display = 'none' })") // the repository does not exist
	b.capture("argocd-tab.png")

	b.run(chromedp.Navigate("https://" + l.ArgoCD.Address + "/fleet"))
	b.fill("input[type=password]", "right")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("6\nagents")
	b.names("d-held b-lost c-diverged a-fine e-new f-degraded")
	b.capture("argocd-fleet.png")
}
