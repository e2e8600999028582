package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain stops all processes that tests have started.
func TestMain(m *testing.M) {
	code := m.Run()
	endAll()
	os.Exit(code)
}

// build builds the binaries once for all tests.
var build = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "argocd-agent-e2e-")
	if err != nil {
		return "", err
	}
	atExit(func() { _ = os.RemoveAll(folder) })
	file := filepath.Join(folder, "argocd-agent")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", "build", "-o", file, "github.com/argocd-agent/argocd-agent/cmd/argocd-agent").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build argocd-agent: %w: %s", err, out)
	}
	return file, nil
})

// exits lists the functions to call when the test process ends.
var exits struct {
	sync.Mutex
	do []func()
}

func atExit(do func()) {
	exits.Lock()
	defer exits.Unlock()
	exits.do = append(exits.do, do)
}

func endAll() {
	exits.Lock()
	defer exits.Unlock()
	for _, do := range slices.Backward(exits.do) {
		do()
	}
}

// program is argocd-agent as a child process: principal or agent. It can be restarted.
type program struct {
	name string
	file string // binary; if empty, that of this tree
	args []string
	log  string // all runs append to this file

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
	err   error         // reason, valid after that
}

func newProgram(name, logFolder string, args ...string) *program {
	p := &program{name: name, args: args, log: filepath.Join(logFolder, "e2e-"+name+".log")}
	atExit(func() { p.signal(syscall.SIGKILL) })
	return p
}

// launches start on one thread that never ends. The kernel ends a child together with the thread that started it.
var launches = sync.OnceValue(func() chan func() {
	todo := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range todo {
			do()
		}
	}()
	return todo
})

// start starts the process. It does not wait until it is ready.
func (p *program) start(t testing.TB) {
	t.Helper()
	file := p.file
	if file == "" {
		var err error
		if file, err = build(); err != nil {
			t.Fatal(err)
		}
	}
	if p.running() {
		t.Fatalf("%s is running already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatalf("open the log of %s: %v", p.name, err)
	}
	defer log.Close()
	cmd := exec.Command(file, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")} // without other variables of this machine
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	launches() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.err = cmd, ended, nil
	go func() { p.err = cmd.Wait(); close(ended) }() // ends with the child
}

func (p *program) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *program) signal(s syscall.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(s)
	}
}

// kill ends the process as a crash does.
func (p *program) kill(t testing.TB) {
	t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait(t)
}

// terminate stops the process with SIGTERM, as Kubernetes does, and returns its exit code.
func (p *program) terminate(t testing.TB) int {
	t.Helper()
	p.signal(syscall.SIGTERM)
	return p.wait(t)
}

// wait waits for the end of the process and returns its exit code, or -1 after a signal.
func (p *program) wait(t testing.TB) int {
	t.Helper()
	if p.cmd == nil {
		return 0
	}
	select {
	case <-p.ended:
	case <-time.After(*patience):
		t.Fatalf("%s does not end", p.name)
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return exit.ExitCode()
	}
	return 0
}

// freeze stops the process with SIGSTOP. It keeps its connections and does not respond.
func (p *program) freeze() { p.signal(syscall.SIGSTOP) }

// thaw continues a frozen process.
func (p *program) thaw() { p.signal(syscall.SIGCONT) }

func (p *program) restart(t testing.TB) {
	t.Helper()
	p.kill(t)
	p.start(t)
}

// logged returns the log of the process.
func (p *program) logged(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(p.log)
	if err != nil {
		t.Fatalf("read the log of %s: %v", p.name, err)
	}
	return string(content)
}

// waitForLog waits for a log line with all these texts after an offset of logOffset.
func (p *program) waitForLog(t testing.TB, since int, texts ...string) string {
	t.Helper()
	var found string
	await(t, p.name+" to log "+strings.Join(texts, " … "), func() error {
		for line := range strings.Lines(p.logged(t)[since:]) {
			if containsAll(line, texts) {
				found = line
				return nil
			}
		}
		return fmt.Errorf("it has not; see %s", p.log)
	})
	return found
}

// logOffset returns the current length of the log.
func (p *program) logOffset(t testing.TB) int {
	t.Helper()
	if _, err := os.Stat(p.log); err != nil {
		return 0
	}
	return len(p.logged(t))
}

func containsAll(s string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(s, text) {
			return false
		}
	}
	return true
}
