package reconcile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Memory is what an agent knows of its hub and its objects do not show. The next
// process of the agent needs it: see Config.
//
// How new a copy is, is recorded on the copy. What was removed leaves no such
// record, and a principal whose watch lags would give it back to a process that
// has just started. So a removal is written down before it is done, and says how
// far the principal has to be to know of it.
type Memory struct {
	Store   engine.Store  // of the hub, as far as seen and believed
	StoreUntrusted bool          // it went back, and nobody has accepted that yet
	Seen    []engine.Seen // how far, by scope

	// Commands are IDs of those that were begun last, the oldest first, where the
	// Application's own record of them may be taken off by its ApplicationSet.
	Commands []string
}

// maxCommands bounds them.
const maxCommands = 256

// remembers reports whether a write must be known to the next process before it is
// done, and notes what it has to know.
func (n *Reconciler) remembers(dec decision) bool {
	if n.cfg.Side != kind.Spoke {
		return false
	}
	if dec.begins != "" && n.syncs[""].env.Agent.Mode == kind.Autonomous { // a managed Application's record is ours alone
		n.commands.begun = withCommands(n.commands.begun, dec.begins)
		return true
	}
	return dec.verb == Delete
}

// Memory returns what a spoke's Node knows by now.
func (n *Reconciler) Memory() Memory {
	l := n.syncs[""]
	if l == nil {
		return Memory{}
	}
	other, suspect := l.peer.Other()
	return Memory{Store: other, StoreUntrusted: suspect, Seen: l.peer.Seen(), Commands: slices.Clone(n.commands.begun)}
}

// With returns what is newer in either. Of two stores that is the other's: their
// revisions cannot be compared.
func (m Memory) With(other Memory) Memory {
	commands := withCommands(slices.Clone(m.Commands), other.Commands...)
	if m.Store.UID != other.Store.UID {
		if other.Store.UID == "" {
			other = m
		}
		other.Commands = commands
		return other
	}
	out := Memory{Store: m.Store, StoreUntrusted: other.StoreUntrusted, Seen: slices.Clone(m.Seen), Commands: commands}
	out.Store.Revision = max(m.Store.Revision, other.Store.Revision)
	for _, s := range other.Seen {
		i := slices.IndexFunc(out.Seen, func(known engine.Seen) bool { return known.Scope == s.Scope })
		if i < 0 {
			out.Seen = append(out.Seen, s)
		} else {
			out.Seen[i].Revision = max(out.Seen[i].Revision, s.Revision)
		}
	}
	return out
}

// Equal reports whether two say the same.
func (m Memory) Equal(other Memory) bool {
	return m.Store == other.Store && m.StoreUntrusted == other.StoreUntrusted && slices.Equal(m.Seen, other.Seen) && slices.Equal(m.Commands, other.Commands)
}

// withCommands adds IDs that are not there, and drops the oldest beyond what is
// kept.
func withCommands(ids []string, more ...string) []string {
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids[max(0, len(ids)-maxCommands):]
}

// FormatSeen returns what was seen as text, such as application=12,appproject=9.
func FormatSeen(seen []engine.Seen) string {
	parts := make([]string, 0, len(seen))
	for _, s := range seen {
		parts = append(parts, s.Scope+"="+strconv.FormatUint(s.Revision, 10))
	}
	return strings.Join(parts, ",")
}

// ParseSeen reads what FormatSeen wrote. What it cannot read is left out: then the
// store as a whole is what is known.
func ParseSeen(text string) []engine.Seen {
	var out []engine.Seen
	for part := range strings.SplitSeq(text, ",") {
		scope, number, _ := strings.Cut(part, "=")
		if revision, err := strconv.ParseUint(number, 10, 64); err == nil && scope != "" {
			out = append(out, engine.Seen{Scope: scope, Revision: revision})
		}
	}
	return out
}
