package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// live has the addresses of live access.
type live struct {
	resources string // host:port of the resource proxy
	redis     string // host:port of the Redis proxy. Empty in a lab without Argo CD
}

// accessSecret has the client certificate of Argo CD for the resource proxy.
const accessSecret = "argocd-agent-resource-proxy-client"

// liveOfPrincipal prepares live access on the hub and returns the flags of the principal.
func (w *testEnv) liveOfPrincipal(t testing.TB) []string {
	t.Helper()
	port := w.freePort(t)
	w.live.resources = "127.0.0.1:" + port
	proxy := w.pki.forADay(t, "resource-proxy")
	w.storeAccess(t)
	flags := []string{"--resource-proxy-port", port, "--resource-proxy-address", w.live.resources, "--resource-proxy-cert-path", proxy.cert,
		"--resource-proxy-key-path", proxy.key, "--resource-proxy-ca-path", w.pki.file, "--self-registration-client-cert-secret", accessSecret}
	if w.hub.Redis.Address == "" {
		return append(flags, "--redis-proxy-port", "0")
	}
	port = w.freePort(t)
	w.live.redis = "127.0.0.1:" + port
	return append(flags, "--redis-proxy-port", port, "--redis-server-address", w.hub.Redis.Address, "--redis-password", w.hub.Redis.Password)
}

func liveOfAgent(s *clusterClient) []string {
	if s.Redis.Address == "" {
		return []string{"--enable-resource-proxy=false"}
	}
	return []string{"--redis-addr", s.Redis.Address, "--redis-password", s.Redis.Password}
}

// storeAccess stores a client certificate on the hub, for the cluster Secrets of the principal.
func (w *testEnv) storeAccess(t testing.TB) {
	t.Helper()
	argocd := w.pki.forADay(t, "argocd-server")
	data := map[string]any{}
	for key, file := range map[string]string{"tls.crt": argocd.cert, "tls.key": argocd.key, "ca.crt": w.pki.file} {
		data[key] = base64.StdEncoding.EncodeToString(readFile(t, file))
	}
	secret := w.hub.secret(accessSecret)
	if secret.get(t) == nil {
		if err := secret.tryCreate(map[string]any{"apiVersion": "v1", "kind": "Secret", "data": data}); err != nil {
			t.Fatal(err)
		}
		return
	}
	secret.patch(t, `{"data":`+string(toJSON(t, data))+`}`)
}

// livePermissions grants an agent the permissions for live access, from the install manifests.
func livePermissions(t testing.TB, c *lab.Cluster) {
	t.Helper()
	files, err := filepath.Glob("../../install/kustomize/agent/rbac-live-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no rights for live access: %v", err)
	}
	for _, file := range files {
		if err := c.Apply(t.Context(), string(readFile(t, file))); err != nil {
			t.Fatal(err)
		}
	}
}

// serveArgoCD configures the hub's argocd-server to use the Redis proxy. The first shell in its list exists in no pod.
func (w *testEnv) serveArgoCD(t testing.TB, changes ...lab.Change) {
	t.Helper()
	w.hub.configMap("argocd-cm").patch(t, `{"data":{"exec.shells":"no-such-shell,sh,bash"}}`)
	if err := w.Restart(t.Context(), "hub/argocd-server", append(changes, lab.Flag("--redis", w.live.redis))...); err != nil {
		t.Fatal(err)
	}
}

// kubeconfig returns a kubeconfig for kubectl through the hub, with a certificate for a name.
func (w *testEnv) kubeconfig(t testing.TB, name string) string {
	t.Helper()
	authority := *w.pki
	authority.folder, authority.serial = t.TempDir(), authority.serial+1000 // keep the certificate of the agent
	cert := authority.forProxy(t, name)
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: hub,
clusters: [{name: hub, cluster: {server: "https://%s", certificate-authority: %s}}],
users: [{name: hub, user: {client-certificate: %s, client-key: %s}}],
contexts: [{name: hub, context: {cluster: hub, user: hub}}]}`, w.live.resources, w.pki.file, cert.cert, cert.key)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// throughHub runs kubectl with a kubeconfig for the principal.
func (w *testEnv) throughHub(t testing.TB, kubeconfig string, args ...string) string {
	t.Helper()
	out, err := w.hubCommand(t, kubeconfig, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *testEnv) hubCommand(t testing.TB, kubeconfig string, args ...string) *exec.Cmd {
	t.Helper()
	return w.Command(t.Context(), "kubectl", append([]string{"--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(filepath.Dir(kubeconfig), "cache")}, args...)...)
}

func readFile(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func toJSON(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// liveEnv returns an environment for one test, with an argocd-server that uses the Redis proxy.
func liveEnv(t *testing.T) *testEnv {
	t.Helper()
	open := func() *lab.Lab { return lab.New(t, lab.Options{}) }
	if os.Getenv(lab.DirVariable) != "" { // a developer repeats one test
		open = func() *lab.Lab { return lab.Get(t) }
	}
	w := newEnv(t, setup{lab: open(), agents: []agentSetup{
		{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	for _, a := range w.agents {
		livePermissions(t, a.spoke.Cluster)
	}
	w.start(t)
	w.serveArgoCD(t)
	return w
}
