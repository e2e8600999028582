package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An environment variable makes the test binary act as cleanup process or supervisor of a lab.
func TestMain(m *testing.M) {
	switch folder := os.Getenv("PROC_TEST_FOLDER"); os.Getenv("PROC_TEST_ROLE") {
	case "cleanup":
		self := exec.Command(os.Args[0])
		self.Env = append(os.Environ(), "PROC_TEST_ROLE=supervisor")
		_ = RunWithCleanup(folder, self, func() {})
		os.Exit(0)
	case "supervisor":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		group := &Group{}
		// A component with a child in its own session, which is in no process group of ours.
		if _, err := group.Start(shell(folder, "setsid sleep 1000 & echo > started; sleep 1000")); err != nil {
			os.Exit(1)
		}
		<-terminated
		group.Close()
		_ = Sweep(context.Background(), folder)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func shell(folder, script string) Spec {
	return Spec{
		Name: "test/shell", Program: "/bin/sh", Args: []string{"sh", "-c", script},
		Env: []string{"PATH=" + os.Getenv("PATH"), LabVariable(folder)}, Dir: folder, Log: filepath.Join(folder, "log"),
	}
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func startShell(t *testing.T, script string) (*Component, string) {
	t.Helper()
	folder := t.TempDir()
	group := &Group{}
	component, err := group.Start(shell(folder, script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	return component, folder
}

// processState returns the state letter of the kernel: R, S, T (stopped), Z …
func processState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "gone"
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[0]
}

func TestGroup_StopAndContinue(t *testing.T) {
	c, _ := startShell(t, "exec sleep 1000")
	pid := c.Status().PID
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	await(t, "a frozen process", func() bool { return processState(pid) == "T" })
	if got := c.Status().State; got != Stopped {
		t.Errorf("state is %s", got)
	}
	if err := c.Stop(); err == nil {
		t.Error("a stopped component was stopped again")
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	await(t, "a thawed process", func() bool { return processState(pid) != "T" })
	if got := c.Status(); got.State != Running || got.PID != pid {
		t.Errorf("got %+v", got)
	}
}

func TestGroup_KillEndsProcessGroup(t *testing.T) {
	c, folder := startShell(t, "sleep 1000 & sleep 1000")
	await(t, "shell and two children", func() bool { return len(Members(folder)) == 3 })
	c.Kill()
	await(t, "no process left", func() bool { return len(Members(folder)) == 0 })
	if got := c.Status(); got.State != Killed || got.PID != 0 || got.Restarts != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestGroup_StoppedComponentCanBeKilledAndRestarted(t *testing.T) {
	c, _ := startShell(t, "exec sleep 1000")
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	before := c.Status().PID
	if err := c.Restart(Change{}); err != nil {
		t.Fatal(err)
	}
	if got := c.Status(); got.State != Running || got.PID == before {
		t.Errorf("got %+v, was %d", got, before)
	}
}

func TestGroup_RestartsExitedComponent(t *testing.T) {
	c, folder := startShell(t, "echo life >> lives; exec sleep 1000")
	first := c.Status().PID
	await(t, "a first life", func() bool { return lives(folder) == 1 })
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "a second life", func() bool { return lives(folder) == 2 })
	if got := c.Status(); got.Restarts != 1 || got.PID == first || got.State != Running {
		t.Errorf("got %+v", got)
	}
}

func lives(folder string) int {
	content, _ := os.ReadFile(filepath.Join(folder, "lives"))
	return strings.Count(string(content), "life")
}

func TestGroup_RestartAppliesChanges(t *testing.T) {
	folder := t.TempDir()
	spec := shell(folder, `echo "$WORD $*" > said; exec sleep 1000`)
	spec.Args = append(spec.Args, "sh", "--keep=1", "--drop=2")
	group := &Group{}
	c, err := group.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	err = c.Restart(Change{Flags: map[string]string{"--drop": "", "--new": "3"}, Env: map[string]string{"WORD": "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the new words", func() bool {
		said, _ := os.ReadFile(filepath.Join(folder, "said"))
		return string(said) == "hello --keep=1 --new=3\n"
	})
}

func TestGroup_StartFailureIsReported(t *testing.T) {
	c, _ := startShell(t, "echo no such option >&2; exit 1")
	err := c.WaitReady(t.Context(), func(context.Context) error { return errors.New("not listening") })
	if !errors.Is(err, ErrKeepsEnding) || !strings.Contains(err.Error(), "no such option") {
		t.Errorf("got %v", err)
	}
}

func TestGroup_UnknownComponentListsKnownOnes(t *testing.T) {
	group := &Group{}
	if _, err := group.Start(shell(t.TempDir(), "sleep 1000")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	_, err := group.Find("hub/etdc")
	if err == nil || !strings.Contains(err.Error(), `"hub/etdc"`) || !strings.Contains(err.Error(), "test/shell") {
		t.Errorf("got %v", err)
	}
}

// startCleanup starts a cleanup process, its supervisor, a component and a grandchild that left the process group of the
// component.
func startCleanup(t *testing.T) (folder string, cleanup *exec.Cmd, supervisor int) {
	t.Helper()
	folder = t.TempDir()
	cleanup = exec.Command(os.Args[0])
	cleanup.Env = append(os.Environ(), "PROC_TEST_ROLE=cleanup", "PROC_TEST_FOLDER="+folder, LabVariable(folder))
	if err := cleanup.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = Sweep(context.Background(), folder)
		_ = cleanup.Wait()
	})
	await(t, "cleanup, supervisor, shell and two sleeps", func() bool { return len(Members(folder)) == 5 })
	for _, pid := range Members(folder) {
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if hasEntry(string(environment), "PROC_TEST_ROLE=supervisor") {
			supervisor = pid
		}
	}
	return folder, cleanup, supervisor
}

func TestCleanup_AfterKilledSupervisor(t *testing.T) {
	folder, _, supervisor := startCleanup(t)
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "no process left", func() bool { return len(Members(folder)) == 0 })
}

func TestCleanup_AfterKilledWatchdog(t *testing.T) {
	folder, cleanup, _ := startCleanup(t)
	if err := cleanup.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cleanup.Wait()
	await(t, "no process left", func() bool { return len(Members(folder)) == 0 })
}

func TestCleanup_SweepAfterBothKilled(t *testing.T) {
	folder, cleanup, supervisor := startCleanup(t)
	for _, pid := range []int{cleanup.Process.Pid, supervisor} { // stop both, so that neither can clean up
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	if left := Members(folder); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestWaitGone_ReturnsAfterExit(t *testing.T) {
	c, _ := startShell(t, "exec sleep 1000")
	pid := c.Status().PID
	gone := make(chan error, 1)
	go func() { gone <- WaitGone(t.Context(), pid) }()
	c.Kill()
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
}
