package main

import (
	"context"
	"errors"
	"os"

	"github.com/argocd-agent/argocd-agent/lab/internal/supervisor"
)

// Files that Up passes to the cleanup process, and that passes to the supervisor.
const (
	reportDescriptor = 3 + iota
	parentPipeFD
	lockDescriptor
)

// runCleanup is the process that cleans up after the supervisor.
func runCleanup(_ context.Context, c *call) error {
	if len(c.args) != 1 {
		return errors.New("this command is for the lab itself: use `lab up`")
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	report, leash := os.NewFile(reportDescriptor, "report"), os.NewFile(parentPipeFD, "leash")
	lock := os.NewFile(lockDescriptor, "lock")
	err = supervisor.RunWithCleanup(c.args[0], program, func() {
		_, _ = report.Close(), leash.Close()
	}, report, leash, lock)
	_ = lock.Close()
	return err
}

// runSupervise is the process that owns the lab.
func runSupervise(_ context.Context, c *call) error {
	if len(c.args) != 1 {
		return errors.New("this command is for the lab itself: use `lab up`")
	}
	report := supervisor.NewReporter(os.NewFile(reportDescriptor, "report"))
	return supervisor.Run(c.args[0], report, os.NewFile(parentPipeFD, "leash"))
}

// runServeGit is the Git server.
func runServeGit(ctx context.Context, c *call) error {
	if len(c.args) != 4 {
		return errors.New("this command is for the lab itself: use `lab up`")
	}
	return supervisor.ServeGit(ctx, c.args[0], c.args[1], c.args[2], c.args[3])
}
