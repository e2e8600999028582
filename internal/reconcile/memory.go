package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Memory is what an agent knows about its hub and its objects do not show. The next process of the agent needs it: see
// Config.
//
// A replica records its source revision. A deleted object leaves no such record, and a principal with a lagging watch
// would restore it on a process that has just started. So a deletion is recorded before it is done, with the revision
// that the principal must have seen to know of it.
type Memory struct {
	Store          engine.Store  // of the hub, as far as seen and trusted
	StoreUntrusted bool          // it regressed, and no user has accepted it yet
	Seen           []engine.Seen // newest revision by scope
	Commands       []string      // IDs of the commands that were begun last, the oldest first
	Deletions      []Deletion    // Applications that were deleted for the hub, the oldest first
	Hub            KnownHub
	Generation     engine.HubGeneration // the latest that was seen

	FormerGenerations []engine.HubGeneration // the latest of other hubs that the agent followed before

	Removals []engine.Removal // replicas that were deleted for the hub, the oldest first
}

// KnownHub is what a managed agent needs to know of its hub to read its own replicas. It is zero before the first session.
type KnownHub struct {
	Agent         string `json:"agent"` // name of this agent
	Namespace     string `json:"namespace"`
	Server        string `json:"server"`
	ArgoNamespace string `json:"argoNamespace"`
	PrincipalUID  string `json:"principalUID"`
	InstanceLabel string `json:"instanceLabel,omitempty"`
	Mapping       string `json:"mapping"`
	Projection    int    `json:"projection"`
}

// Known reports whether there was a session, with a projection that this release supports.
func (h KnownHub) Known() bool {
	return h.PrincipalUID != "" && h.Projection >= engine.ProjectionMin && h.Projection <= engine.ProjectionMax &&
		(h.Mapping == string(kind.ByNamespace) || h.Mapping == string(kind.ByDestination))
}

// knownHub returns what this spoke knows of its hub.
func (l *agentSync) knownHub() KnownHub {
	if w := &l.env; l.known && w.Agent.Mode == kind.Managed {
		return KnownHub{Agent: w.Agent.Name, Namespace: w.Agent.HubNamespace, Server: w.Agent.Server, ArgoNamespace: w.HubArgoNamespace,
			PrincipalUID: w.PrincipalUID, InstanceLabel: w.InstanceLabel, Mapping: string(w.Agent.Mapping), Projection: w.Projection}
	}
	return KnownHub{}
}

// know completes the Env of a managed spoke with what an earlier process knew. The next session corrects it.
func (l *agentSync) know(h KnownHub) {
	if w := &l.env; h.Known() && w.Agent.Mode == kind.Managed {
		w.Agent.Name, w.Agent.HubNamespace, w.Agent.Server, w.Agent.Mapping = h.Agent, h.Namespace, h.Server, kind.Mapping(h.Mapping)
		w.HubArgoNamespace, w.PrincipalUID, w.InstanceLabel, w.Projection = h.ArgoNamespace, h.PrincipalUID, h.InstanceLabel, h.Projection
		l.known = true
	}
}

// Deletion is a deletion that counts against the budget of the spoke's policy.
type Deletion struct {
	UID   string // of the Application
	At    engine.Time
	Until engine.Time // end of the window of the policy at that time
}

// MaxDeletions bounds the deletions that are remembered. A policy that allows more in its window allows only this many.
const MaxDeletions = 1000

const maxCommands = 256

// storeTrust is what the next process must know of the hub's store before an object of it is written. Otherwise it could
// trust the store of the hub before, which has not seen that object.
type storeTrust struct {
	uid       string
	untrusted bool
}

func (n *Reconciler) storeTrust() storeTrust {
	other, untrusted := n.syncs[""].peer.Other()
	return storeTrust{other.UID, untrusted}
}

func (m *Memory) storeTrust() storeTrust { return storeTrust{m.Store.UID, m.StoreUntrusted} }

// sharedMemory returns the Memory that the writes of this Step wait for. It is complete when the Step ends: a record for each
// of many deletions would be large, and the Lease would be written for each.
func (n *Reconciler) sharedMemory() *Memory {
	if n.memory == nil {
		n.memory = new(Memory)
	}
	return n.memory
}

func (n *Reconciler) completeMemory() {
	if n.memory != nil {
		*n.memory, n.memory = n.Memory(), nil
	}
}

// remembers reports whether the next process must know of a write before it is done, and records what it must know.
func (n *Reconciler) remembers(dec decision) bool {
	if n.cfg.Side != kind.Spoke {
		return false
	}
	if dec.begins != "" {
		n.commands.begun = withCommands(n.commands.begun, dec.begins)
		return true
	}
	return dec.verb == Delete || dec.ends || n.storeTrust() != n.recorded
}

// Memory returns what a spoke knows now.
func (n *Reconciler) Memory() Memory {
	l := n.syncs[""]
	if l == nil {
		return Memory{}
	}
	other, untrusted := l.peer.Other()
	return Memory{Store: other, StoreUntrusted: untrusted, Seen: l.peer.Seen(), Commands: slices.Clone(n.commands.begun), Deletions: withDeletions(slices.Clone(n.policy.deletions)), Hub: l.knownHub(),
		Generation: l.peer.Generation(), FormerGenerations: l.peer.FormerGenerations(), Removals: l.peer.Removals()}
}

// LaterGenerations returns the generations on replicas of a spoke that are later than the one that it follows.
func (n *Reconciler) LaterGenerations() []uint64 {
	if l := n.syncs[""]; l != nil {
		return l.peer.LaterGenerations()
	}
	return nil
}

// With returns the newer of both. Of two different stores that is the other's: their revisions cannot be compared. A store
// that one of them does not trust is not trusted: only a user's acceptance ends that, and replaces the record.
func (m Memory) With(other Memory) Memory {
	out := m.with(other)
	out.Removals = engine.KnownRemovals(engine.MergeRemovals(m.Removals, other.Removals), out.Generation, out.Store, out.StoreUntrusted)
	return out
}

func (m Memory) with(other Memory) Memory {
	commands := withCommands(slices.Clone(m.Commands), other.Commands...)
	deletions := withDeletions(slices.Clone(m.Deletions), other.Deletions...)
	generation, former := engine.MergeGenerations(m.Generation.Newer(other.Generation), slices.Concat(m.FormerGenerations, other.FormerGenerations, []engine.HubGeneration{m.Generation, other.Generation})...)
	if m.Store.UID != other.Store.UID {
		if other.Store.UID == "" {
			m.Hub = cmp.Or(other.Hub, m.Hub)
			other = m
		}
		other.Commands, other.Deletions, other.Generation, other.FormerGenerations = commands, deletions, generation, former
		return other
	}
	out := Memory{Store: m.Store, StoreUntrusted: m.StoreUntrusted || other.StoreUntrusted, Seen: slices.Clone(m.Seen), Commands: commands, Deletions: deletions, Hub: cmp.Or(other.Hub, m.Hub), Generation: generation, FormerGenerations: former}
	out.Store.Revision = max(m.Store.Revision, other.Store.Revision)
	out.Store.Mark = m.Store.Mark.Newer(other.Store.Mark)
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

// Equal reports whether both are equal.
func (m Memory) Equal(other Memory) bool {
	return m.Store == other.Store && m.Hub == other.Hub && m.Generation == other.Generation && m.StoreUntrusted == other.StoreUntrusted && slices.Equal(m.Seen, other.Seen) && slices.Equal(m.Commands, other.Commands) &&
		slices.Equal(m.Deletions, other.Deletions) && slices.Equal(m.FormerGenerations, other.FormerGenerations) && slices.Equal(m.Removals, other.Removals)
}

// withCommands adds missing IDs, and drops the oldest beyond maxCommands.
func withCommands(ids []string, more ...string) []string {
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids[max(0, len(ids)-maxCommands):]
}

// withDeletions adds missing deletions, sorts all by time, and drops those that had ended before the newest one.
func withDeletions(list []Deletion, more ...Deletion) []Deletion {
	for _, d := range more {
		i := slices.IndexFunc(list, func(known Deletion) bool { return known.UID == d.UID })
		if i < 0 {
			list = append(list, d)
		} else if d.At < list[i].At { // the clock of the other process was ahead
			list[i] = d
		}
	}
	slices.SortFunc(list, func(a, b Deletion) int { return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.UID, b.UID)) })
	if len(list) == 0 {
		return nil
	}
	newest := list[len(list)-1].At
	list = slices.DeleteFunc(list, func(d Deletion) bool { return d.Until <= newest && d.At < newest })
	return list[max(0, len(list)-MaxDeletions):]
}

// FormatDeletions returns deletions as text: UID=AT+WINDOW in milliseconds, separated by spaces.
func FormatDeletions(deletions []Deletion) string {
	parts := make([]string, 0, len(deletions))
	for _, d := range deletions {
		parts = append(parts, fmt.Sprintf("%s=%d+%d", d.UID, d.At, d.Until-d.At))
	}
	return strings.Join(parts, " ")
}

// ParseDeletions parses what FormatDeletions returns. It ignores what it cannot parse.
func ParseDeletions(text string) []Deletion {
	var out []Deletion
	for part := range strings.FieldsSeq(text) {
		uid, times, _ := strings.Cut(part, "=")
		begin, length, _ := strings.Cut(times, "+")
		at, err1 := strconv.ParseInt(begin, 10, 64)
		window, err2 := strconv.ParseInt(length, 10, 64)
		if uid != "" && err1 == nil && err2 == nil && window >= 0 {
			out = append(out, Deletion{UID: uid, At: engine.Time(at), Until: engine.Time(at + window)})
		}
	}
	return out[max(0, len(out)-MaxDeletions):]
}

// FormatSeen returns seen as text, such as application=12,appproject=9.
func FormatSeen(seen []engine.Seen) string {
	parts := make([]string, 0, len(seen))
	for _, s := range seen {
		parts = append(parts, s.Scope+"="+strconv.FormatUint(s.Revision, 10))
	}
	return strings.Join(parts, ",")
}

// ParseSeen parses what FormatSeen returns. It ignores what it cannot parse: then only the revision of the store as a
// whole is known.
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
