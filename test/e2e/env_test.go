package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// patience is the timeout of conditions. It is much longer than any condition takes.
var patience = flag.Duration("patience", 2*time.Minute, "how long to wait for something to become true")

// testEnv is a lab with principal and agents.
type testEnv struct {
	*lab.Lab
	pki       *authority
	folder    string // files of the test
	port      string // of the principal
	hub       *clusterClient
	principal *program
	health    string // of the principal, URL
	agents    map[string]*agent
	live      live // addresses of live access
}

// agent is an agent of the environment with its cluster. Its connection uses a link that can be cut.
type agent struct {
	*program
	spoke  *clusterClient
	link   *faultproxy.Link
	health string // URL
	mode   string
}

// agentSetup has the options of an agent. Its name is also in its certificate.
type agentSetup struct {
	name, cluster, mode string
	flags               []string
	kubeconfig          string // If empty, with the installed permissions
}

// setup has the options of an environment.
type setup struct {
	lab        *lab.Lab
	flags      []string // of the principal
	kubeconfig string   // of the principal. If empty, with the installed permissions
	agents     []agentSetup
}

var theShared struct {
	sync.Mutex
	*testEnv
}

// shared returns the environment that most tests share, with the agents "managed" and "autonomous". A test must undo
// its changes of processes and links; see restore.
func shared(t testing.TB) *testEnv {
	t.Helper()
	l := lab.Get(t)
	theShared.Lock()
	defer theShared.Unlock()
	if theShared.testEnv == nil {
		w := newEnv(t, setup{lab: l, agents: []agentSetup{
			{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
		atExit(w.close)
		w.start(t)
		theShared.testEnv = w
	}
	t.Cleanup(func() { theShared.restore(t) })
	return theShared.testEnv
}

// own starts an environment for one test.
func own(t testing.TB, s setup) *testEnv {
	t.Helper()
	w := newEnv(t, s)
	t.Cleanup(w.close)
	w.start(t)
	return w
}

// newEnv prepares an environment and starts nothing.
func newEnv(t testing.TB, s setup) *testEnv {
	t.Helper()
	folder, err := os.MkdirTemp(s.lab.Dir(), "e2e-") //nolint:usetesting // it lives as long as the programs, not as the test that starts them
	if err != nil {
		t.Fatal(err)
	}
	w := &testEnv{Lab: s.lab, folder: folder, pki: newAuthority(t, folder, "ca"), hub: newSite(s.lab.Hub()), agents: map[string]*agent{}}
	w.port = w.freePort(t)
	health := w.freePort(t)
	w.health = "http://127.0.0.1:" + health + "/healthz"
	if s.kubeconfig == "" {
		s.kubeconfig = w.hub.RunAs.File
	}
	tls := w.pki.forADay(t, "principal")
	w.principal = newProgram(filepath.Base(folder)+"-principal", w.logs(), append([]string{"principal",
		"--kubeconfig", s.kubeconfig, "--namespace", lab.ArgoCDNamespace,
		"--listen-host", "127.0.0.1", "--listen-port", w.port,
		"--tls-cert", tls.cert, "--tls-key", tls.key, "--root-ca-path", w.pki.file,
		"--require-registration=false", // agents have certificates of the test, and most tests create no Agents
		"--healthz-port", health, "--metrics-port", "0", "--log-level", "debug"}, append(w.liveOfPrincipal(t), s.flags...)...)...)
	for _, a := range s.agents {
		w.addAgent(t, a)
	}
	w.hub.openDefaultProject(t)
	return w
}

// addAgent prepares an agent and its namespace on the hub.
func (w *testEnv) addAgent(t testing.TB, s agentSetup) *agent {
	t.Helper()
	link, err := w.Link("127.0.0.1:" + w.port)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{spoke: newSite(w.Cluster(s.cluster)), link: link, mode: s.mode}
	if s.kubeconfig == "" {
		s.kubeconfig = a.spoke.RunAs.File
	}
	tls := w.pki.forADay(t, s.name)
	health := w.freePort(t)
	a.health = "http://127.0.0.1:" + health + "/healthz"
	_, port, _ := strings.Cut(link.Addr(), ":")
	a.program = newProgram(filepath.Base(w.folder)+"-"+s.name, w.logs(), append([]string{"agent",
		"--kubeconfig", s.kubeconfig, "--namespace", lab.ArgoCDNamespace, "--agent-mode", s.mode,
		"--server-address", "127.0.0.1", "--server-port", port,
		"--tls-client-cert", tls.cert, "--tls-client-key", tls.key, "--root-ca-path", w.pki.file,
		"--healthz-port", health, "--metrics-port", "0", "--log-level", "debug"}, append(liveOfAgent(a.spoke), s.flags...)...)...)
	w.agents[s.name] = a
	w.hub.ensureNamespace(t, s.name)
	return a
}

func (w *testEnv) logs() string { return filepath.Join(w.Dir(), "logs") }

func (w *testEnv) freePort(t testing.TB) string {
	t.Helper()
	port, err := w.Port(context.Background())
	if err != nil {
		t.Fatalf("reserve a port: %v", err)
	}
	return strconv.Itoa(port)
}

// start starts all processes and waits until all agents are connected.
func (w *testEnv) start(t testing.TB) {
	t.Helper()
	w.principal.start(t)
	for _, a := range w.agents {
		a.start(t)
	}
	w.connected(t)
}

// connected waits until all agents are connected.
func (w *testEnv) connected(t testing.TB) {
	t.Helper()
	for _, a := range w.agents {
		a.connected(t)
	}
}

func (a *agent) connected(t testing.TB) {
	t.Helper()
	await(t, a.name+" to be connected", func() error { return healthy(a.health) })
}

// disconnected waits until the agent reports that it is not connected.
func (a *agent) disconnected(t testing.TB) {
	t.Helper()
	await(t, a.name+" to be disconnected", func() error {
		if healthy(a.health) == nil {
			return fmt.Errorf("it is ready")
		}
		return nil
	})
}

func healthy(address string) error {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

// restore undoes changes of a test to processes and links.
func (w *testEnv) restore(t testing.TB) {
	t.Helper()
	if w.world() == nil {
		return
	}
	for _, a := range w.agents {
		if err := a.link.Restore(); err != nil {
			t.Errorf("restore the link of %s: %v", a.name, err)
		}
		a.thaw()
		if !a.running() {
			a.start(t)
		}
	}
	w.principal.thaw()
	if !w.principal.running() {
		w.principal.start(t)
	}
	w.connected(t)
}

func (w *testEnv) world() *testEnv { return w }

func (w *testEnv) close() {
	for _, a := range w.agents {
		a.signal(9)
		_ = a.link.Close()
	}
	w.principal.signal(9)
}

func (w *testEnv) managed() *agent    { return w.agents["managed"] }
func (w *testEnv) autonomous() *agent { return w.agents["autonomous"] }

// await waits until check returns nil.
func await(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(*patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// argocd runs the argocd CLI for the hub and returns its output.
func (w *testEnv) argocd(t testing.TB, args ...string) string {
	t.Helper()
	out, err := w.tryArgocd(t, args...)
	if err != nil {
		t.Fatalf("argocd %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (w *testEnv) tryArgocd(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	out, err := w.Command(ctx, "argocd", args...).CombinedOutput()
	return string(out), err
}
