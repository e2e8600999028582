// Package debian installs the Debian packages that the lab and the tests need.
package debian

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Package is a program and its Debian package.
type Package struct{ program, name string }

// Packages of the lab, and those that only the tests of the fleet view need.
var (
	Lab     = []Package{{"redis-server", "redis-server"}, {"git", "git"}, {"gpg", "gnupg"}}
	Browser = []Package{{"chromium", "chromium"}, {"npm", "npm"}}
)

// System is the access to the machine. Tests replace it.
type System struct {
	Root     bool
	Progress io.Writer
	Look     func(program string) error
	Run      func(ctx context.Context, command ...string) ([]byte, error)
	Wait     func(ctx context.Context, pause time.Duration) error
}

// This is the machine that we run on.
func This(progress io.Writer) System {
	return System{
		Root:     os.Geteuid() == 0,
		Progress: progress,
		Look:     func(program string) error { _, err := exec.LookPath(program); return err },
		Run:      run,
		Wait:     wait,
	}
}

// Ensure installs missing packages if it can. Otherwise it returns an error with the command.
func Ensure(ctx context.Context, system System, packages []Package) error {
	var missing []string
	for _, one := range packages {
		if system.Look(one.program) != nil {
			missing = append(missing, one.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	install := append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, missing...)
	hint := "apt-get update && " + strings.Join(install, " ")
	if !system.Root {
		return fmt.Errorf("%s missing: run: sudo sh -c '%s'", strings.Join(missing, ", "), hint)
	}
	if system.Look("apt-get") != nil {
		return fmt.Errorf("%s missing, and this machine has no apt-get: install them with its package manager", strings.Join(missing, ", "))
	}
	fmt.Fprintf(system.Progress, "installing %s\n", strings.Join(missing, ", "))
	for _, command := range [][]string{{"apt-get", "update"}, install} {
		if err := patiently(ctx, system, command); err != nil {
			return fmt.Errorf("install %s (try it by hand: %s): %w", strings.Join(missing, ", "), hint, err)
		}
	}
	return nil
}

// patiently retries a command with growing pauses: mirrors can be busy, or another apt-get can hold the lock.
func patiently(ctx context.Context, system System, command []string) error {
	for pause := 5 * time.Second; ; pause *= 2 {
		out, err := system.Run(ctx, command...)
		if err == nil || pause > 90*time.Second || !busy(out) {
			if err != nil {
				return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(out))
			}
			return nil
		}
		if err := system.Wait(ctx, pause); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pause):
		return nil
	}
}

func busy(output []byte) bool {
	text := strings.ToLower(string(output))
	for _, words := range []string{"429", "too many requests", "503", "could not get lock", "temporary failure", "connection timed out"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

func run(ctx context.Context, command ...string) ([]byte, error) {
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	// RUNLEVEL prevents Debian from starting its own Redis.
	process.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	return process.CombinedOutput()
}
