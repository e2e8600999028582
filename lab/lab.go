// Package lab runs real clusters with real Argo CD as local processes, for the demo, the tests and the benchmarks.
//
// A lab is a hub and any number of spokes. Each cluster has its own etcd and Kubernetes control plane, simulated nodes,
// a Redis with a password and the components of Argo CD for its role. A Git server serves all clusters. The lab uses
// one directory and free ports of the loopback interface. A supervisor owns the processes and serves a socket in the
// directory, so that one process can start a lab and another can use it:
//
//	go run ./lab/cmd/lab up
//	go run ./lab/cmd/lab shell
//	go run ./lab/cmd/lab down
//
// A test uses the lab that all packages of a `go test` run share, or its own:
//
//	l := lab.Get(t)                // shared
//	l := lab.New(t, lab.Options{}) // its own
//	apps := l.Cluster("managed").Dynamic()
//
// The shared lab must not be broken, and tests use their own namespaces in it. On failure, the logs of all components
// and the objects of all clusters are saved, and their directory is printed.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/argocd-agent/argocd-agent/lab/internal/control"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Lab is a running lab.
type Lab struct {
	model.State
	control *control.Client
}

// Status is the state of a component.
type Status = proc.Status

// Open returns the lab that runs in directory.
func Open(ctx context.Context, folder string) (*Lab, error) {
	l := &Lab{control: control.NewClient(folder)}
	if _, err := l.control.Status(ctx); err != nil {
		return nil, fmt.Errorf("%w: start one with `lab up`", err)
	}
	if err := model.Read(model.StateFile(folder), &l.State); err != nil {
		return nil, fmt.Errorf("read the state of the lab: %w", err)
	}
	return l, nil
}

// Dir returns the directory of the lab.
func (l *Lab) Dir() string { return l.Spec.Folder }

// Status returns all components.
func (l *Lab) Status(ctx context.Context) ([]Status, error) { return l.control.Status(ctx) }

// Port reserves a port of the lab, outside the ephemeral range of the kernel.
func (l *Lab) Port(ctx context.Context) (int, error) { return l.control.Port(ctx) }

// Down stops the lab and deletes its directory. It returns when no process is left.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.Dir()) }

// Down stops the lab in directory, also if its supervisor was killed, and deletes the directory.
func Down(ctx context.Context, folder string) error {
	if _, err := os.Stat(model.LockFile(folder)); err != nil {
		return fmt.Errorf("end the lab in %s: %w", folder, control.ErrNotRunning)
	}
	wait := 30 * time.Second
	if err := control.NewClient(folder).Down(ctx); err != nil {
		wait = 0 // it does not respond
	}
	if err := waitUnlocked(ctx, folder, wait); err != nil {
		return err
	}
	if err := proc.Sweep(ctx, folder); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the lab's directory: %w", err)
	}
	return nil
}

// waitUnlocked waits until cleanup process and supervisor have ended. They are killed if it takes too long.
func waitUnlocked(ctx context.Context, folder string, patience time.Duration) error {
	lock, err := os.Open(model.LockFile(folder))
	if errors.Is(err, os.ErrNotExist) { // an ephemeral lab has deleted its directory
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the lab's lock: %w", err)
	}
	defer lock.Close()
	deadline := time.After(patience)
	for {
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return proc.Sweep(ctx, folder)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// LogFile returns the log file of a component.
func (l *Lab) LogFile(ctx context.Context, component string) (string, error) {
	all, err := l.Status(ctx)
	if err != nil {
		return "", err
	}
	names := []string{"lab"}
	for _, one := range all {
		if one.Name == component {
			return one.Log, nil
		}
		names = append(names, one.Name)
	}
	if component == "lab" {
		return filepath.Join(model.LogFolder(l.Dir()), "lab.log"), nil
	}
	return "", fmt.Errorf("there is no component %q; there are: %s", component, strings.Join(names, ", "))
}
