package install

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/podrun"
)

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// binariesRun installs both sides with helm and runs the containers of the Deployments as processes, each with the
// token of its ServiceAccount. The hub has only what the principal creates, and a cluster joins it by token. Then an
// Application is deployed from the hub.
func binariesRun(t *testing.T, l *lab.Lab) {
	t.Helper()
	hub, spoke := l.Hub(), l.Cluster("managed")
	programs := buildBinaries(t)
	binary := programs + "/argocd-agent"

	resources, err := l.Port(t.Context()) // of the resource proxy, for cluster Secrets
	if err != nil {
		t.Fatal(err)
	}
	traces, tracing := traced(t)
	if out, err := installRelease(t, l, "hub", lab.ArgoCDNamespace, onHub, tracing("principal"), "principal.settings.namespace-create-enable=true", "principal.settings.search-port=8444",
		"principal.settings.resource-proxy-address=127.0.0.1:"+strconv.Itoa(resources),
		"principal.settings.shared-repo-server-address=argocd-repo-server:8081"); err != nil { // the default, set explicitly so that it leads to the lab's
		t.Fatalf("%v: %s", err, out)
	}
	var ports, spokePorts map[int32]int
	principal := startPod(t, hub, installed(t, l, "hub"), "argocd-agent-principal", binary, func(o *podrun.Options) {
		o.Ports[9090] = resources
		ports = o.Ports
	})
	values := []string{onSpoke, tracing("agent"), "agent.server=127.0.0.1,agent.port=" + strconv.Itoa(ports[8443])}
	token := joinToken(t, l, programs+"/argocd-agentctl", ports[8443])
	if out, err := l.Command(t.Context(), programs+"/argocd-agentctl", "join", token, "--token-only", "--agent-context", "managed").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := installRelease(t, l, "managed", lab.ArgoCDNamespace, values...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	agent := startPod(t, spoke, installed(t, l, "managed"), "argocd-agent-agent", binary, func(o *podrun.Options) { spokePorts = o.Ports })
	ready(t, principal)
	ready(t, agent)
	helmTests(t, l, binary, ports, spokePorts)

	lab.Await(t, "the agent's namespace, which the principal makes", func(ctx context.Context) error {
		_, err := hub.Client().CoreV1().Namespaces().Get(ctx, "w1", metav1.GetOptions{})
		return err
	})
	openDefaultProject(t, hub)
	argocdServerAsInstalled(t, l, "127.0.0.1:"+strconv.Itoa(ports[6379]))
	deployed(t, l)
	bothTrace(t, traces)
	matches(t, "../../docs/reference/metrics.md", metricsPage(t, ports[8000], spokePorts[8181]))
	removed(t, l)
	for name, pod := range map[string]*podrun.Pod{"principal": principal, "agent": agent} {
		if starts := pod.Status().Starts; starts != 1 {
			t.Errorf("the %s was started %d times; last exit: %v", name, starts, pod.Status().LastExit)
		}
	}
	sharedModeRuns(t, l, programs, agent, values...)
	commandsOfThePages(t, l, programs+"/argocd-agentctl") // some of them remove permissions of the agent
}

// installed returns the objects of the helm release on a cluster.
func installed(t testing.TB, l *lab.Lab, cluster string) []byte {
	t.Helper()
	command := l.Command(t.Context(), "helm", "get", "manifest", "argocd-agent", "--kube-context", cluster, "--namespace", lab.ArgoCDNamespace)
	manifest, err := command.Output()
	if err != nil {
		t.Fatalf("helm get manifest: %v", err)
	}
	return manifest
}

func startPod(t testing.TB, c *lab.Cluster, manifest []byte, name, binary string, look func(*podrun.Options)) *podrun.Pod {
	t.Helper()
	pod, err := c.RunDeployment(t.Context(), manifest, name, binary, func(o *podrun.Options) {
		o.ProbeEvery = 200 * time.Millisecond
		look(o)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pod.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return pod
}

func ready(t testing.TB, pod *podrun.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := pod.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func openDefaultProject(t testing.TB, hub *lab.Cluster) {
	t.Helper()
	if err := hub.Apply(t.Context(), `
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: default, namespace: argocd}
spec:
  sourceRepos: ["*"]
  sourceNamespaces: ["*"]
  destinations: [{name: "*", namespace: "*", server: "*"}]
  clusterResourceWhitelist: [{group: "*", kind: "*"}]
`); err != nil {
		t.Fatal(err)
	}
}

// joinToken creates a join token on the hub with the CLI.
func joinToken(t testing.TB, l *lab.Lab, ctl string, port int) string {
	t.Helper()
	var token string
	lab.Await(t, "the hub's certificates, and a token", func(ctx context.Context) error {
		out, err := l.Command(ctx, ctl, "agent", "join-token", "w1", "--principal-context", "hub", "--mode", "managed",
			"--address", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), "-o", "name").Output()
		if token = strings.TrimSpace(string(out)); err == nil && !strings.HasPrefix(token, "join://") {
			err = fmt.Errorf("%q is no token", token)
		}
		return err
	})
	return token
}

// runIn runs a command in a directory.
func runIn(t testing.TB, folder, program string, args ...string) (output, errOut string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = folder
	text, err := command.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", err.Error() + ": " + string(exit.Stderr)
	}
	if err != nil {
		return "", err.Error()
	}
	return string(text), ""
}
