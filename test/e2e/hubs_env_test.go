package e2e

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
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

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/product"
)

// twoHubs is an active hub, a standby in another cluster, and agents that know the addresses of both. The hubs have the same
// CA and port, and different addresses.
type twoHubs struct {
	*testEnv
	second     *clusterClient
	standby    *program // principal of the second hub
	kubeconfig string   // with the contexts hub and second
}

const (
	firstAddress  = "127.0.0.1"
	secondAddress = "127.0.0.2"
)

// standbySettings are the settings of a principal in docs/hubs.md, as values of the chart.
func standbySettings(address string) string {
	return "principal.settings.active-hub-address=" + address + ",principal.settings.namespace-create-enable=true"
}

// hubAccount is the ServiceAccount of the principals. Its permissions are those of the chart, and nothing else.
const hubAccount = "hub-principal"

// newTwoHubs prepares two hubs whose principals have more flags, and starts nothing.
func newTwoHubs(t *testing.T, l *lab.Lab, flags map[string][]string) *twoHubs {
	t.Helper()
	w := newEnv(t, setup{lab: l, agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	h := &twoHubs{testEnv: w, second: newSite(w.Cluster("second")), kubeconfig: filepath.Join(w.folder, "hubs.kubeconfig")}
	if err := lab.WriteKubeconfig(h.kubeconfig, map[string]*lab.Cluster{"hub": h.hub.Cluster, "second": h.second.Cluster}); err != nil {
		t.Fatal(err)
	}
	for _, hub := range []*clusterClient{w.hub, h.second} {
		hub.secret("argocd-agent-ca").create(t, h.caSecret(t))
	}
	h.second.openDefaultProject(t)
	w.principal.args = append(h.principalArgs(t, w.hub, firstAddress, secondAddress), flags["hub"]...)
	h.standby = newProgram(filepath.Base(w.folder)+"-second", w.logs(), append(h.principalArgs(t, h.second, secondAddress, firstAddress), flags["second"]...)...)
	t.Cleanup(func() { h.standby.signal(9) })
	for _, a := range w.agents {
		a.args = append(without(a.args, "--server-address", "--server-port"), "--server-address", firstAddress+","+secondAddress, "--server-port", w.port)
	}
	return h
}

// twoHubsLab starts clusters for two hubs, and more.
func twoHubsLab(t *testing.T, more ...string) *lab.Lab {
	t.Helper()
	return lab.New(t, lab.Options{Bare: true, Audited: true, Spokes: lab.DefaultSpokes(), Hubs: append([]string{"second"}, more...)})
}

func (h *twoHubs) principalArgs(t *testing.T, hub *clusterClient, address, other string) []string {
	t.Helper()
	kubeconfig, err := hub.InstallPrincipal(t.Context(), hubAccount, standbySettings(other+":"+h.port))
	if err != nil {
		t.Fatal(err)
	}
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
		_, got, err := product.Received(t.Context(), standby.Cluster)
		if err == nil && got < revision {
			err = fmt.Errorf("received %d, want %d", got, revision)
		}
		return err
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
