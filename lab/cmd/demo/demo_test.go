package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestTour runs the demo, and every command of its tour in order.
func TestTour(t *testing.T) {
	if testing.Short() {
		t.Skip("needs clusters")
	}
	t.Chdir("../../..")
	d := &demo{began: time.Now()}
	t.Cleanup(d.close)
	step := func(what string, do func(context.Context) error) {
		t.Helper()
		d.say("%s", what)
		if err := do(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	step("build the lab's tools", func(ctx context.Context) error { return lab.Build(ctx, os.Stderr, tools...) })
	step("build", d.build)
	step("up", func(ctx context.Context) error { return d.up(ctx, filepath.Join(t.TempDir(), "lab")) })
	step("install the principal", d.installPrincipal)
	for _, spoke := range spokes {
		step("join "+spoke.Name, func(ctx context.Context) error { return d.join(ctx, spoke) })
	}
	step("deploy", d.deploy)
	var tour bytes.Buffer
	step("tour", func(ctx context.Context) error { return d.tour(ctx, &tour) })

	folder := t.TempDir()
	commands := 0
	for line := range strings.SplitSeq(tour.String(), "\n") {
		command, indented := strings.CutPrefix(line, "    ")
		command, _, _ = strings.Cut(command, " #")
		if !indented || strings.HasPrefix(command, "go run ") {
			continue // it creates the environment of the other commands
		}
		command = strings.Replace(strings.TrimSpace(command), "exec -it deploy/guestbook -- sh", "exec deploy/guestbook -- sh -c 'echo hello'", 1)
		commands++
		d.say("$ %s", command)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
		cmd.Dir = folder
		cmd.Env = append(append(os.Environ(), d.lab.Environment()...), "PATH="+filepath.Join(d.lab.Dir(), "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("$ %s\n%s%v", command, out, err)
		}
		if strings.Contains(command, "echo hello") && !strings.Contains(string(out), "hello") {
			t.Errorf("$ %s\n%s", command, out)
		}
	}
	if commands < 10 {
		t.Errorf("the tour has %d commands:\n%s", commands, tour.String())
	}
	// The sync that was requested while the agent was stopped runs, and the hub receives its status.
	step("heal", func(ctx context.Context) error { return d.waitUntilIdle(ctx, "managed") })
}
