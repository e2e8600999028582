package e2e

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/argocd-agent/argocd-agent/lab"
)

// twoHubs is an active hub, a standby in another cluster, and agents that know the addresses of both. The hubs have the same
// CA and port, and different addresses.
type twoHubs struct {
	*testEnv
	second     *clusterClient
	standby    *program // principal of the second hub
	kubeconfig string   // with the contexts hub, second and lost
}

const (
	firstAddress  = "127.0.0.1"
	secondAddress = "127.0.0.2"
)

func newTwoHubs(t *testing.T) *twoHubs {
	t.Helper()
	w := newEnv(t, setup{lab: lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{
		{Name: "managed", Role: lab.Managed}, {Name: "autonomous", Role: lab.Autonomous}, {Name: "second", Role: lab.Managed}}}),
		agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	h := &twoHubs{testEnv: w, second: newSite(w.Cluster("second"))}
	h.kubeconfig = h.writeKubeconfig(t)
	crd, err := os.ReadFile("../../install/crds/agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.second.Apply(t.Context(), string(crd)); err != nil { // the lab installs it on its hub only
		t.Fatal(err)
	}
	for _, hub := range []*clusterClient{w.hub, h.second} {
		hub.secret("argocd-agent-ca").create(t, h.caSecret(t))
	}
	h.second.openDefaultProject(t)
	w.principal.args = h.principalArgs(t, w.hub.Kubeconfig, firstAddress, secondAddress)
	h.standby = newProgram(filepath.Base(w.folder)+"-second", w.logs(), h.principalArgs(t, h.second.Kubeconfig, secondAddress, firstAddress)...)
	t.Cleanup(func() { h.standby.signal(9) })
	for _, a := range w.agents {
		a.args = append(without(a.args, "--server-address", "--server-port"), "--server-address", firstAddress+","+secondAddress, "--server-port", w.port)
	}
	return h
}

func (h *twoHubs) principalArgs(t *testing.T, kubeconfig, address, other string) []string {
	t.Helper()
	tls := h.serverPair(t, address)
	return []string{"principal", "--kubeconfig", kubeconfig, "--namespace", lab.ArgoCDNamespace, "--listen-host", address, "--listen-port", h.port,
		"--tls-cert", tls.cert, "--tls-key", tls.key, "--root-ca-path", h.pki.file, "--active-hub-address", other + ":" + h.port,
		"--disconnected-after", "0s", "--namespace-create-enable", "--enable-resource-proxy=false", "--redis-proxy-port", "0", "--replica-name", "principal",
		"--healthz-port", h.freePort(t), "--metrics-port", "0", "--log-level", "debug"}
}

// serverPair returns a certificate for an address.
func (h *twoHubs) serverPair(t *testing.T, address string) pair {
	t.Helper()
	h.pki.serial++
	key := newKey(t)
	p := pair{cert: filepath.Join(h.folder, address+".crt"), key: filepath.Join(h.folder, address+".key")}
	h.pki.sign(t, &x509.Certificate{SerialNumber: big.NewInt(h.pki.serial), Subject: pkix.Name{CommonName: "principal"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(20 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.ParseIP(address)}}, h.pki.cert, key, p.cert)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, p.key, "EC PRIVATE KEY", der)
	return p
}

// caSecret is the CA of the test as the hubs store it.
func (h *twoHubs) caSecret(t *testing.T) map[string]any {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(h.pki.key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	cert := encode("CERTIFICATE", h.pki.cert.Raw)
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"data": map[string]any{"tls.crt": cert, "ca.crt": cert, "tls.key": encode("PRIVATE KEY", der)}}
}

func (h *twoHubs) writeKubeconfig(t *testing.T) string {
	t.Helper()
	all := api.NewConfig()
	for name, file := range map[string]string{"hub": h.hub.Kubeconfig, "second": h.second.Kubeconfig, "lost": h.hub.Kubeconfig} {
		one, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := one.Contexts[one.CurrentContext]
		cluster := one.Clusters[at.Cluster].DeepCopy()
		if name == "lost" {
			cluster.Server = "https://127.0.0.1:1"
		}
		all.Clusters[name], all.AuthInfos[name] = cluster, one.AuthInfos[at.AuthInfo]
		all.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	}
	file := filepath.Join(h.folder, "hubs.kubeconfig")
	if err := clientcmd.WriteToFile(*all, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// ctl runs argocd-agentctl hub.
func (h *twoHubs) ctl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	file, err := buildCLI()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, file, append([]string{"hub"}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + h.kubeconfig, "ARGOCD_AGENT_PRINCIPAL_NAMESPACE=" + lab.ArgoCDNamespace}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *twoHubs) mustCtl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := h.ctl(t, args...); err != nil {
		t.Fatalf("argocd-agentctl hub %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// received waits until a standby has received everything of another hub up to an object as it is now.
func received(t *testing.T, standby *clusterClient, last object) {
	t.Helper()
	revision, err := strconv.ParseUint(last.get(t).GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the standby to receive everything", func() error {
		u, err := standby.configMap("argocd-agent-hub").tryGet()
		if err != nil || u == nil {
			return errors.Join(errors.New("no state"), err)
		}
		text, _, _ := unstructured.NestedString(u.Object, "data", "predecessor")
		_, after, _ := strings.Cut(text, "/")
		if n, err := strconv.ParseUint(after, 10, 64); err != nil || n < revision {
			return fmt.Errorf("received %q, want %d", text, revision)
		}
		return nil
	})
}

// same waits until two objects have the same content.
func same(t *testing.T, a, b object) {
	t.Helper()
	await(t, b.String()+" to be equal", func() error {
		x, y := a.get(t), b.get(t)
		if x == nil || y == nil {
			return fmt.Errorf("exists: %v, %v", x != nil, y != nil)
		}
		want, got := map[string]any{}, map[string]any{}
		for u, out := range map[*unstructured.Unstructured]map[string]any{x: want, y: got} {
			maps.Copy(out, content(u))
			out["status"], out["type"] = u.Object["status"], u.Object["type"]
			if a.kind == agents {
				clusterUID, _, _ := unstructured.NestedString(u.Object, "status", "clusterUID")
				out["status"] = clusterUID
			}
		}
		if w, g := jsonOf(t, want), jsonOf(t, got); w != g {
			return fmt.Errorf("\nhas  %s\nwant %s", g, w)
		}
		return nil
	})
}

// execute is the application controller of a workload cluster: it runs the operation of an Application.
func execute(t *testing.T, app object) string {
	t.Helper()
	u := app.becomes(t, func(u *unstructured.Unstructured) error {
		if _, found, _ := unstructured.NestedMap(u.Object, "operation"); !found {
			return errors.New("no operation")
		}
		return nil
	})
	operation, _, _ := unstructured.NestedMap(u.Object, "operation")
	app.edit(t, func(u *unstructured.Unstructured) {
		delete(u.Object, "operation")
		now := time.Now().UTC().Format(time.RFC3339)
		_ = unstructured.SetNestedMap(u.Object, map[string]any{"phase": "Succeeded", "startedAt": now, "finishedAt": now, "operation": operation}, "status", "operationState")
	})
	return commandOf(operation)
}

func commandOf(operation map[string]any) string {
	entries, _, _ := unstructured.NestedSlice(operation, "info")
	for _, e := range entries {
		if entry, _ := e.(map[string]any); entry["name"] == "argocd-agent/command" {
			return fmt.Sprint(entry["value"])
		}
	}
	return ""
}

func hasNoOperation(u *unstructured.Unstructured) error {
	if operation, found, _ := unstructured.NestedMap(u.Object, "operation"); found {
		return fmt.Errorf("operation %v", operation)
	}
	return nil
}

// revisionIs is an Application with this target revision.
func revisionIs(want string) condition {
	return func(u *unstructured.Unstructured) error {
		if got, _, _ := unstructured.NestedString(u.Object, "spec", "source", "targetRevision"); got != want {
			return fmt.Errorf("targetRevision %q, want %q", got, want)
		}
		return nil
	}
}

func setRevision(t *testing.T, o object, revision string) {
	t.Helper()
	o.patch(t, fmt.Sprintf(`{"spec":{"source":{"targetRevision":%q}}}`, revision))
}

// A standby has everything of the active hub. When that hub is lost, it takes over: nothing on workload clusters changes,
// commands run once, and the old hub becomes the standby.
func TestFailover_StandbyTakesOver(t *testing.T) {
	h := newTwoHubs(t)
	h.hub.agent("managed").create(t, map[string]any{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "Agent", "spec": map[string]any{"mode": "managed"}})
	h.hub.agent("autonomous").create(t, map[string]any{"apiVersion": "argocd-agent.argoproj-labs.io/v1alpha1", "kind": "Agent", "spec": map[string]any{"mode": "autonomous"}})
	h.principal.start(t)
	for _, a := range h.agents {
		a.start(t)
	}
	h.connected(t)

	// Bad input: a standby that is not registered, and a hub that has Applications.
	h.second.ensureNamespace(t, "managed")
	h.second.app("managed", "own").create(t, simple("managed"))
	if out, err := h.ctl(t, "demote", "--principal-context", "second", "--other-context", "hub", "--yes"); err == nil || !strings.Contains(out, "1 Application") {
		t.Errorf("a hub with an Application of its own: %v\n%s", err, out)
	}
	h.second.app("managed", "own").delete(t)
	h.mustCtl(t, "demote", "--principal-context", "second", "--other-context", "hub", "--yes")
	h.standby.start(t)

	spoke, own := h.agents["managed"].spoke, h.agents["autonomous"].spoke
	for _, name := range []string{"web", "api", "old"} {
		h.hub.app("managed", name).create(t, appSpec{repo: "https://git.example/x", project: "default", destination: "managed", namespace: "x", cascade: true}.object())
	}
	h.hub.project("shop").create(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"spec": map[string]any{"sourceRepos": []any{"*"}, "sourceNamespaces": []any{"*"}, "destinations": []any{map[string]any{"name": "managed", "namespace": "*"}}}})
	h.hub.secret("repo").create(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"labels": map[string]any{"argocd.argoproj.io/secret-type": "repository"}},
		"stringData": map[string]any{"url": "https://git.example/x", "project": "shop", "password": "p"}})
	own.app(lab.ArgoCDNamespace, "mine").create(t, appSpec{repo: "https://git.example/x", project: "default", destination: "in-cluster", namespace: "x"}.object())
	for _, name := range []string{"web", "api", "old"} {
		spoke.app(lab.ArgoCDNamespace, name).becomes(t)
	}
	h.hub.app("autonomous", "mine").becomes(t)

	// One command runs before the failover, and one waits for its agent.
	h.hub.app("managed", "web").patch(t, `{"operation":{"sync":{"revision":"main"}}}`)
	first := execute(t, spoke.app(lab.ArgoCDNamespace, "web"))
	h.hub.app("managed", "web").becomes(t, hasNoOperation)
	h.agents["managed"].kill(t)
	h.hub.app("managed", "api").patch(t, `{"operation":{"sync":{"revision":"main"}}}`)

	copies := map[object]object{
		h.hub.app("managed", "web"): h.second.app("managed", "web"), h.hub.app("managed", "api"): h.second.app("managed", "api"),
		h.hub.app("managed", "old"): h.second.app("managed", "old"), h.hub.app("autonomous", "mine"): h.second.app("autonomous", "mine"),
		h.hub.project("shop"): h.second.project("shop"), h.hub.project("default"): h.second.project("default"), h.hub.secret("repo"): h.second.secret("repo"),
		h.hub.secret("cluster-managed"): h.second.secret("cluster-managed"), h.hub.agent("managed"): h.second.agent("managed"), h.hub.agent("autonomous"): h.second.agent("autonomous"),
	}
	for a, b := range copies {
		same(t, a, b)
	}
	received(t, h.second, h.hub.app("managed", "api"))
	before := map[string]string{}
	for _, o := range []object{spoke.app(lab.ArgoCDNamespace, "web"), spoke.app(lab.ArgoCDNamespace, "api"), spoke.app(lab.ArgoCDNamespace, "old"), own.app(lab.ArgoCDNamespace, "mine")} {
		before[o.String()] = string(o.get(t).GetUID())
	}

	// The active hub is lost.
	h.principal.kill(t)
	if out, err := h.ctl(t, "promote", "--principal-context", "second", "--other-context", "lost", "--yes"); err == nil || !strings.Contains(out, "It may still serve agents") {
		t.Errorf("promoted without --force: %v\n%s", err, out)
	}
	h.mustCtl(t, "promote", "--principal-context", "second", "--other-context", "lost", "--force", "lost", "--yes")
	h.standby.wait(t) // it ends because its role changes
	h.standby.start(t)
	h.agents["managed"].start(t)
	h.connected(t)

	if id := execute(t, spoke.app(lab.ArgoCDNamespace, "api")); id == "" || id == first {
		t.Errorf("the command that waited has ID %q", id)
	}
	h.second.app("managed", "api").becomes(t, hasNoOperation)
	setRevision(t, h.second.app("managed", "web"), "v2")
	spoke.app(lab.ArgoCDNamespace, "web").becomes(t, revisionIs("v2")) // the agent trusts the hub
	h.second.app("managed", "web").is(t, hasNoOperation)
	spoke.app(lab.ArgoCDNamespace, "web").is(t, hasNoOperation)
	spoke.app(lab.ArgoCDNamespace, "api").is(t, hasNoOperation)
	h.second.app("autonomous", "mine").becomes(t)
	for _, o := range []object{spoke.app(lab.ArgoCDNamespace, "web"), spoke.app(lab.ArgoCDNamespace, "api"), spoke.app(lab.ArgoCDNamespace, "old"), own.app(lab.ArgoCDNamespace, "mine")} {
		if u := o.get(t); u == nil || string(u.GetUID()) != before[o.String()] {
			t.Errorf("%s was replaced or deleted", o)
		}
	}
	h.second.app("managed", "old").patch(t, `{"metadata":{"finalizers":null}}`)
	h.second.app("managed", "old").delete(t)
	spoke.app(lab.ArgoCDNamespace, "old").goes(t)

	// The old hub is back. Agents do not follow it, and it becomes the standby.
	h.mustCtl(t, "demote", "--principal-context", "hub", "--other-context", "second", "--yes")
	h.principal.start(t)
	h.hub.app("managed", "web").becomes(t, revisionIs("v2"))
	h.hub.app("managed", "old").goes(t)
	for a, b := range copies {
		if a.name != "old" {
			same(t, b, a)
		}
	}
	received(t, h.hub, h.second.app("managed", "web"))
	for _, o := range []object{spoke.app(lab.ArgoCDNamespace, "web"), own.app(lab.ArgoCDNamespace, "mine")} {
		if u := o.get(t); u == nil || string(u.GetUID()) != before[o.String()] {
			t.Errorf("after the return, %s was replaced or deleted", o)
		}
	}
	out, err := h.ctl(t, "status", "--principal-context", "second", "--other-context", "hub", "-o", "json")
	var rows []struct {
		Hub, Role  string
		Generation int
		Lag        *int
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &rows)
	}
	if err != nil || len(rows) != 2 || rows[0].Role != "active" || rows[1].Role != "standby" || rows[1].Generation != 2 || rows[1].Lag == nil {
		t.Errorf("hub status: %v\n%s", err, out)
	}
}
