package agentrows

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Entry is one event in the life of an agent.
type Entry struct {
	Time    int64  `json:"time"` // Unix seconds
	Type    string `json:"type"`
	Message string `json:"message,omitempty"`
}

// MaxEntries is the number of entries that Timelines keeps for an agent. Older ones are dropped.
const MaxEntries = 32

const maxMessage = 256 // bytes

// Timelines records sessions, holds and other changes of agents from the status of their Agents. What happened before the
// process started is known only as far as the status has it.
type Timelines struct {
	mu     sync.Mutex
	agents map[string]*timeline
}

type timeline struct {
	last    v1alpha1.Agent
	entries []Entry // oldest first
}

// NewTimelines returns Timelines without agents.
func NewTimelines() *Timelines { return &Timelines{agents: map[string]*timeline{}} }

// Observe records what changed in an Agent since it was last observed.
func (t *Timelines) Observe(agent *v1alpha1.Agent, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line := t.agents[agent.Name]
	if line == nil || line.last.UID != agent.UID {
		created := *agent
		created.Spec.Suspended, created.DeletionTimestamp, created.Annotations, created.Status = false, nil, nil, v1alpha1.Status{}
		line = &timeline{last: created, entries: []Entry{{seconds(&agent.CreationTimestamp), "Created", ""}}}
		t.agents[agent.Name] = line
	}
	found := changes(&line.last, agent, now)
	slices.SortStableFunc(found, func(a, b Entry) int { return cmp.Compare(a.Time, b.Time) })
	for _, e := range found {
		e.Message = text.Truncate(e.Message, maxMessage)
		line.entries = append(line.entries, e)
	}
	if n := len(line.entries) - MaxEntries; n > 0 {
		line.entries = slices.Clone(line.entries[n:])
	}
	line.last = *agent
}

// Forget removes the timeline of a deleted Agent.
func (t *Timelines) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.agents, name)
}

// Of returns the timeline of an agent, newest first. It returns false if there is no such agent.
func (t *Timelines) Of(name string) ([]Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, known := t.agents[name]
	if !known {
		return nil, false
	}
	entries := slices.Clone(line.entries)
	slices.Reverse(entries)
	return entries, true
}

// changes returns what happened between two observations of an Agent, in no order.
func changes(before, after *v1alpha1.Agent, now time.Time) []Entry {
	var found []Entry
	add := func(at *metav1.Time, kind, format string, args ...any) {
		if at == nil || at.IsZero() {
			at = &metav1.Time{Time: now}
		}
		found = append(found, Entry{at.Unix(), kind, fmt.Sprintf(format, args...)})
	}
	b, a := &before.Status, &after.Status
	switch started := !a.Since.Equal(b.Since); {
	case a.Connected && (!b.Connected || started):
		add(a.Since, "Connected", "principal %s, version %s", a.Principal, a.Version)
	case !a.Connected && (b.Connected || started && a.Since != nil):
		add(a.Since, "Disconnected", "%s", condition(a, v1alpha1.ConditionConnected).Message)
	}
	for _, h := range a.Holds {
		if !hasHold(b, h) {
			hold := HoldOf(&h)
			add(h.Since, "Held", "%s: %s", hold.Description, hold.Reason)
		}
	}
	for _, h := range b.Holds {
		if a.Connected && !hasHold(a, h) { // the holds of a disconnected agent are not known
			add(nil, "Released", "%s", HoldOf(&h).Description)
		}
	}
	if id := after.Annotations[v1alpha1.ConfirmAnnotation]; id != "" && id != before.Annotations[v1alpha1.ConfirmAnnotation] {
		add(nil, "Confirmed", "hold %s", id)
	}
	if before.Spec.Suspended != after.Spec.Suspended {
		add(nil, map[bool]string{true: "Suspended", false: "Resumed"}[after.Spec.Suspended], "")
	}
	if before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
		add(after.DeletionTimestamp, "Deleted", "")
	}
	for _, name := range []string{v1alpha1.ConditionRegistered, v1alpha1.ConditionWritable, v1alpha1.ConditionWithinLimits} {
		was, is := condition(b, name), condition(a, name)
		if is.Status != was.Status && (is.Status == metav1.ConditionFalse || was.Status == metav1.ConditionFalse) {
			add(&is.LastTransitionTime, name+map[bool]string{true: "", false: "Failed"}[is.Status == metav1.ConditionTrue], "%s", is.Message)
		}
	}
	return found
}

func condition(s *v1alpha1.Status, name string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == name {
			return c
		}
	}
	return metav1.Condition{Type: name}
}

func hasHold(s *v1alpha1.Status, h v1alpha1.Hold) bool {
	return slices.ContainsFunc(s.Holds, func(o v1alpha1.Hold) bool { return o.ID == h.ID && o.Scope == h.Scope })
}
