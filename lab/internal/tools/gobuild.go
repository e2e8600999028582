package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// golang runs go and reports when it waits.
type golang struct{ progress io.Writer }

// build compiles a tool from its nested module and copies its files.
func (g golang) build(ctx context.Context, tool Tool, checkout, version, program string) error {
	flags := []string{"-s", "-w"}
	for _, symbol := range tool.Stamp {
		stamp := version
		if strings.HasSuffix(symbol, "common.version") { // Argo CD writes its version without the v
			stamp = strings.TrimPrefix(version, "v")
		}
		flags = append(flags, "-X", symbol+"="+stamp)
	}
	source := tool.source(checkout)
	if _, err := g.command(ctx, source, "build", "-trimpath", "-ldflags", strings.Join(flags, " "),
		"-o", program, tool.Package); err != nil {
		return err
	}
	if len(tool.Files) == 0 {
		return nil
	}
	folder, err := g.command(ctx, source, "list", "-m", "-f", "{{.Dir}}", tool.Module)
	if err != nil {
		return err
	}
	return copyFiles(strings.TrimSpace(folder), filepath.Dir(program), tool.Files)
}

// retryable matches errors of busy registries.
var retryable = []string{"429", "too many requests", "502 bad gateway", "503 service", "504 gateway",
	"connection reset", "tls handshake timeout", "i/o timeout", "unexpected eof"}

// command runs go in a nested module. It retries with growing pauses while the registry is busy.
func (g golang) command(ctx context.Context, folder string, args ...string) (string, error) {
	for pause := 10 * time.Second; ; pause *= 2 {
		out, err := goOnce(ctx, folder, args...)
		if err == nil || pause > 3*time.Minute || !isBusy(err) {
			return out, err
		}
		fmt.Fprintf(g.progress, "the registry of modules is busy or out of reach: trying again in %s\n", pause)
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func goOnce(ctx context.Context, folder string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	command.Stdout, command.Stderr = &stdout, &stderr
	// The compilers that go starts must end with it, and go must end with us.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread() // the death signal belongs to the thread that forked
	defer runtime.UnlockOSThread()
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		text := lastLines(stderr.String(), 20)
		if strings.Contains(text, syscall.ENOSPC.Error()) {
			err = errors.Join(err, syscall.ENOSPC)
		}
		return "", fmt.Errorf("go %s in %s: %w\n%s", args[0], folder, err, text)
	}
	return stdout.String(), nil
}

func isBusy(err error) bool {
	text := strings.ToLower(err.Error())
	for _, words := range retryable {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// copyFiles copies files that match the globs below from, with their relative paths.
func copyFiles(from, to string, globs []string) error {
	for _, glob := range globs {
		files, err := filepath.Glob(filepath.Join(from, glob))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("%s has no %s", from, glob)
		}
		for _, file := range files {
			relative, err := filepath.Rel(from, file)
			if err != nil {
				return err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			target := filepath.Join(to, relative)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(target, content, 0o755); err != nil { // some are scripts
				return err
			}
		}
	}
	return nil
}
