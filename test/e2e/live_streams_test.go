package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
)

// streamsOf tests streams between a user and a pod with each protocol of Kubernetes.
func streamsOf(t *testing.T, s *subject, config string) {
	t.Helper()
	pod := s.pod(t)
	for protocol, sockets := range map[string]string{"WebSocket": "true", "SPDY": "false"} {
		t.Run(protocol, func(t *testing.T) {
			kubectl := &kubectlBy{s: s, config: config, sockets: sockets}
			kubectl.exec(t, pod)
			kubectl.attach(t, pod)
			kubectl.copyFiles(t, pod)
			forwarded(t, s.w, config, s.workload, pod, kubectl.env()...)
			terminalSize(t, s, config, pod, protocol)
		})
	}
}

// kubectlBy is kubectl with one of the protocols.
type kubectlBy struct {
	s               *subject
	config, sockets string
}

func (k *kubectlBy) env() []string {
	return []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + k.sockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + k.sockets}
}

// run returns standard output and standard error of kubectl.
func (k *kubectlBy) run(t testing.TB, stdin string, args ...string) (out, errOut string, err error) {
	t.Helper()
	command := k.s.w.hubCommand(t, k.config, append([]string{"-n", k.s.workload}, args...)...)
	command.Env = append(command.Env, k.env()...)
	late := time.AfterFunc(*patience, func() { _ = command.Cancel() })
	defer late.Stop()
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err = command.Run()
	return stdout.String(), stderr.String(), err
}

func (k *kubectlBy) exec(t testing.TB, pod string) {
	t.Helper()
	out, errOut, err := k.run(t, "", "exec", pod, "--", "sh", "-c", "echo to stdout; echo to stderr >&2")
	if err != nil || out != "to stdout\n" || !strings.Contains(errOut, "to stderr\n") || strings.Contains(errOut, "stdout") {
		t.Errorf("stdout is %q, stderr %q, %v", out, errOut, err)
	}
	k.echo(t, pod, strings.Repeat("all of it arrives, and comes back\n", 5000))
	// A simulated kubelet returns no exit code of a failed command, but an error on the same stream.
	fails := []string{"-n", k.s.workload, "exec", pod, "--", "sh", "-c", "exit 3"}
	direct := k.s.w.Command(t.Context(), "kubectl", append([]string{"--context", k.s.agent.spoke.Name}, fails...)...)
	direct.Env = append(direct.Env, k.env()...)
	want, directErr := direct.CombinedOutput()
	_, errOut, err = k.run(t, "", fails[2:]...)
	if directErr == nil || err == nil || errOut != string(want) || err.Error() != directErr.Error() {
		t.Errorf("a command that fails: %v, %q; directly %v, %q", err, errOut, directErr, want)
	}
}

// echo checks that all input of a command comes back. The command does not end by itself: at the end of a command, an API
// server can close the connection before it has sent everything, also without the hub.
func (k *kubectlBy) echo(t testing.TB, pod, text string) {
	t.Helper()
	command := k.s.w.hubCommand(t, k.config, "-n", k.s.workload, "exec", "-i", pod, "--", "cat")
	command.Env = append(command.Env, k.env()...)
	var stderr bytes.Buffer
	command.Stdin, command.Stderr = strings.NewReader(text), &stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(*patience, func() { _ = command.Cancel() })
	defer late.Stop()
	out := make([]byte, len(text))
	if n, err := io.ReadFull(stdout, out); err != nil || string(out) != text {
		t.Errorf("of %d bytes %d came back, %v", len(text), n, err)
	}
	_ = command.Cancel()
	if err := command.Wait(); err == nil {
		t.Errorf("the command ended by itself: %s", stderr.String())
	}
}

func (k *kubectlBy) attach(t testing.TB, pod string) {
	t.Helper()
	command := k.s.w.hubCommand(t, k.config, "-n", k.s.workload, "attach", pod)
	command.Env = append(command.Env, k.env()...)
	attached := runOn(t, command)
	mark := fmt.Sprintf("for those who are attached at %d", time.Now().UnixNano())
	await(t, "kubectl attach to show what the pod says", func() error {
		if err := k.s.agent.spoke.LogInPods(mark); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(attached.text(), mark) {
			return fmt.Errorf("it shows %q", attached.text())
		}
		return nil
	})
}

// copyFiles copies out of the pod. Copying into a pod would need the end of input.
func (k *kubectlBy) copyFiles(t testing.TB, pod string) {
	t.Helper()
	folder := t.TempDir()
	content := bytes.Repeat([]byte("not only text \x00\xff\n"), 20_000)
	inPod, here := filepath.Join(folder, "there"), filepath.Join(folder, "here") // a simulated pod has the files of this machine
	if err := os.WriteFile(inPod, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errOut, err := k.run(t, "", "cp", pod+":"+inPod, here); err != nil {
		t.Fatalf("kubectl cp: %v: %s", err, errOut)
	}
	if copied := readFile(t, here); !bytes.Equal(copied, content) {
		t.Errorf("of %d bytes %d came, or they are others", len(content), len(copied))
	}
}

// sizes is a queue of terminal sizes.
type sizes chan remotecommand.TerminalSize

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	size, open := <-s
	if !open {
		return nil
	}
	return &size
}

// terminalSize changes the size of an open terminal.
func terminalSize(t *testing.T, s *subject, file, pod, protocol string) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := executorBy(config, s, pod, protocol)
	if err != nil {
		t.Fatal(err)
	}
	input, keyboard := io.Pipe()
	screen, size := &screen{}, make(sizes, 1)
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	go func() {
		ended <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: input, Stdout: screen, Tty: true, TerminalSizeQueue: size})
	}()
	for _, want := range []remotecommand.TerminalSize{{Width: 101, Height: 33}, {Width: 77, Height: 21}} {
		size <- want
		shown := fmt.Sprintf("size: %d %d", want.Height, want.Width)
		await(t, "the terminal to have "+shown, func() error {
			if _, err := io.WriteString(keyboard, "echo size: $(stty size)\n"); err != nil {
				return err
			}
			return screen.shows(shown)
		})
	}
	if _, err := io.WriteString(keyboard, "exit\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("the end of the terminal: %v", err)
	}
	close(size)
	_ = keyboard.Close()
}

func executorBy(config *rest.Config, s *subject, pod, protocol string) (remotecommand.Executor, error) {
	options := &corev1.PodExecOptions{Container: "web", Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}
	query, err := scheme.ParameterCodec.EncodeParameters(options, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	address := &url.URL{Scheme: "https", Host: s.w.live.resources, Path: "/api/v1/namespaces/" + s.workload + "/pods/" + pod + "/exec", RawQuery: query.Encode()}
	switch protocol {
	case "SPDY":
		return remotecommand.NewSPDYExecutor(config, http.MethodPost, address)
	case "WebSocket":
		return remotecommand.NewWebSocketExecutor(config, http.MethodGet, address.String())
	}
	return nil, errors.New("no such protocol")
}

// screen is the content of a terminal.
type screen struct {
	mu   sync.Mutex
	said bytes.Buffer
}

// Write implements io.Writer.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(p)
}

func (s *screen) shows(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.Contains(s.said.String(), text) {
		return fmt.Errorf("it shows %q", s.said.String())
	}
	return nil
}

// kubectlLogs tests the options of kubectl logs.
func kubectlLogs(t *testing.T, s *subject, config string) {
	t.Helper()
	pod := s.pod(t)
	both := func(args ...string) (through, direct string) {
		args = append([]string{"-n", s.workload, "logs", pod}, args...)
		a, _ := s.w.hubCommand(t, config, args...).CombinedOutput()
		b, _ := s.w.Command(t.Context(), "kubectl", append([]string{"--context", s.agent.spoke.Name}, args...)...).CombinedOutput()
		return string(a), string(b)
	}
	mark := fmt.Sprintf("the last of %d", time.Now().UnixNano())
	for _, c := range []struct {
		has  bool
		args []string
	}{{true, nil}, {true, []string{"--tail", "2"}}, {true, []string{"--since", "1h"}}, {true, []string{"--timestamps", "--limit-bytes", "10000000"}}, {true, []string{"-c", "web"}},
		{false, []string{"--tail", "0"}}, {false, []string{"--since-time", "2100-01-01T00:00:00Z"}}, {false, []string{"--previous"}}, {false, []string{"-c", "missing"}}} {
		await(t, fmt.Sprint("kubectl logs ", c.args, " to be the same as directly"), func() error { // pods may log between the two requests
			if err := s.agent.spoke.LogInPods(mark); err != nil {
				t.Fatal(err)
			}
			through, direct := both(c.args...)
			if through != direct || strings.Contains(through, mark) != c.has {
				return fmt.Errorf("it is %.500q, directly %.500q", through, direct)
			}
			return nil
		})
	}
}

// kubectlWrites tests all write operations of kubectl.
func kubectlWrites(t *testing.T, s *subject, config string) {
	t.Helper()
	settings := s.object(configMapKind, "settings")
	run := (&kubectlBy{s: s, config: config, sockets: "true"}).run
	must := func(stdin string, args ...string) string {
		t.Helper()
		out, errOut, err := run(t, stdin, args...)
		if err != nil {
			t.Fatalf("kubectl %v: %v: %s", args, err, errOut)
		}
		return out
	}
	must("", "patch", "configmap", "settings", "--type", "merge", "-p", `{"data":{"by-merge":"x"}}`)
	must("", "patch", "configmap", "settings", "--type", "json", "-p", `[{"op":"add","path":"/data/by-json","value":"x"}]`)
	must("", "patch", "configmap", "settings", "--type", "strategic", "-p", `{"data":{"by-strategic":"x"}}`)
	const applied = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},"data":{"by-apply":"%s"}}`
	must(fmt.Sprintf(applied, "x"), "apply", "--server-side", "--field-manager", "one-manager", "-f", "-")
	must("", "label", "configmap", "settings", "by-hand=yes")
	settings.is(t, field("data.by-merge", "x"), field("data.by-json", "x"), field("data.by-strategic", "x"), field("data.by-apply", "x"), label("by-hand", "yes"))
	if out, errOut, err := run(t, fmt.Sprintf(applied, "y"), "apply", "--server-side", "--field-manager", "another-manager", "-f", "-"); err == nil || !strings.Contains(errOut, "conflict") {
		t.Errorf("a conflict: %v: %s %s", err, out, errOut)
	}
	if out, errOut, err := run(t, fmt.Sprintf(applied, "z"), "diff", "--server-side", "--field-manager", "one-manager", "-f", "-"); err == nil || !strings.Contains(out, "+  by-apply: z") {
		t.Errorf("kubectl diff: %v: %s %s", err, out, errOut)
	}
	must("", "scale", "deployment", "web", "--replicas", "2")
	s.object(deploymentKind, "web").is(t, field("spec.replicas", "2"))
	must("", "scale", "deployment", "web", "--replicas", "1")
	if out := must("", "events", "--for", "deployment/web"); !strings.Contains(out, "ScalingReplicaSet") {
		t.Errorf("kubectl events: %s", out)
	}
	must("", "delete", "configmap", "spare", "--cascade=orphan", "--grace-period=1")
	s.object(configMapKind, "spare").goes(t)
}
