package tools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// newTestBuilder returns a builder with the real versions that compiles nothing, and counts.
func newTestBuilder(t *testing.T) (*Builder, map[string]int, *strings.Builder) {
	t.Helper()
	checkout, err := Checkout()
	if err != nil {
		t.Fatal(err)
	}
	compiled, progress := map[string]int{}, &strings.Builder{}
	return &Builder{
		Checkout: checkout, Cache: t.TempDir(), Progress: progress,
		compile: func(_ context.Context, tool Tool, _, _, program string) error {
			compiled[tool.Name]++
			return os.WriteFile(program, []byte("program"), 0o755)
		},
		freeSpace: func(string) (uint64, error) { return 100 << 30, nil },
	}, compiled, progress
}

func TestTools_ArePinnedAndBuiltOnce(t *testing.T) {
	builder, compiled, progress := newTestBuilder(t)
	for range 2 {
		set, err := builder.Build(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range All() {
			if _, err := os.Stat(set.Binary(tool.Name)); err != nil {
				t.Errorf("%s: %v", tool.Name, err)
			}
			if compiled[tool.Name] != 1 {
				t.Errorf("%s was built %d times, want once", tool.Name, compiled[tool.Name])
			}
		}
	}
	last := fmt.Sprintf("[%d/%d] ", len(All()), len(All()))
	if !strings.Contains(progress.String(), last) || !strings.Contains(progress.String(), "built in") {
		t.Errorf("progress does not count: %s", progress)
	}
}

func TestBuild_KilledBuildLeavesNoPartialFile(t *testing.T) {
	builder, compiled, _ := newTestBuilder(t)
	whole := builder.compile
	ctx, kill := context.WithCancelCause(t.Context())
	builder.compile = func(ctx context.Context, tool Tool, checkout, version, program string) error {
		if tool.Name != "kube-apiserver" {
			return whole(ctx, tool, checkout, version, program)
		}
		if err := os.WriteFile(program, []byte("half"), 0o755); err != nil {
			return err
		}
		kill(errors.New("killed"))
		return context.Cause(ctx)
	}
	if _, err := builder.Build(ctx); err == nil || !strings.Contains(err.Error(), "build kube-apiserver v1") {
		t.Fatalf("got %v", err)
	}
	// A killed build cannot clean up.
	if err := os.MkdirAll(filepath.Join(builder.Cache, leftoverPrefix+"kwok-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, missing, err := builder.find(); err != nil || missing[0] != "kube-apiserver" {
		t.Fatalf("missing %v, %v", missing, err)
	}
	builder.compile = whole
	set, err := builder.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(set.Binary("kube-apiserver")); string(content) != "program" {
		t.Errorf("kube-apiserver is %q", content)
	}
	if compiled["etcd"] != 1 {
		t.Errorf("etcd was finished before the kill, and built %d times", compiled["etcd"])
	}
	if left, _ := filepath.Glob(filepath.Join(builder.Cache, leftoverPrefix+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBuild_FullDiskIsReportedBefore(t *testing.T) {
	builder, compiled, _ := newTestBuilder(t)
	builder.freeSpace = func(string) (uint64, error) { return 10 << 20, nil }
	_, err := builder.Build(t.Context())
	if err == nil || !strings.Contains(err.Error(), "10 MiB left") || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
	if len(compiled) > 0 {
		t.Errorf("compiled %v on a full disk", compiled)
	}
}

func TestBuild_DiskFullDuringBuildIsReported(t *testing.T) {
	builder, _, _ := newTestBuilder(t)
	builder.compile = func(context.Context, Tool, string, string, string) error {
		return fmt.Errorf("go build: %w", syscall.ENOSPC)
	}
	if _, err := builder.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("got %v", err)
	}
}

func TestBuild_SecondBuildWaits(t *testing.T) {
	builder, _, progress := newTestBuilder(t)
	unlock, err := builder.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := builder.Build(ctx); err == nil || err.Error() != "enough" {
		t.Errorf("got %v, want it to give up waiting", err)
	}
	if !strings.Contains(progress.String(), "another build is running") {
		t.Errorf("progress: %s", progress)
	}
}

func TestBuild_RetriesOnlyBusyRegistry(t *testing.T) {
	for text, want := range map[string]bool{
		"reading https://example.com/x.mod: 429 Too Many Requests": true,
		"dial tcp: i/o timeout":            true,
		"undefined: notThere":              false,
		"module x: not found: 404 Missing": false,
	} {
		if got := isBusy(errors.New(text)); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
