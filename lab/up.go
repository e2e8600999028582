package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/argocd-agent/argocd-agent/lab/internal/debian"
	"github.com/argocd-agent/argocd-agent/lab/internal/kernel"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
	"github.com/argocd-agent/argocd-agent/lab/internal/supervisor"
	"github.com/argocd-agent/argocd-agent/lab/internal/tools"
)

// Build builds missing tools and installs missing packages. Without names, it builds all tools.
func Build(ctx context.Context, progress io.Writer, names ...string) error {
	_, err := build(ctx, progress, names...)
	return err
}

func build(ctx context.Context, progress io.Writer, names ...string) (tools.Set, error) {
	if err := tools.ExtendPath(); err != nil {
		return nil, err
	}
	if err := debian.Ensure(ctx, debian.This(progress), debian.Lab); err != nil {
		return nil, err
	}
	builder, err := tools.NewBuilder(progress, names...)
	if err != nil {
		return nil, err
	}
	return builder.Build(ctx)
}

// Up starts a lab and returns when every component is ready. If it fails, or ctx is done, nothing keeps running.
func Up(ctx context.Context, options Options) (*Lab, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	spec, err := prepare(ctx, &options)
	if err != nil {
		return nil, err
	}
	lock, err := claimDir(spec.Folder)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor holds it from here on
	if err := prepareDir(ctx, spec, options.Binary); err != nil {
		return nil, err
	}
	if err := launch(ctx, spec.Folder, lock, options.Progress); err != nil {
		return nil, fmt.Errorf("start the lab in %s (logs are in %s): %w", spec.Folder, model.LogFolder(spec.Folder), err)
	}
	return Open(ctx, spec.Folder)
}

// prepare checks the options and builds the tools before anything is changed.
func prepare(ctx context.Context, options *Options) (model.Spec, error) {
	if options.Dir == "" {
		folder, err := DefaultDir("")
		if err != nil {
			return model.Spec{}, err
		}
		options.Dir = folder
	}
	spec, err := options.spec()
	if err != nil {
		return spec, err
	}
	if spec.ArgoCDPort != 0 {
		if err := ports.Check(spec.ArgoCDPort); err != nil {
			return spec, fmt.Errorf("use port %d for argocd-server: %w", spec.ArgoCDPort, err)
		}
	}
	checkout, err := tools.Checkout()
	if err != nil {
		return spec, err
	}
	spec.Install = filepath.Join(checkout, "install")
	if spec.Tools, err = build(ctx, options.Progress, options.Tools...); err != nil {
		return spec, err
	}
	kernel.RaiseLimits(options.Progress)
	return spec, nil
}

func supervisorBinary(folder string) string { return filepath.Join(model.BinFolder(folder), "lab") }

// launch starts the cleanup process, which starts the supervisor, and waits for its report. If this process ends
// before, the supervisor detects that the pipe is closed, and ends.
func launch(ctx context.Context, folder string, lock *os.File, progress io.Writer) error {
	reports, report, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	leash, hand, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hand.Close()
	log, err := os.Create(filepath.Join(model.LogFolder(folder), "lab.log"))
	if err != nil {
		return err
	}
	cleanup := exec.Command(supervisorBinary(folder), "keep", folder)
	cleanup.Env = append(os.Environ(), proc.LabVariable(folder))
	cleanup.Dir = folder
	cleanup.Stdout, cleanup.Stderr = log, log
	cleanup.ExtraFiles = []*os.File{report, leash, lock}
	cleanup.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the interrupt of the terminal is not for the lab
	err = cleanup.Start()
	_, _, _ = report.Close(), leash.Close(), log.Close()
	if err != nil {
		return fmt.Errorf("start the cleanup: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cleanup.Wait(); close(ended) }() // ends with the lab

	followed := make(chan error, 1)
	go func() { followed <- supervisor.Follow(reports, progress) }()
	select {
	case err = <-followed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = hand.Close()
		<-ended // it stops everything that it started
	}
	return err
}
