package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// copyBinary copies the lab binary, which supervises, to the directory of the lab, because `go run` deletes its own
// binary. In tests it is built from the checkout.
func copyBinary(ctx context.Context, program, target string) error {
	if program != "" {
		return copyProgram(program, target)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	folder := filepath.Join(cache, "argocd-agent-lab", "program")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("create the directory of the lab binary: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock the lab binary: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the lab binary: %w", err)
	}
	built := filepath.Join(folder, "lab") // go does not link again if it is up to date
	command := exec.CommandContext(ctx, "go", "build", "-o", built, "github.com/argocd-agent/argocd-agent/lab/cmd/lab")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("build the lab binary: %w: %s", err, out)
	}
	return copyProgram(built, target)
}

func copyProgram(program, target string) error {
	source, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("copy the lab binary: %w", err)
	}
	defer source.Close()
	copied, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return fmt.Errorf("copy the lab binary: %w", err)
	}
	if _, err := io.Copy(copied, source); err != nil {
		_ = copied.Close()
		return fmt.Errorf("copy the lab binary: %w", err)
	}
	return copied.Close()
}
