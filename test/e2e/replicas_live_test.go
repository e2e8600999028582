package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// forwardEnv has two principal replicas. All agents are connected to the first. All clients, including Argo CD, use the
// second.
func forwardEnv(t *testing.T) (w *testEnv, second *program, port string) {
	t.Helper()
	w = newEnv(t, setup{lab: lab.New(t, lab.Options{}), flags: []string{"--replica-address", "127.0.0.1"}, agents: []agentSetup{
		{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	for _, a := range w.agents {
		livePermissions(t, a.spoke.Cluster)
	}
	port = w.freePort(t)
	args := replaceFlag(slices.Clone(w.principal.args), "--listen-port", port)
	health := w.freePort(t)
	second = newProgram(filepath.Base(w.folder)+"-second", w.logs(), append(replaceFlag(args, "--healthz-port", health), "--replica-name", "second")...)
	t.Cleanup(func() { second.signal(9) })
	first := replaceFlag(w.principal.args, "--resource-proxy-port", w.freePort(t)) // the second uses the port of the first
	w.principal.args = append(replaceFlag(first, "--redis-proxy-port", w.freePort(t)), "--replica-name", "first")
	second.start(t)
	w.start(t)
	await(t, "the second principal to be ready", func() error { return healthy("http://127.0.0.1:" + health + "/healthz") })
	w.serveArgoCD(t)
	return w, second, port
}

// TestPrincipalReplicas_ForwardRequestOnce uses live access through a principal replica without agents.
func TestPrincipalReplicas_ForwardRequestOnce(t *testing.T) {
	w, _, port := forwardEnv(t)
	t.Run("an autonomous agent's Application", func(t *testing.T) {
		s := autonomousSubject(t, w, "far")
		resourceTree(t, s)
		manifests(t, s)
	})
	t.Run("the cluster page", func(t *testing.T) {
		for name := range w.agents {
			w.pageShows(t, name, func(r clusterRow) bool { return r.Info.ConnectionState.Status == "Successful" })
		}
	})
	s := managedSubject(t, w, "far")
	t.Run("a managed agent's Application", func(t *testing.T) {
		resourceTree(t, s)
		manifests(t, s)
	})
	t.Run("kubectl", func(t *testing.T) { kubectlForwarded(t, w, s) })
	watch := s.watchTree(t)
	watch.shows(t, "one pod", func(f tree) bool { return len(f.of("Pod")) == 1 })
	manifest := func() error {
		_, err := s.try(http.MethodGet, "/resource", s.query(configMapKind, s.workload, "settings"), nil)
		return err
	}
	t.Run("the other principal replica crashes", func(t *testing.T) {
		w.principal.kill(t)
		quick(t, "a manifest", func() error {
			return refusedWith(manifest(), "agent managed is connected to principal first, which did not open a tunnel")
		})
		quick(t, "the last known tree", func() error {
			_, err := s.try(http.MethodGet, "/resource-tree", nil, nil)
			return err
		})
	})
	t.Run("the agents connect to this replica", func(t *testing.T) {
		for _, a := range w.agents {
			a.link.SetTarget("127.0.0.1:" + port)
		}
		w.connected(t)
		await(t, "a manifest", manifest)
		s.scale(t, 2)
		watch.shows(t, "two pods", func(f tree) bool { return len(f.of("Pod")) == 2 })
	})
	t.Run("the agents connect to the other replica again", func(t *testing.T) {
		w.principal.start(t)
		for _, a := range w.agents {
			a.link.SetTarget("127.0.0.1:" + w.port)
			a.link.Reset()
		}
		for name := range w.agents {
			w.hub.agent(name).becomes(t, field("status.principal", "first"), field("status.connected", "true"))
		}
		await(t, "a manifest", manifest)
		s.scale(t, 1)
		watch.shows(t, "one pod again", func(f tree) bool { return len(f.of("Pod")) == 1 })
	})
}

// kubectlForwarded tests an object, a followed log and an exec session.
func kubectlForwarded(t *testing.T, w *testEnv, s *subject) {
	t.Helper()
	config := w.kubeconfig(t, "managed")
	if out := w.throughHub(t, config, "-n", s.workload, "get", "deployment", "web", "-o", "jsonpath={.metadata.uid}"); out != string(s.object(deploymentKind, "web").get(t).GetUID()) {
		t.Errorf("kubectl get: %s", out)
	}
	pod := s.pod(t)
	follow := runOn(t, w.hubCommand(t, config, "-n", s.workload, "logs", "-f", "--tail", "1", pod))
	follow.says(t, "\n")
	for _, line := range []string{"one line", "another line"} {
		line = fresh(line)
		if err := s.agent.spoke.LogInPods(line); err != nil {
			t.Fatal(err)
		}
		follow.says(t, line)
	}
	shell := runOn(t, w.hubCommand(t, config, "-n", s.workload, "exec", "-i", pod, "--", "sh"))
	for _, word := range []string{"first", "second"} {
		if _, err := fmt.Fprintf(shell.stdin, "echo the %s answer\n", word); err != nil {
			t.Fatal(err)
		}
		shell.says(t, "the "+word+" answer")
	}
	if _, err := fmt.Fprintln(shell.stdin, "exit"); err != nil {
		t.Fatal(err)
	}
	shell.ends(t)
}
