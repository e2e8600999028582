package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// shared is the lab of this test process: started, or found, once.
var shared = sync.OnceValues(func() (*Lab, error) { return openShared(context.Background()) })

// Get returns the lab that all packages of one `go test` run share, and starts it if this is the first to ask. Tests use
// namespaces and names of their own in it and break nothing; see New for those that do. It ends with the `go test`
// command. If FolderVariable is set, the lab there is used instead, and stays.
//
// Tests that ask for a lab are skipped under -short.
func Get(t testing.TB) *Lab {
	t.Helper()
	skipIfShort(t)
	l, err := shared()
	if err != nil {
		t.Fatalf("get the shared lab: %v", err)
	}
	t.Cleanup(func() { saveIfFailed(t, l) })
	return l
}

// New returns a lab of the test's own, which ends with the test.
func New(t testing.TB, options Options) *Lab {
	t.Helper()
	skipIfShort(t)
	if options.Folder == "" {
		folder, err := os.MkdirTemp("", "lab-") //nolint:usetesting // a short path: gpg-agents open sockets in it
		if err != nil {
			t.Fatalf("make a folder for a lab: %v", err)
		}
		options.Folder = folder
	}
	options.WhilePID, options.Ephemeral = os.Getpid(), true
	if options.Progress == nil {
		options.Progress = os.Stderr
	}
	l, err := Up(t.Context(), options)
	if err != nil {
		t.Fatalf("start a lab: %v", err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(l.Folder()); err != nil {
			return // the test has ended it
		}
		saveIfFailed(t, l)
		if err := l.Down(context.Background()); err != nil {
			t.Errorf("end the lab: %v", err)
		}
	})
	return l
}

func skipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("this test needs real clusters, which -short leaves out")
	}
}

// Await returns when check returns nil. It fails the test, with the last answer, when that takes longer than a machine
// can be slow.
func Await(t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// openShared opens the shared lab, or starts it. A lock makes the packages, each a process of its own, do so one by one.
func openShared(ctx context.Context) (*Lab, error) {
	if os.Getenv(FolderVariable) != "" {
		folder, err := DefaultFolder("")
		if err != nil {
			return nil, err
		}
		return Open(ctx, folder)
	}
	owner := testOwner()
	folder, err := sharedFolder(owner)
	if err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(folder+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the shared lab: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("wait for another package to start the shared lab: %w", err)
	}
	if l, err := Open(ctx, folder); err == nil {
		return l, nil
	}
	removeOld(filepath.Dir(folder))
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // it may have to build
	defer cancel()
	return Up(ctx, Options{Folder: folder, WhilePID: owner, Ephemeral: true, Progress: os.Stderr})
}

// testOwner is the process whose end is the end of the test run: `go test`, which runs one test process for each package.
// A test binary that somebody runs by hand owns its lab itself.
func testOwner() int {
	parent := os.Getppid()
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(parent), "exe"))
	if err == nil && filepath.Base(strings.TrimSuffix(program, " (deleted)")) == "go" {
		return parent
	}
	return os.Getpid()
}

// sharedFolder names the shared lab after the process that owns it. Process numbers return, so the start time is part of
// the name.
func sharedFolder(owner int) (string, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(owner), "stat"))
	if err != nil {
		return "", fmt.Errorf("look at process %d: %w", owner, err)
	}
	// The program's name, in parentheses, may hold anything; the start time is the 20th field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("look at process %d: no start time in %q", owner, stat)
	}
	parent := filepath.Join(os.TempDir(), "argocd-agent-lab-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of shared labs: %w", err)
	}
	return filepath.Join(parent, fmt.Sprintf("%d-%s", owner, fields[19])), nil
}

// removeOld removes what shared labs of other days left: locks, and the logs of those that did not start.
func removeOld(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		info, err := entry.Info()
		if path := filepath.Join(parent, entry.Name()); err == nil && time.Since(info.ModTime()) > 48*time.Hour && len(proc.Members(path)) == 0 {
			_ = os.RemoveAll(path)
		}
	}
}
