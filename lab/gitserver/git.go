package gitserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// gitEnv returns the environment of git: without the user's configuration and prompts, with English messages.
func gitEnv(extra ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.DevNull,
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0",
	}, extra...)
}

// command describes one process: its input, additional environment and arguments.
type command struct {
	program string
	args    []string
	env     []string
	stdin   string
}

// run executes c and returns its standard output. The error has the start of the command line and the error output.
func (c command) run(ctx context.Context) (string, error) {
	path, err := lookProgram(c.program)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Env = gitEnv(c.env...)
	cmd.WaitDelay = 10 * time.Second
	cmd.Stdin = strings.NewReader(c.stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		shown := c.args[:min(len(c.args), 6)]
		return "", fmt.Errorf("%s %s: %w: %s", c.program, strings.Join(shown, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// git runs git in the repository directory dir and returns the trimmed output.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	return gitInput(ctx, dir, "", nil, args...)
}

func gitInput(ctx context.Context, dir, stdin string, env []string, args ...string) (string, error) {
	out, err := command{
		program: "git",
		args:    append([]string{"--git-dir", dir}, args...),
		env:     env,
		stdin:   stdin,
	}.run(ctx)
	return strings.TrimSpace(out), err
}

// debianPackage returns the package of a binary.
var debianPackage = map[string]string{
	"git": "git", "gpg": "gnupg", "gpg-connect-agent": "gnupg",
}

func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not installed: install the package %[2]s (on Debian: apt-get install %[2]s): %w", name, debianPackage[name], err)
	}
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return path, nil
}
