package engine

import "cmp"

// Time is milliseconds on a clock that the caller chooses. It may stand still but never goes back.
type Time int64

const Second Time = 1000

// ScopeStyle is how a replica handles the items of a scope.
type ScopeStyle uint8

const (
	// Mirror scopes are equal sets: the replica creates and deletes.
	Mirror ScopeStyle = iota
	// Attached scopes fill objects that exist for another reason: the replica neither creates nor deletes.
	Attached
	// OneShot scopes contain what runs once. Nothing is compared: pending items are sent, and sent again in a new
	// session.
	OneShot
)

// Role is a side's role in a scope.
type Role uint8

// The two roles.
const (
	Owner Role = iota
	Replica
)

// ScopeConfig describes a scope. Both ends list scopes in the same order, the order in which kinds depend on each other.
// An end of another release may know others: see setShared.
type ScopeConfig struct {
	Name      string
	Style     ScopeStyle
	Role      Role
	DependsOn string // scope in which Publish.DependsOn is looked up

	// NoBudget exempts the scope from the deletion budget: for credentials, of which fewer are safer. While the owner's
	// store is untrusted, deletions are still held.
	NoBudget bool

	// Announced marks a scope that is newer than the announcement of scopes: a peer that announces none does not know it.
	Announced bool
}

// Config configures a Peer.
type Config struct {
	Hub    bool // this end is on the hub
	Scopes []ScopeConfig

	// On the hub: what is registered for this agent. On the agent: its settings.
	Mode    string
	Mapping string
	// Mappings (agent) are those that it supports. The hub's registration decides. If nil, it has no meaning for this agent.
	Mappings []string

	// Hello (agent) or Welcome (hub) is sent with epoch, store, clock and negotiated versions filled in. Hello is a pointer,
	// because a hub has thousands of Peers and none of them needs it.
	Hello   *Hello
	Welcome Welcome

	// KnownCluster (hub) is the cluster UID registered for this agent, if any.
	KnownCluster string
	// KnownStore is the newest known state of the other side's store, if any.
	KnownStore Store
	// KnownSeen is the newest known revision per scope, as Peer.Seen returned it.
	KnownSeen []Seen
	// StoreUntrusted reports whether the other side's store was found to have regressed before this process started,
	// and no user has accepted it yet.
	StoreUntrusted bool
	// KnownGeneration (agent) is the latest generation of the hub that earlier processes have seen, if any.
	KnownGeneration HubGeneration
	// FormerGenerations (agent) are the latest generations of other hubs that earlier processes followed before.
	FormerGenerations []HubGeneration
	// KnownRemovals (agent) are replicas that earlier processes have deleted for the hub.
	KnownRemovals []Removal
	// OneHub (agent) means that all addresses of the hub must lead to hubs of one identity.
	OneHub bool

	Tuning Tuning
}

// Tuning has the limits and intervals. Zero means the default.
type Tuning struct {
	Window                int  // bytes in flight for each scope
	DeltaBytes            int  // content bytes in one message
	DeltaItems            int  // items in one message
	AskPrefixes           int  // prefixes in one message
	MaxItems              int  // items in a scope that a peer fills
	MaxBytes              int  // content bytes that this side stores for a scope that a peer fills
	MaxTombstones         int  // explicit deletions remembered for a disconnected peer, the latest
	Beacon                Time // between two beacons
	Resend                Time // until an unacknowledged item is sent again
	PeerTimeout           Time // of a silent peer with unacknowledged items, until the session is closed
	MinRetryDelay         Time // first retry of a rejected item
	MaxRetryDelay         Time // longest delay between retries
	MaxInvalidDelay       Time // the same, for items that the replica finds invalid
	MaxUnavailableDelay   Time // the same, for temporary failures of the other side
	DependencyTimeout     Time // how long an item waits for its project
	ExtraInterval         Time // between two sends of an item because of its Extra alone
	RoundTimeout          Time // until an unanswered round is started again
	DeletionBudgetItems   int  // a round that deletes more than this many ...
	DeletionBudgetPercent int  // ... and more than this share is held
}

func (t Tuning) withDefaults() Tuning {
	t.Window = cmp.Or(t.Window, 1<<20)
	t.DeltaBytes = cmp.Or(t.DeltaBytes, 256<<10)
	t.DeltaItems = cmp.Or(t.DeltaItems, 128)
	t.AskPrefixes = cmp.Or(t.AskPrefixes, 32)
	t.MaxItems = cmp.Or(t.MaxItems, 50_000)
	t.MaxBytes = cmp.Or(t.MaxBytes, 512<<20)
	t.MaxTombstones = cmp.Or(t.MaxTombstones, 10_000)
	t.Beacon = cmp.Or(t.Beacon, 60*Second)
	t.Resend = cmp.Or(t.Resend, 60*Second)
	t.PeerTimeout = cmp.Or(t.PeerTimeout, 180*Second)
	t.MinRetryDelay = cmp.Or(t.MinRetryDelay, Second)
	t.MaxRetryDelay = cmp.Or(t.MaxRetryDelay, 300*Second)
	t.MaxInvalidDelay = cmp.Or(t.MaxInvalidDelay, 60*Second)
	t.MaxUnavailableDelay = cmp.Or(t.MaxUnavailableDelay, 20*Second)
	t.DependencyTimeout = cmp.Or(t.DependencyTimeout, 5*Second)
	t.ExtraInterval = cmp.Or(t.ExtraInterval, 600*Second)
	t.RoundTimeout = cmp.Or(t.RoundTimeout, 30*Second)
	t.DeletionBudgetItems = cmp.Or(t.DeletionBudgetItems, 10)
	t.DeletionBudgetPercent = cmp.Or(t.DeletionBudgetPercent, 20)
	return t
}

// Source is the caller's cache of its own objects. It does no I/O.
type Source interface {
	// Content returns an item when it is sent. ok is false if the item is gone.
	Content(scope string, key Key) (content, extra []byte, ok bool)

	// Revision returns the newest resourceVersion among the published objects of a scope.
	Revision(scope string) uint64

	// SourceRevision returns the revision of the objects that an item is made of, or 0 if unknown.
	SourceRevision(scope string, key Key) uint64

	// View returns how much of this side's own store the watches have shown: everything that concerns the scope up to
	// least, and everything of one of its resources up to most. 0 means unknown.
	View(scope string) (least, most uint64)
}
