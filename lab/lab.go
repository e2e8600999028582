// Package lab runs real clusters with real Argo CD as local processes, for the demo, the tests and the benchmarks.
//
// A lab is a hub and any number of spokes. Each cluster has an etcd and a Kubernetes control plane of its own, simulated
// nodes, a Redis with a password and the parts of Argo CD that its role asks for; a Git server stands beside them. All of
// it lives in one folder and on the loopback interface, on ports that nobody has to choose. A supervisor owns the
// processes and answers on a socket in the folder, so a lab started by one program can be used by another:
//
//	go run ./lab/cmd/lab up
//	go run ./lab/cmd/lab shell
//	go run ./lab/cmd/lab down
//
// A test asks for the lab that all packages of a `go test` run share, or for one of its own:
//
//	l := lab.Get(t)                  // shared: use namespaces of your own, break nothing
//	l := lab.New(t, lab.Options{})   // your own: break what you like
//	apps := l.Cluster("managed").Dynamic()
//
// On failure the logs of all components and the objects of all clusters are saved and their place is printed.
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

// Status tells what a component is doing.
type Status = proc.Status

// Open returns the lab that runs in folder.
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

// Folder is where the lab keeps its state.
func (l *Lab) Folder() string { return l.Spec.Folder }

// Status lists all components.
func (l *Lab) Status(ctx context.Context) ([]Status, error) { return l.control.Status(ctx) }

// Port reserves a port of the lab, outside the range that the kernel lends to outgoing connections.
func (l *Lab) Port(ctx context.Context) (int, error) { return l.control.Port(ctx) }

// Down ends the lab and removes its folder. It returns when no process is left.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.Folder()) }

// Down ends the lab in folder, also one whose supervisor was killed, and removes the folder.
func Down(ctx context.Context, folder string) error {
	if _, err := os.Stat(model.LockFile(folder)); err != nil {
		return fmt.Errorf("end the lab in %s: %w", folder, control.ErrNotRunning)
	}
	wait := 30 * time.Second
	if err := control.NewClient(folder).Down(ctx); err != nil {
		wait = 0 // it does not answer: it is dead, or it hangs
	}
	if err := waitUnlocked(ctx, folder, wait); err != nil {
		return err
	}
	if err := proc.Sweep(ctx, folder); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("remove the lab's folder: %w", err)
	}
	return nil
}

// waitUnlocked waits until keeper and supervisor are gone; they are killed when it takes too long.
func waitUnlocked(ctx context.Context, folder string, patience time.Duration) error {
	lock, err := os.Open(model.LockFile(folder))
	if errors.Is(err, os.ErrNotExist) { // an ephemeral lab has removed its folder
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

// LogFile is where a component logs.
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
		return filepath.Join(model.LogFolder(l.Folder()), "lab.log"), nil
	}
	return "", fmt.Errorf("there is no component %q; there are: %s", component, strings.Join(names, ", "))
}
