package reconcile

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file executes commands and names them.

// commands is what a spoke remembers of commands in addition to the receipts on its Applications. Another tool may
// remove a receipt: an ApplicationSet controller, or a user who replaces or deletes the Application. Both lists have the
// oldest first and at most maxCommands.
type commands struct {
	begun []string // by any process. The next process gets them
	past  []string // of these, those that must not begin again: an earlier process began them, or this one has written them
}

func newCommands(known []string) commands {
	begun := withCommands(nil, known...)
	return commands{begun: begun, past: slices.Clone(begun)}
}

// remember adds commands that another process has begun.
func (c *commands) remember(recorded []string) {
	others := slices.DeleteFunc(slices.Clone(recorded), func(id string) bool { return slices.Contains(c.begun, id) })
	c.begun, c.past = withCommands(c.begun, others...), withCommands(c.past, others...)
}

// execute executes commands on the spoke's Application as far as possible now.
func (l *agentSync) execute(e engine.Apply, local *kind.Object) decision {
	if local == nil {
		return decision{fail: &Failure{Code: engine.Busy, Message: "the Application is not on the spoke yet", RetryAfter: engine.Second}}
	}
	local = kind.WithExecuted(local, l.executed[e.Key])
	if id := kind.CommandID(e.Content); slices.Contains(l.reconciler.commands.past, id) && !kind.Executed(local, id) {
		return decision{fail: &Failure{Code: engine.Invalid, Message: "the agent has begun this operation before, and the Application does not show whether it ran: it is not begun a second time; start another one if it is needed"}}
	}
	x, err := kind.Execute(local, e.Content, &l.env)
	switch {
	case err != nil:
		return decision{fail: failure(err)}
	case x.Object != nil:
		return decision{verb: Update, object: x.Object, again: x.Waits || x.Refused != nil, begins: x.Begins}
	case x.Refused != nil:
		return decision{fail: failure(x.Refused)}
	case x.Waits:
		return decision{fail: &Failure{Code: engine.Busy, Message: x.Reason, RetryAfter: 2 * engine.Second}}
	}
	return decision{}
}

// begun remembers commands that the spoke's Application now has.
func (l *agentSync) begun(e engine.Apply) {
	if nonce := rawjson.Text(e.Content, "nonce"); nonce != "" {
		setNote(&l.refreshed, e.Key, nonce)
	}
	if id := kind.CommandID(e.Content); id != "" {
		l.reconciler.commands.past = withCommands(l.reconciler.commands.past, id)
		ids := slices.DeleteFunc(slices.Clone(l.executed[e.Key]), func(other string) bool { return other == id })
		setNote(&l.executed, e.Key, append(ids[max(0, len(ids)-maxExecuted+1):], id))
	}
}

// maxExecuted bounds the commands that are remembered per Application.
const maxExecuted = 8

// publish projects an object for the other side. A status also names the refresh that it follows.
func (l *agentSync) publish(s *scope, o *kind.Object) (kind.Item, bool) {
	if l.env.Agent.Excludes(s.cfg.Name) {
		return kind.Item{}, false
	}
	if s.cfg.Style == engine.Attached && len(l.executed) > 0 {
		if key, ok := s.kind.Key(o, &l.env); ok {
			o = kind.WithExecuted(o, l.executed[key])
		}
	}
	item, ok := s.kind.Publish(o, &l.env)
	if !ok || s.cfg.Style != engine.Attached {
		return item, ok
	}
	if nonce := l.refreshed[item.Key]; nonce != "" {
		item.Extra = kind.WithRefreshed(o, item.Extra, nonce)
	}
	return item, true
}

// operationWithoutID is an operation of the hub that has no command ID yet.
type operationWithoutID struct {
	operation engine.Version
	revision  string // of the Application, when the operation was first seen
}

// recordWithoutID records at which revision an operation without an ID was first seen: the Application may change
// before it gets one.
func (l *agentSync) recordWithoutID(key engine.Key, o *kind.Object) operationWithoutID {
	operation, err := rawjson.Canonical(o.Get("operation"))
	if err != nil {
		operation = o.Get("operation")
	}
	now := operationWithoutID{engine.VersionOf(operation), o.ResourceVersion()}
	if before, known := l.withoutID[key]; known && before.operation == now.operation {
		return before
	}
	setNote(&l.withoutID, key, now)
	return now
}

// commandID derives the ID of a command from its content, its Application, and the revision at which it appeared. Two
// equal requests differ in the revision. A backup of the hub has the Application with the same revision, so a restored
// command without its ID gets the same ID again.
func commandID(o *kind.Object, u operationWithoutID) string {
	return engine.VersionOf(fmt.Appendf(nil, "%s/%s/%s", o.UID(), u.revision, u.operation)).String()
}

func nonce(now engine.Time, n uint64) string {
	return strconv.FormatInt(int64(now), 36) + "." + strconv.FormatUint(n, 36)
}
