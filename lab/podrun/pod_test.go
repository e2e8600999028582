package podrun

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

const patience = time.Minute

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	var n int
	_, err = fmt.Sscan(port, &n)
	must(t, err)
	return n
}

// setUp returns the Deployment of testdata and a cluster with its objects.
func setUp(t *testing.T) (Options, *fake) {
	t.Helper()
	manifest, err := os.ReadFile("testdata/deployment.yaml")
	must(t, err)
	template, err := Template(manifest, "agent")
	must(t, err)
	program, err := os.Executable()
	must(t, err)
	f := newFake()
	f.secrets["tls"] = map[string]string{"tls.crt": "certificate", "tls.key": "key"}
	f.secrets["redis"] = map[string]string{"auth": "pa$$word"}
	f.configMaps["params"] = map[string]string{"mode": "managed", "LEVEL": "debug", "redis": "redis://argocd-redis:6379/0"}
	return Options{
		Template: template, Namespace: "argocd", Name: "agent-0", Dir: filepath.Join(t.TempDir(), "pod"), Binary: program,
		Source: f, Server: Server{URL: "https://127.0.0.1:6443", CA: []byte("the CA")},
		Ports: map[int32]int{8001: freePort(t)}, Addresses: map[string]string{"argocd-redis:6379": "127.0.0.1:16379"},
		Env: map[string]string{"PODRUN_CHILD": "serve"}, Backoff: 5 * time.Millisecond, ProbeEvery: 5 * time.Millisecond,
	}, f
}

func start(t *testing.T, o Options) *Pod {
	t.Helper()
	pod, err := Start(t.Context(), o)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must(t, pod.Stop(ctx))
		if out, err := os.ReadFile(pod.OutputFile()); err == nil && t.Failed() {
			t.Logf("output:\n%s", out)
		}
	})
	return pod
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// ask returns the response of the running child.
func ask(t *testing.T, o Options) self {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/self", o.Ports[8001]))
	must(t, err)
	defer resp.Body.Close()
	var s self
	must(t, json.NewDecoder(resp.Body).Decode(&s))
	return s
}

func TestProcess_FollowsManifest(t *testing.T) {
	o, _ := setUp(t)
	o.Flags = map[string]string{"peer": "127.0.0.1:9"}
	pod := start(t, o)
	must(t, pod.WaitReady(within(t)))
	got := ask(t, o)
	port := fmt.Sprint(o.Ports[8001])
	tls := pod.Dir("/app/config/tls")
	wantArgs := []string{"/usr/local/bin/argocd-agent", "--tls-cert=" + tls + "/tls.crt", "--health-port", port, "--peer=127.0.0.1:9", "agent-0", "$(mode)"}
	if !slices.Equal(got.Args, wantArgs) {
		t.Errorf("arguments\n%q, want\n%q", got.Args, wantArgs)
	}
	for _, want := range []string{
		"POD_NAME=agent-0", "POD_NAMESPACE=argocd", "MODE=managed", "PARAM_LEVEL=debug", "PASSWORD=pa$$word",
		"REDIS=redis://127.0.0.1:16379/0", "GREETING=managed in argocd", "LISTEN=0.0.0.0:" + port, "HEALTH_PORT=" + port,
		"CERT=" + tls + "/tls.crt", "MEMORY=64", "APP=agent", "HOSTNAME=agent-0", "KUBECONFIG=" + pod.Kubeconfig(),
		"TMPDIR=" + pod.Dir("/tmp"), "SCRATCH=" + pod.Dir("/tmp") + "/x",
	} {
		if !slices.Contains(got.Env, want) {
			t.Errorf("the environment lacks %s:\n%s", want, strings.Join(got.Env, "\n"))
		}
	}
	for _, variable := range got.Env {
		if name, _, _ := strings.Cut(variable, "="); name == "ABSENT" || name == "KUBERNETES_SERVICE_HOST" || name == "USER" {
			t.Errorf("the environment has %s", variable)
		}
	}
}

func TestVolumes_FollowManifest(t *testing.T) {
	o, f := setUp(t)
	pod := start(t, o)
	check := func(mount, name, want string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(pod.Dir(mount), name)
		data, err := os.ReadFile(path)
		must(t, err)
		info, err := os.Stat(path)
		must(t, err)
		if string(data) != want || info.Mode().Perm() != mode {
			t.Errorf("%s/%s is %q %v, want %q %v", mount, name, data, info.Mode().Perm(), want, mode)
		}
	}
	check("/app/config/tls", "tls.key", "key", 0o400)
	check("/etc/all", "sub/mode.txt", "managed", 0o644)
	check("/etc/all", "tls.crt", "certificate", 0o644)
	check("/etc/all", "labels/app", "agent", 0o644)
	check("/etc/all", "vault-token", "argocd/agent/vault/600/1", 0o600)
	check(accountPath, "namespace", "argocd", 0o644)
	check(accountPath, "ca.crt", "the CA", 0o644)
	if f.issued != 2 {
		t.Errorf("%d tokens were requested, want 2", f.issued)
	}
	config, err := clientcmd.BuildConfigFromFlags("", pod.Kubeconfig())
	must(t, err)
	if config.Host != "https://127.0.0.1:6443" || string(config.CAData) != "the CA" || config.BearerTokenFile != filepath.Join(pod.Dir(accountPath), "token") {
		t.Errorf("kubeconfig: %+v", config)
	}
	if names, err := filepath.Glob(filepath.Join(pod.Dir("/etc/absent"), "[^.]*")); err != nil || len(names) != 0 {
		t.Errorf("an optional Secret that is missing: %v, %v", names, err)
	}
}

func TestVolumes_SecretsAreMirrored(t *testing.T) {
	for name, automatic := range map[string]bool{"on Refresh": false, "by watch": true} {
		t.Run(name, func(t *testing.T) {
			o, f := setUp(t)
			if automatic {
				o.Source = watchingFake{f}
			}
			pod := start(t, o)
			crt := filepath.Join(pod.Dir("/app/config/tls"), "tls.crt")
			f.setSecret("tls", map[string]string{"tls.crt": "renewed", "tls.key": "key", "ca.crt": "new"})
			if !automatic {
				must(t, pod.Refresh(t.Context()))
			}
			eventually(t, "the file is renewed", func() bool {
				data, err := os.ReadFile(crt)
				must(t, err) // it always exists
				return string(data) == "renewed"
			})
			if !automatic {
				delete(f.secrets, "tls")
				if err := pod.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "Secret argocd/tls") {
					t.Errorf("refresh without the Secret: %v", err)
				}
				if _, err := os.ReadFile(crt); err != nil {
					t.Errorf("the last known content is gone: %v", err)
				}
			}
		})
	}
}

func TestToken_IsRenewedBeforeExpiry(t *testing.T) {
	o, f := setUp(t)
	f.lifetime = time.Nanosecond
	pod := start(t, o)
	token := filepath.Join(pod.Dir(accountPath), "token")
	before, err := os.ReadFile(token)
	must(t, err)
	eventually(t, "the token is another one", func() bool {
		now, err := os.ReadFile(token)
		must(t, err)
		return !bytes.Equal(now, before)
	})
}

func TestProcess_RestartsAfterCrash(t *testing.T) {
	o, _ := setUp(t)
	pod := start(t, o)
	must(t, pod.WaitReady(within(t)))
	starts := pod.Status().Starts
	must(t, pod.Signal(syscall.SIGKILL))
	must(t, pod.WaitStarts(within(t), starts+1))
	must(t, pod.WaitReady(within(t)))
	if err := pod.Status().LastExit; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("last exit: %v", err)
	}
}

func TestProcess_RestartReadsVariablesAgain(t *testing.T) {
	o, f := setUp(t)
	pod := start(t, o)
	must(t, pod.WaitReady(within(t)))
	f.mu.Lock()
	f.configMaps["params"] = map[string]string{"mode": "autonomous"}
	f.mu.Unlock()
	must(t, pod.Restart(within(t)))
	must(t, pod.WaitReady(within(t)))
	if env := ask(t, o).Env; !slices.Contains(env, "MODE=autonomous") {
		t.Errorf("the environment is still %v", env)
	}
	if out, err := os.ReadFile(pod.OutputFile()); err != nil || !strings.Contains(string(out), "SIGTERM") {
		t.Errorf("no SIGTERM came: %v\n%s", err, out)
	}
}

func TestProbes_DecideReadinessAndLiveness(t *testing.T) {
	o, _ := setUp(t)
	pod := start(t, o)
	must(t, pod.WaitReady(within(t)))
	home := filepath.Join(o.Dir, "home")
	must(t, os.WriteFile(filepath.Join(home, "ready"), nil, 0o600))
	eventually(t, "the pod is not ready", func() bool { return !pod.Status().Ready })
	if err := pod.Status().LastProbe; err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("last probe: %v", err)
	}
	must(t, os.Remove(filepath.Join(home, "ready")))
	must(t, pod.WaitReady(within(t)))

	starts := pod.Status().Starts
	must(t, os.WriteFile(filepath.Join(home, "live"), nil, 0o600))
	must(t, pod.WaitStarts(within(t), starts+1))
	must(t, os.Remove(filepath.Join(home, "live")))
	if err := pod.Status().LastExit; err == nil || !strings.Contains(err.Error(), "liveness") {
		t.Errorf("last exit: %v", err)
	}
	must(t, pod.WaitReady(within(t)))
}

func TestProbes_NeverReadyIsReported(t *testing.T) {
	o, _ := setUp(t)
	o.Env["PODRUN_CHILD"] = "crash"
	pod := start(t, o)
	must(t, pod.WaitStarts(within(t), 3))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	err := pod.WaitReady(ctx)
	for _, want := range []string{"argocd/agent-0", "exit status 3", "output.log", "no patience"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestStop_KillsUnresponsiveProcess(t *testing.T) {
	o, _ := setUp(t)
	o.Env["PODRUN_CHILD"] = "stubborn"
	pod := start(t, o)
	must(t, pod.WaitReady(within(t)))
	pid := pod.Status().PID
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pod.Stop(ctx); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("stop: %v", err)
	}
	if alive(pid) {
		t.Errorf("process %d lives", pid)
	}
	if err := pod.WaitReady(t.Context()); err == nil || !strings.Contains(err.Error(), "was stopped") {
		t.Errorf("waiting for a stopped pod: %v", err)
	}
}

func TestStop_GracePeriodEndsInKill(t *testing.T) {
	o, _ := setUp(t)
	o.Env["PODRUN_CHILD"] = "stubborn"
	o.Template.Spec.TerminationGracePeriodSeconds = new(int64(0))
	pod := start(t, o)
	must(t, pod.WaitReady(within(t)))
	must(t, pod.Signal(syscall.SIGSTOP))
	must(t, pod.Stop(within(t)))
}

func TestProcess_EndsWithItsParent(t *testing.T) {
	program, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program, t.TempDir())
	cmd.Env = append(os.Environ(), "PODRUN_CHILD=parent")
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	var pid int
	_, err = fmt.Sscan(line, &pid)
	must(t, err)
	if !alive(pid) {
		t.Fatalf("process %d does not run", pid)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "the pod's process is gone", func() bool { return !alive(pid) })
}

// alive reports whether a process runs and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx := within(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
