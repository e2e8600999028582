package lab

import (
	"context"

	"github.com/argocd-agent/argocd-agent/lab/internal/control"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Stop stops a component with SIGSTOP. It keeps its connections and does not respond until Continue.
func (l *Lab) Stop(ctx context.Context, component string) error {
	return l.control.Act(ctx, component, control.Stop, proc.Change{})
}

// Continue continues a stopped component.
func (l *Lab) Continue(ctx context.Context, component string) error {
	return l.control.Act(ctx, component, control.Continue, proc.Change{})
}

// Kill ends a component with SIGKILL. It is not restarted until Restart.
func (l *Lab) Kill(ctx context.Context, component string) error {
	return l.control.Act(ctx, component, control.Kill, proc.Change{})
}

// Change changes the command of a component from its restart on.
type Change func(*proc.Change)

// Flag sets a flag, such as --redis. An empty value removes it.
func Flag(name, value string) Change {
	return func(c *proc.Change) { c.Flags[name] = value }
}

// Env sets an environment variable.
func Env(name, value string) Change {
	return func(c *proc.Change) { c.Env[name] = value }
}

// Restart restarts a component with the changes, and returns when it is ready. The component need not be running.
func (l *Lab) Restart(ctx context.Context, component string, changes ...Change) error {
	change := proc.Change{Flags: map[string]string{}, Env: map[string]string{}}
	for _, alter := range changes {
		alter(&change)
	}
	return l.control.Act(ctx, component, control.Restart, change)
}
