package sim

import (
	"fmt"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// tracef adds a line to the transcript, if there is one.
func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace(stamp(w.now) + " " + fmt.Sprintf(format, args...))
	}
}

func stamp(t engine.Time) string {
	return fmt.Sprintf("%4d:%02d.%03d", t/minute, t%minute/second, t%second)
}

func (w *world) traceFact(p *process, e reconcile.Report) {
	f := e.Event
	if f.Type == engine.InSync {
		return
	}
	parts := []string{string(f.Type)}
	if e.Agent != "" {
		parts = append(parts, "agent "+e.Agent)
	}
	if f.Scope != "" {
		parts = append(parts, f.Scope)
	}
	if f.Key != (engine.Key{}) {
		parts = append(parts, f.Key.String())
	}
	if f.Code != "" {
		parts = append(parts, string(f.Code))
	}
	if f.Message != "" {
		parts = append(parts, f.Message)
	}
	if f.Held != nil {
		parts = append(parts, fmt.Sprintf("%d of %d %s %s", f.Held.Count, f.Held.Of, f.Held.ID, f.Held.Reason))
	}
	w.tracef("%s: event %s", p.name, strings.Join(parts, ", "))
}

func (w *world) traceMessage(e *end, m engine.Message, size int) {
	to := e.other().p.name
	w.tracef("%s → %s: %s (%d bytes)", e.p.name, to, describe(m), size)
}

// describe says in a few words what a message says.
func describe(m engine.Message) string {
	name := strings.TrimPrefix(fmt.Sprintf("%T", m), "engine.")
	switch m := m.(type) {
	case engine.Hello:
		return fmt.Sprintf("Hello epoch %d.%d, store at %d, seen %v", m.Epoch.Incarnation, m.Epoch.Attempt, m.Store.Revision, m.Seen)
	case engine.Welcome:
		return fmt.Sprintf("Welcome, store at %d, seen %v", m.Store.Revision, m.Seen)
	case engine.Delta:
		var items []string
		for _, it := range m.Items {
			what := it.Version.String()[:6]
			if it.Gone {
				what = "gone"
			}
			items = append(items, fmt.Sprintf("#%d %s %s", it.Seq, it.Key, what))
		}
		return "Delta " + m.Scope + " " + strings.Join(items, ", ")
	case engine.Ack:
		var items []string
		for _, it := range m.Items {
			items = append(items, fmt.Sprintf("#%d %s %s", it.Seq, it.Key, orOK(it.Code)))
		}
		return "Ack " + m.Scope + " " + strings.Join(items, ", ")
	case engine.Roots:
		text := "Roots " + roots(m.Items)
		if len(m.Same) > 0 {
			text += ", same: " + scopes(m.Same)
		}
		return text
	case engine.Equal:
		return fmt.Sprintf("Equal %08x", m.Sum.Hi>>32)
	case engine.Same:
		return "Same " + scopes(m.Items)
	case engine.Ask:
		return fmt.Sprintf("Ask %s round %d, %d prefixes", m.Scope, m.Round, len(m.Prefixes))
	case engine.Answer:
		return fmt.Sprintf("Answer %s round %d, %d branches", m.Scope, m.Round, len(m.Branches))
	case engine.Want:
		return fmt.Sprintf("Want %s, %d items", m.Scope, len(m.Hashes))
	case engine.Finished:
		return "Finished " + m.Scope + " " + m.Key.String()
	case engine.Held:
		return fmt.Sprintf("Held %s %d %s", m.Scope, m.Count, m.ID)
	case engine.Bye:
		return "Bye " + string(m.Code)
	}
	return name
}

func roots(items []engine.Root) string {
	var out []string
	for _, r := range items {
		out = append(out, fmt.Sprintf("%s=%d@%d", r.Scope, r.Count, r.Revision))
	}
	return strings.Join(out, " ")
}

func scopes(items []engine.Root) string {
	var out []string
	for _, r := range items {
		out = append(out, r.Scope)
	}
	return strings.Join(out, " ")
}

func orOK(c engine.Code) string {
	if c == engine.OK {
		return "OK"
	}
	return string(c)
}
