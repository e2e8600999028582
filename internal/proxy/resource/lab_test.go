package resource

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/lab"
)

// labStage is a stage in front of a real API server, with a namespace in which two simulated pods run.
type labStage struct {
	*stage
	lab        *lab.Lab
	cluster    *lab.Cluster
	namespace  string
	kubeconfig string
	pod        string // of the Deployment "web"
}

func newLabStage(t *testing.T, name string, o options) *labStage {
	t.Helper()
	l := lab.Get(t)
	s := &labStage{lab: l, cluster: l.Cluster("managed"), namespace: fmt.Sprintf("resource-proxy-%s-%x", name, time.Now().UnixNano()&0xffffff)}
	server, err := APIServerFor(s.cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	s.stage = newStage(t, server, o)
	s.kubeconfig = s.writeKubeconfig(t)
	if err := s.cluster.Apply(t.Context(), fmt.Sprintf(workload, s.namespace)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cluster.Client().CoreV1().Namespaces().Delete(context.Background(), s.namespace, metav1.DeleteOptions{})
	})
	lab.Await(t, "a pod that runs", func(ctx context.Context) error {
		pods, err := s.cluster.Client().CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.Status.Phase == "Running" {
				s.pod = pod.Name
				return nil
			}
		}
		return fmt.Errorf("%d pods, none runs", len(pods.Items))
	})
	return s
}

const workload = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %[1]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: %[1]s}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: %[1]s}
stringData: {password: geheim}
`

func (s *labStage) writeKubeconfig(t *testing.T) string {
	t.Helper()
	cert, key := keyPair(t, s.ca.issue(t, "w1"))
	encode := base64.StdEncoding.EncodeToString
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: w1,
clusters: [{name: w1, cluster: {server: "https://%s", certificate-authority-data: %s}}],
users: [{name: w1, user: {client-certificate-data: %s, client-key-data: %s}}],
contexts: [{name: w1, context: {cluster: w1, user: w1, namespace: %s}}]}`, s.address, encode(s.ca.pem()), encode(cert), encode(key), s.namespace)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// command is kubectl through the hub. Its cache of discovery is its own.
func (s *labStage) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return s.lab.Command(t.Context(), "kubectl", append([]string{"--kubeconfig", s.kubeconfig, "--cache-dir", filepath.Join(filepath.Dir(s.kubeconfig), "cache")}, args...)...)
}

func (s *labStage) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.command(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// refused is what kubectl says when it fails.
func (s *labStage) refused(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.command(t, args...).CombinedOutput()
	if err == nil {
		t.Errorf("kubectl %s: it worked: %s", strings.Join(args, " "), out)
	}
	return string(out)
}

func (s *labStage) apply(t *testing.T, manifest string, args ...string) string {
	t.Helper()
	command := s.command(t, append([]string{"apply", "-f", "-"}, args...)...)
	command.Stdin = strings.NewReader(manifest)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl apply: %v: %s", err, out)
	}
	return string(out)
}

// quiet waits until no request is under way: a caller that disconnects cancels its request.
func (s *labStage) quiet(t *testing.T) {
	t.Helper()
	lab.Await(t, "the end of all requests", func(context.Context) error {
		if n := s.hub.Active(); n > 0 {
			return fmt.Errorf("%d are under way", n)
		}
		return nil
	})
}

func TestLab_KubectlReadsAndWrites(t *testing.T) {
	s := newLabStage(t, "kubectl", options{})

	for _, args := range [][]string{
		{"get", "deployment", "web", "-o", "jsonpath={.metadata.uid}{.spec}"}, {"api-resources", "-o", "name"}, {"version", "-o", "yaml"},
		{"explain", "deployment.spec.replicas"}, {"get", "--raw", "/openapi/v3"}, {"get", "--raw", "/healthz"},
	} {
		direct, err := s.lab.Command(t.Context(), "kubectl", append([]string{"--context", "managed", "-n", s.namespace}, args...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := s.kubectl(t, args...); got != strings.TrimSpace(string(direct)) {
			t.Errorf("kubectl %v:\n got %.300s\nwant %.300s", args, got, direct)
		}
	}

	for kind, patch := range map[string]string{
		"merge": `{"data":{"merge":"x"}}`, "json": `[{"op":"add","path":"/data/json","value":"x"}]`, "strategic": `{"data":{"strategic":"x"}}`,
	} {
		s.kubectl(t, "patch", "configmap", "settings", "--type", kind, "-p", patch)
		if got := s.kubectl(t, "get", "configmap", "settings", "-o", "jsonpath={.data."+kind+"}"); got != "x" {
			t.Errorf("after a %s patch: %q", kind, got)
		}
	}
	s.kubectl(t, "patch", "deployment", "web", "--subresource", "status", "--type", "merge", "-p", `{"status":{"observedGeneration":1}}`)
	s.kubectl(t, "scale", "deployment", "web", "--replicas", "2")

	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: b}\n"
	for _, args := range [][]string{{}, {"--server-side", "--force-conflicts"}, {"--dry-run=server"}} {
		if out := s.apply(t, manifest, args...); !strings.Contains(out, "configmap/applied") {
			t.Errorf("apply %v: %s", args, out)
		}
	}
	s.kubectl(t, "replace", "-f", writeFile(t, manifest))
	s.kubectl(t, "delete", "configmap", "applied", "--dry-run=server")
	s.kubectl(t, "delete", "configmap", "applied")
	if out := s.refused(t, "get", "configmap", "applied"); !strings.Contains(out, "NotFound") {
		t.Errorf("after the delete: %s", out)
	}
	s.kubectl(t, "delete", "deployment", "web", "--cascade=orphan")
	if out := s.kubectl(t, "get", "replicasets", "-o", "name"); !strings.Contains(out, "replicaset.apps/web-") {
		t.Errorf("the orphan is gone: %q", out)
	}
	s.kubectl(t, "delete", out1(s.kubectl(t, "get", "replicasets", "-o", "name")), "--cascade=foreground")
}

func out1(lines string) string {
	first, _, _ := strings.Cut(lines, "\n")
	return first
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// follow runs a command that streams, until a line contains what is waited for after trigger was called.
func (s *labStage) follow(t *testing.T, trigger func(), want string, args ...string) {
	t.Helper()
	command := s.command(t, args...)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errors bytes.Buffer
	command.Stderr = &errors
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("kubectl %v: nothing at first: %s", args, errors.String())
	}
	trigger()
	for !strings.Contains(lines.Text(), want) {
		if !lines.Scan() {
			t.Fatalf("kubectl %v ended before %q: %s", args, want, errors.String())
		}
	}
	if s.hub.Active() == 0 {
		t.Error("the stream is not under way")
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	s.quiet(t)
}

func TestLab_StreamsEndWithTheirCallers(t *testing.T) {
	s := newLabStage(t, "streams", options{})
	s.follow(t, func() { s.kubectl(t, "label", "pod", s.pod, "seen=yes") }, "seen=yes", "get", "pods", "-w", "--show-labels")
	s.follow(t, func() { s.kubectl(t, "label", "pod", s.pod, "seen=twice", "--overwrite") }, "seen=twice", "get", "pod", s.pod, "-w", "--show-labels")
	s.follow(t, func() {
		if err := s.cluster.LogInPods("said through the proxy"); err != nil {
			t.Error(err)
		}
	}, "said through the proxy", "logs", "-f", s.pod)

	for _, sockets := range []string{"true", "false"} {
		t.Run("exec with WebSockets "+sockets, func(t *testing.T) {
			command := s.command(t, "exec", "-i", s.pod, "--", "sh", "-c", "read word; echo heard $word; echo warned >&2")
			command.Env = append(command.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+sockets)
			command.Stdin = strings.NewReader("hello\n")
			var out, stderr bytes.Buffer
			command.Stdout, command.Stderr = &out, &stderr
			err := command.Run()
			if err != nil || out.String() != "heard hello\n" || !strings.Contains(stderr.String(), "warned\n") {
				t.Errorf("%v, %q, %q", err, out.String(), stderr.String())
			}
			s.quiet(t)
			s.mu.Lock()
			defer s.mu.Unlock()
			verb := map[string]string{"true": verbGet, "false": verbCreate}[sockets] // a WebSocket begins with GET, SPDY with POST
			if last := s.outcomes[len(s.outcomes)-1]; last.Code != 101 || last.Request.Subresource != "exec" || last.Request.Verb != verb {
				t.Errorf("it was %+v", last)
			}
		})
		t.Run("exec ends with its caller, WebSockets "+sockets, func(t *testing.T) {
			command := s.command(t, "exec", "-i", s.pod, "--", "cat")
			command.Env = append(command.Env, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+sockets)
			in, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := command.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			_, _ = in.Write([]byte("echo\n"))
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "echo\n" {
				t.Errorf("%q, %v", line, err)
			}
			_ = command.Process.Kill()
			_ = command.Wait()
			s.quiet(t)
		})
	}
}

func TestLab_LargeList(t *testing.T) {
	s := newLabStage(t, "large", options{})
	filler := strings.Repeat("x", 800<<10)
	for i := range 8 {
		if err := s.cluster.Apply(t.Context(), fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large-%d, namespace: %s}\ndata: {a: %s}\n", i, s.namespace, filler)); err != nil {
			t.Fatal(err)
		}
	}
	if out := s.kubectl(t, "get", "configmaps", "-o", "yaml"); strings.Count(out, filler) < 8 {
		t.Errorf("%d bytes arrived", len(out))
	}
}

func TestLab_DisconnectedAgent(t *testing.T) {
	s := newLabStage(t, "away", options{})
	resources := s.kubectl(t, "api-resources", "-o", "name")
	s.leave(&NotConnectedError{Agent: "w1", Since: time.Now()})
	begin := time.Now()
	if out := s.refused(t, "get", "pod", s.pod); !strings.Contains(out, "agent w1 is disconnected since") {
		t.Errorf("got %s", out)
	}
	if took := time.Since(begin); took > 5*time.Second { // a process of kubectl included
		t.Errorf("it took %s", took)
	}
	again := s.command(t, "api-resources", "-o", "name", "--cached=false")
	out, err := again.Output() // the warning goes to stderr
	if err != nil || strings.TrimSpace(string(out)) != resources {
		t.Errorf("discovery: %v, %.300s", err, out)
	}
	s.mu.Lock()
	s.away = nil
	s.mu.Unlock()
	s.kubectl(t, "get", "pod", s.pod)
}
