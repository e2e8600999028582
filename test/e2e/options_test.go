package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestPrincipal_Options runs a principal with all optional features. It needs no Argo CD.
func TestPrincipal_Options(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true})
	manifest, err := os.ReadFile("../../install/kustomize/principal/rbac-namespace-create.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Hub().Apply(t.Context(), string(manifest)); err != nil {
		t.Fatal(err)
	}
	w := newEnv(t, setup{lab: l, flags: []string{"--enable-websocket", "--sync-repository-trust", "--sync-argocd-settings", "--share-unscoped-repositories",
		"--namespace-create-enable", "--namespace-create-pattern", "auto.*", "--namespace-create-labels", "made-by=principal"},
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	space := w.hub.object(namespaces, "", "autonomous")
	space.delete(t)
	space.goes(t)
	passed := w.autonomous().behindLoadBalancer(t)
	w.start(t)

	t.Run("one agent uses a WebSocket behind a TLS proxy, another connects directly", func(t *testing.T) {
		if passed.Load() == 0 { // there can be more than one: the principal was not ready yet
			t.Error("no WebSocket was opened")
		}
	})
	t.Run("a missing namespace of an agent is created", func(t *testing.T) {
		app := w.autonomous().spoke.app(lab.ArgoCDNamespace, "housed")
		app.create(t, simple("in-cluster"))
		w.hub.app("autonomous", "housed").becomes(t)
		space.is(t, label("made-by", "principal"))
	})
	t.Run("repositories without an AppProject are replicated", func(t *testing.T) {
		w.hub.secret("unscoped").create(t, secretOf("repository", map[string]string{"type": "git", "url": "https://git.example/all", "password": "secret"}))
		w.managed().spoke.secret("unscoped").becomes(t, field("data.password", base64.StdEncoding.EncodeToString([]byte("secret"))))
		w.autonomous().spoke.secret("unscoped").isAbsent(t)
	})
	t.Run("settings of Argo CD are replicated, and the spoke's own values return", func(t *testing.T) { settingsAreReplicated(t, w) })
	t.Run("certificates and host keys of repositories are replicated", func(t *testing.T) {
		for _, name := range []string{"argocd-tls-certs-cm", "argocd-ssh-known-hosts-cm"} {
			hub, spoke := w.hub.configMap(name), w.managed().spoke.configMap(name)
			if hub.get(t) == nil {
				hub.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{}})
			}
			hub.patch(t, `{"data":{"git":"one"}}`)
			spoke.becomes(t, field("data.git", "one"))
			hub.patch(t, `{"data":{"git":"two"}}`)
			spoke.becomes(t, field("data.git", "two"))
			if other := w.autonomous().spoke.configMap(name).get(t); other != nil && at(other, "data.git") != "" {
				t.Errorf("%s came to an autonomous spoke", name)
			}
		}
	})
}

// settingsAreReplicated checks that settings of the hub's argocd-cm replace those of a managed spoke, and that the spoke's own
// values return.
func settingsAreReplicated(t *testing.T, w *testEnv) {
	t.Helper()
	const name = "argocd-cm"
	hub, spoke := w.hub.configMap(name), w.managed().spoke.configMap(name)
	data := func(key, value string) condition {
		return func(u *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(u.Object, "data", key); got != value {
				return fmt.Errorf("%s is %q, not %q", key, got, value)
			}
			return nil
		}
	}
	if hub.get(t) == nil {
		hub.create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{}})
	}
	// The installation of Argo CD has some of these settings on both sides. The hub's win.
	const health = "resource.customizations.health.example.com_Thing"
	for _, of := range []object{spoke, w.autonomous().spoke.configMap(name)} {
		of.patch(t, `{"data":{"url":"https://spoke.example","`+health+`":"own","resource.inclusions":"mine"}}`)
	}
	hub.patch(t, `{"data":{"url":"https://hub.example","`+health+`":"hub","kustomize.buildOptions":"--enable-helm"}}`)
	spoke.becomes(t, data(health, "hub"), data("kustomize.buildOptions", "--enable-helm"))
	spoke.is(t, data("url", "https://spoke.example"), data("resource.inclusions", "mine"))
	w.autonomous().spoke.configMap(name).is(t, data(health, "own"))

	spoke.patch(t, `{"data":{"`+health+`":"edited here","resource.inclusions":"changed here"}}`)
	spoke.becomes(t, data(health, "hub"), data("resource.inclusions", "changed here"))
	hub.patch(t, `{"data":{"`+health+`":null}}`)
	spoke.becomes(t, data(health, "own"), data("kustomize.buildOptions", "--enable-helm"))

	// Without the kind, everything returns.
	hub.patch(t, `{"data":{"`+health+`":"hub"}}`)
	spoke.becomes(t, data(health, "hub"))
	w.hub.object(agents, lab.ArgoCDNamespace, "managed").patch(t, `{"spec":{"kinds":["applications","appprojects","repositories","gpgkeys"]}}`)
	after := spoke.becomes(t, data(health, "own"), data("kustomize.buildOptions", ""))
	for key := range after.GetAnnotations() {
		if strings.HasPrefix(key, "argocd-agent.argoproj-labs.io/") {
			t.Errorf("annotation %s stays", key)
		}
	}
	w.hub.object(agents, lab.ArgoCDNamespace, "managed").patch(t, `{"spec":{"kinds":null}}`)
	spoke.becomes(t, data(health, "hub"))
}

// behindLoadBalancer connects an agent through a proxy that terminates TLS with an unknown certificate and uses HTTP/1.1.
// It counts the requests.
func (a *agent) behindLoadBalancer(t testing.TB) *atomic.Int32 {
	t.Helper()
	var passed atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: a.link.Addr()})
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.StatusCode == http.StatusSwitchingProtocols {
			passed.Add(1)
		}
		return nil
	}
	balancer := httptest.NewTLSServer(proxy)
	t.Cleanup(balancer.Close)
	_, port, _ := strings.Cut(balancer.Listener.Addr().String(), ":")
	a.args = append(a.args, "--enable-websocket", "--server-port", port)
	return &passed
}

// TestRestoredAutonomousSpoke_DeletesNothingOnHub needs no Argo CD.
func TestRestoredAutonomousSpoke_DeletesNothingOnHub(t *testing.T) {
	t.Parallel()
	w := own(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "autonomous", Role: lab.Autonomous}}}),
		agents: []agentSetup{{name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	agent := w.autonomous()
	first, second := agent.spoke.app(lab.ArgoCDNamespace, "first"), agent.spoke.app(lab.ArgoCDNamespace, "second")
	first.create(t, simple("in-cluster"))
	w.hub.app("autonomous", "first").becomes(t)
	snapshot := t.TempDir() + "/spoke.db"
	if err := agent.spoke.Snapshot(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	second.create(t, simple("in-cluster"))
	for i := range 100 { // the snapshot is older
		first.patch(t, fmt.Sprintf(`{"metadata":{"labels":{"age":"%d"}}}`, i))
	}
	first.patch(t, `{"metadata":{"labels":{"age":"new"}}}`)
	w.hub.app("autonomous", "first").becomes(t, label("age", "new"))
	w.hub.app("autonomous", "second").becomes(t)

	mark, agentMark := w.principal.logOffset(t), agent.logOffset(t)
	if err := agent.spoke.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if code := agent.wait(t); code == 0 { // its state is invalid, and Kubernetes restarts it
		t.Errorf("it ended as if all were well")
	}
	agent.waitForLog(t, agentMark, "restored from a backup")
	agent.start(t)
	w.principal.waitForLog(t, mark, "Deletions held", "confirm=", "store-")
	agent.spoke.app(lab.ArgoCDNamespace, "third").create(t, simple("in-cluster")) // new objects are still replicated
	w.hub.app("autonomous", "third").becomes(t)
	w.hub.app("autonomous", "first").becomes(t, label("age", "new"), shows("AgentError", "updates wait")) // an older state replaces nothing
	w.hub.app("autonomous", "second").becomes(t, shows("AgentHeldWarning", "no longer has this Application"))

	confirmed := 0
	await(t, "what the spoke no longer has to leave the hub", func() error {
		held := heldLines(w.principal.logged(t)[mark:])
		store := w.principal.waitForLog(t, mark, "Deletions held", "confirm=", "store-")
		for lines := append([]string{store}, held...); confirmed < len(lines); confirmed++ {
			confirmFor(t, w, "autonomous", lines[confirmed])
		}
		return countIs(w.hub, "autonomous", 2, "", "")
	})
	w.hub.app("autonomous", "second").isAbsent(t)
	w.hub.app("autonomous", "first").becomes(t, label("age", ""), showsNo("AgentError")) // the confirmed state is replicated
}
