package lab

import (
	"context"

	"github.com/argocd-agent/argocd-agent/lab/internal/control"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// Stop freezes a component (SIGSTOP): it keeps its connections and answers nothing until Continue.
func (l *Lab) Stop(ctx context.Context, component string) error {
	return l.control.Act(ctx, component, control.Stop, proc.Change{})
}

// Continue lets a stopped component go on.
func (l *Lab) Continue(ctx context.Context, component string) error {
	return l.control.Act(ctx, component, control.Continue, proc.Change{})
}

// Kill ends a component at once (SIGKILL); it stays dead until Restart. Nothing else of the lab restarts it.
func (l *Lab) Kill(ctx context.Context, component string) error {
	return l.control.Act(ctx, component, control.Kill, proc.Change{})
}

// Change alters how a component is run, from its restart on.
type Change func(*proc.Change)

// Flag sets a flag, such as --redis; an empty value removes it.
func Flag(name, value string) Change {
	return func(c *proc.Change) { c.Flags[name] = value }
}

// Env sets an environment variable.
func Env(name, value string) Change {
	return func(c *proc.Change) { c.Env[name] = value }
}

// Restart restarts a component, running or not, with the changes applied, and returns when it is ready.
func (l *Lab) Restart(ctx context.Context, component string, changes ...Change) error {
	change := proc.Change{Flags: map[string]string{}, Env: map[string]string{}}
	for _, alter := range changes {
		alter(&change)
	}
	return l.control.Act(ctx, component, control.Restart, change)
}
