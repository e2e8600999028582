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

// shared is the lab of this test process.
var shared = sync.OnceValues(func() (*Lab, error) { return openShared(context.Background()) })

// Get returns the lab that all packages of one `go test` run share. It starts the lab if necessary. Tests must use
// their own namespaces and names, and must not break it; see New. The lab ends with the `go test` command. If
// FolderVariable is set, that lab is used and kept.
//
// Tests that need a lab are skipped with -short.
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

// New returns a lab for one test. It ends with the test.
func New(t testing.TB, options Options) *Lab {
	t.Helper()
	skipIfShort(t)
	if options.Dir == "" {
		folder, err := os.MkdirTemp("", "lab-") //nolint:usetesting // a short path: gpg-agents open sockets in it
		if err != nil {
			t.Fatalf("create a directory for a lab: %v", err)
		}
		options.Dir = folder
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
		if _, err := os.Stat(l.Dir()); err != nil {
			return // the test has stopped it
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

// Await waits until check returns nil. After a long timeout it fails the test with the last error.
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

// openShared opens or starts the shared lab. A lock serializes the processes of the packages.
func openShared(ctx context.Context) (*Lab, error) {
	if os.Getenv(DirVariable) != "" {
		folder, err := DefaultDir("")
		if err != nil {
			return nil, err
		}
		return Open(ctx, folder)
	}
	owner := testOwner()
	folder, err := sharedDir(owner)
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
	return Up(ctx, Options{Dir: folder, WhilePID: owner, Ephemeral: true, Progress: os.Stderr})
}

// testOwner returns the process whose end is the end of the test run: `go test`, which runs one test process per
// package, or a test binary that is run directly.
func testOwner() int {
	parent := os.Getppid()
	program, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(parent), "exe"))
	if err == nil && filepath.Base(strings.TrimSuffix(program, " (deleted)")) == "go" {
		return parent
	}
	return os.Getpid()
}

// sharedDir returns the directory of the shared lab for its owner process. Process IDs are reused, so the start time
// is part of the name.
func sharedDir(owner int) (string, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(owner), "stat"))
	if err != nil {
		return "", fmt.Errorf("inspect process %d: %w", owner, err)
	}
	// The name of the binary, in parentheses, can contain any character. The start time is the 20th field after it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("inspect process %d: no start time in %q", owner, stat)
	}
	parent := filepath.Join(os.TempDir(), "argocd-agent-lab-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", fmt.Errorf("create the directory of shared labs: %w", err)
	}
	return filepath.Join(parent, fmt.Sprintf("%d-%s", owner, fields[19])), nil
}

// removeOld deletes remains of earlier shared labs: locks, and logs of labs that did not start.
func removeOld(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, entry := range entries {
		info, err := entry.Info()
		if path := filepath.Join(parent, entry.Name()); err == nil && time.Since(info.ModTime()) > 48*time.Hour && len(proc.Members(path)) == 0 {
			_ = os.RemoveAll(path)
		}
	}
}
