package lab

import (
	"context"
	"errors"
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

// Build builds the tools that are missing and installs the packages that are.
func Build(ctx context.Context, progress io.Writer) error {
	_, err := build(ctx, progress)
	return err
}

func build(ctx context.Context, progress io.Writer) (tools.Set, error) {
	if err := debian.Ensure(ctx, debian.This(progress)); err != nil {
		return nil, err
	}
	builder, err := tools.NewBuilder(progress)
	if err != nil {
		return nil, err
	}
	return builder.Build(ctx)
}

// Up starts a lab and returns when every part of it answers. If it fails, or ctx is done before, nothing keeps running.
func Up(ctx context.Context, options Options) (*Lab, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	spec, err := prepare(ctx, &options)
	if err != nil {
		return nil, err
	}
	lock, err := claimFolder(spec.Folder)
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor holds it from here on
	if err := fillFolder(ctx, spec, options.Program); err != nil {
		return nil, err
	}
	if err := launch(ctx, spec.Folder, lock, options.Progress); err != nil {
		return nil, fmt.Errorf("start the lab in %s (logs are in %s): %w", spec.Folder, model.LogFolder(spec.Folder), err)
	}
	return Open(ctx, spec.Folder)
}

// prepare checks the wishes and builds what they need, before anything is touched.
func prepare(ctx context.Context, options *Options) (model.Spec, error) {
	if options.Folder == "" {
		folder, err := DefaultFolder("")
		if err != nil {
			return model.Spec{}, err
		}
		options.Folder = folder
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
	if spec.Tools, err = build(ctx, options.Progress); err != nil {
		return spec, err
	}
	kernel.RaiseLimits(options.Progress)
	return spec, nil
}

// ErrRunning says that a lab runs in the folder already.
var ErrRunning = errors.New("a lab is running there already")

// claimFolder makes the folder and takes its lock, which is held while a lab runs in it.
func claimFolder(folder string) (*os.File, error) {
	if err := checkFolder(folder); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the lab's folder: %w", err)
	}
	lock, err := os.OpenFile(model.LockFile(folder), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lab's lock: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	_ = lock.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("use %s: %w: look at it with `lab status`, end it with `lab down`, or choose another folder with -lab",
			folder, ErrRunning)
	}
	return nil, fmt.Errorf("lock %s: %w", folder, err)
}

// checkFolder refuses a folder that holds something other than a lab: what is there would be deleted.
func checkFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) || (err == nil && len(entries) == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look into the lab's folder: %w", err)
	}
	if _, err := os.Stat(model.LockFile(folder)); err != nil {
		return fmt.Errorf("%s holds something other than a lab: choose an empty or a new folder", folder)
	}
	return nil
}

// spaceToRun is what a lab writes in a day or so.
const spaceToRun = 1 << 30

// fillFolder clears what an earlier lab left, processes included, and lays out what the supervisor needs.
func fillFolder(ctx context.Context, spec model.Spec, program string) error {
	if err := proc.Sweep(ctx, spec.Folder); err != nil {
		return err
	}
	if err := clear(spec.Folder); err != nil {
		return err
	}
	var stat syscall.Statfs_t
	if err := syscall.Statfs(spec.Folder, &stat); err == nil && stat.Bavail*uint64(stat.Bsize) < spaceToRun {
		return fmt.Errorf("%s has %d MiB left and a lab needs %d MiB: free some space, or choose a folder on another disk with -lab",
			spec.Folder, stat.Bavail*uint64(stat.Bsize)>>20, spaceToRun>>20)
	}
	for _, folder := range []string{model.LogFolder(spec.Folder), model.BinFolder(spec.Folder)} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make a folder of the lab: %w", err)
		}
	}
	if err := provideProgram(ctx, program, supervisorProgram(spec.Folder)); err != nil {
		return err
	}
	return model.Write(model.SpecFile(spec.Folder), spec)
}

// clear removes everything but the lock.
func clear(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("clear the lab's folder: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if path == model.LockFile(folder) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("clear the lab's folder: %w", err)
		}
	}
	return nil
}

func supervisorProgram(folder string) string { return filepath.Join(model.BinFolder(folder), "lab") }

// launch starts the keeper, which starts the supervisor, and waits for its word. Should we die before, the supervisor
// notices that the leash is loose, and ends.
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
	keeper := exec.Command(supervisorProgram(folder), "keep", folder)
	keeper.Env = append(os.Environ(), proc.Mark(folder))
	keeper.Dir = folder
	keeper.Stdout, keeper.Stderr = log, log
	keeper.ExtraFiles = []*os.File{report, leash, lock}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the terminal's interrupt is for us, not for the lab
	err = keeper.Start()
	_, _, _ = report.Close(), leash.Close(), log.Close()
	if err != nil {
		return fmt.Errorf("start the keeper: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = keeper.Wait(); close(ended) }() // ends with the lab, long after we have returned

	followed := make(chan error, 1)
	go func() { followed <- supervisor.Follow(reports, progress) }()
	select {
	case err = <-followed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = hand.Close()
		<-ended // it takes down what it had started
	}
	return err
}
