package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var listAll = metav1.ListOptions{}

// running is a command that runs until the test stops it.
type running struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}

	mu   sync.Mutex
	said string
}

func runOn(t testing.TB, cmd *exec.Cmd) *running {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			r.mu.Lock()
			r.said += lines.Text() + "\n"
			r.mu.Unlock()
		}
	}()
	go func() {
		_ = cmd.Wait()
		_ = writer.Close()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.ended
	})
	return r
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said
}

func (r *running) says(t testing.TB, text string) {
	t.Helper()
	await(t, strings.Join(r.cmd.Args[1:], " ")+" to say "+text, func() error {
		if said := r.text(); !strings.Contains(said, text) {
			return fmt.Errorf("it says %s", said)
		}
		return nil
	})
}

func (r *running) ends(t testing.TB) {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(*patience):
		t.Fatalf("%s does not end; it says %s", strings.Join(r.cmd.Args[1:], " "), r.text())
	}
}

// kubectlThroughHub tests kubectl with a kubeconfig for the principal.
func kubectlThroughHub(t *testing.T, w *testEnv) {
	t.Helper()
	s := managedSubject(t, w, "by-hand")
	config := w.kubeconfig(t, "managed")
	pod := s.pod(t)
	kubectl := func(args ...string) string {
		return w.throughHub(t, config, append([]string{"-n", s.workload}, args...)...)
	}

	if out := kubectl("get", "deployment", "web", "-o", "jsonpath={.metadata.uid}"); out != string(s.object(deploymentKind, "web").get(t).GetUID()) {
		t.Errorf("kubectl get: %s", out)
	}
	watch := runOn(t, w.hubCommand(t, config, "-n", s.workload, "get", "configmap", "settings", "-w", "-o", "jsonpath={.data.watched}{'\\n'}"))
	await(t, "kubectl get -w to see a change", func() error {
		s.object(configMapKind, "settings").patch(t, fmt.Sprintf(`{"data":{"watched":"at %d"}}`, time.Now().UnixNano()))
		if !strings.Contains(watch.text(), "at ") {
			return fmt.Errorf("it says %q", watch.text())
		}
		return nil
	})

	follow := runOn(t, w.hubCommand(t, config, "-n", s.workload, "logs", "-f", "--tail", "1", pod))
	follow.says(t, "\n")
	line := fmt.Sprintf("for kubectl at %d", time.Now().UnixNano())
	if err := s.agent.spoke.LogInPods(line); err != nil {
		t.Fatal(err)
	}
	follow.says(t, line)

	shell := runOn(t, w.hubCommand(t, config, "-n", s.workload, "exec", "-i", pod, "--", "sh"))
	for i := range 3 {
		fmt.Fprintf(shell.stdin, "echo answer %d\n", i)
		shell.says(t, fmt.Sprintf("answer %d", i))
	}
	fmt.Fprintln(shell.stdin, "exit")
	shell.ends(t)

	t.Run("streams", func(t *testing.T) { streamsOf(t, s, config) })
	t.Run("logs", func(t *testing.T) { kubectlLogs(t, s, config) })
	t.Run("writes", func(t *testing.T) { kubectlWrites(t, s, config) })

	pod = s.pod(t)
	command := w.hubCommand(t, config, "-n", s.workload, "delete", "pod", pod, "--wait=false")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("kubectl delete: %v: %s", err, out)
	}
	s.object(podKind, pod).goes(t)
}

// forwarded connects to a port of a pod. Simulated pods echo all input.
func forwarded(t *testing.T, w *testEnv, config, namespace, pod string, env ...string) {
	t.Helper()
	command := w.hubCommand(t, config, "-n", namespace, "port-forward", pod, ":80")
	command.Env = append(command.Env, env...)
	forward := runOn(t, command)
	forward.says(t, "Forwarding from 127.0.0.1:")
	_, rest, _ := strings.Cut(forward.text(), "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(*patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "hello pod\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || answer != "hello pod\n" {
		t.Errorf("through the forwarded port came %q, %v; kubectl says %s", answer, err, forward.text())
	}
}
