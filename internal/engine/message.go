package engine

// Message is one of the types below. Package wire encodes them. A receiver ignores a message that it does not know, and
// one of another session.
type Message interface{ message() }

// Protocol versions of this release. Peers use the highest common version. A release keeps the versions of its
// neighbors.
const (
	ProtocolMin = 1
	ProtocolMax = 1
)

// Projection versions: how objects are turned into content and hashed.
const (
	ProjectionMin = 1
	ProjectionMax = 1
)

// Hello is the agent's first message in a session.
type Hello struct {
	Epoch        Epoch  // of this session; the newest wins
	ClusterUID   string // UID of kube-system; another cluster under a known name is refused
	Mode         string // the agent's setting; the hub's registration decides
	Mapping      string
	Namespace    string // Argo CD's namespace on the workload cluster
	Version      string // release
	Protocol     Range
	Projection   Range
	Capabilities []string // features beyond the protocol version
	Store        Store    // the agent's own store
	Known        Store    // the hub's, as far as the agent has seen and trusts it
	Seen         []Seen   // newest hub revision that the agent has seen, by scope
	ClockMillis  int64    // to show the clock skew
	Facts        []Fact   // of the agent's cluster; at most MaxFacts
}

// Fact is a property of a workload cluster, in the form of a label.
type Fact struct{ Key, Value string }

// MaxFacts limits the facts of a Hello.
const MaxFacts = 32

// Welcome answers Hello and opens the session.
type Welcome struct {
	Epoch         Epoch
	Agent         string // name from the agent's certificate
	Mode          string // as registered
	Mapping       string
	HubNamespace  string // of the agent's Applications on the hub
	ArgoNamespace string // of Argo CD on the hub
	ServerURL     string // of the agent's cluster Secret
	PrincipalUID  string
	Version       string
	Protocol      int
	Projection    int
	Capabilities  []string
	Store         Store
	Known         Store // the agent's, as far as the hub has seen and trusts it
	Seen          []Seen
	ClockMillis   int64
	InstanceLabel string // with which Argo CD tracks resources on the hub; if empty, the default
	HubGeneration uint64 // see HubGeneration; 0 if the hub is older
	Predecessor   Store  // of a promoted hub: store of the hub before it, and up to where it has received everything of it
}

// FleetHold is a capability of the hub: it checks deletions by absence across its agents. An agent that knows it holds
// such deletions until the hub confirms them. The hub confirms without a user unless many agents lose items at once.
const FleetHold = "fleet-hold"

// AcceptsEvents is a capability of the hub: it accepts ApplicationEvents.
const AcceptsEvents = "application-events"

// Range is an inclusive range of supported versions.
type Range struct{ Min, Max int }

// Epoch orders the sessions of one agent. Incarnation comes from the agent's Lease and grows with every process.
// Attempt grows with every dial.
type Epoch struct {
	Incarnation uint64
	Attempt     uint64
}

// Newer reports whether e is of a later session than o.
func (e Epoch) Newer(o Epoch) bool {
	if e.Incarnation != o.Incarnation {
		return e.Incarnation > o.Incarnation
	}
	return e.Attempt > o.Attempt
}

// Store identifies an API server's storage and its current revision. If it is another store, or has regressed, what it
// lacks does not count as deleted.
type Store struct {
	UID      string
	Revision uint64
	Mark     HistoryMark
}

// Seen is the newest revision of the other side's objects in a scope that a side knows. An owner with an older view
// would mistake what it has not read yet for gone, so it does not compare before its view is as new.
type Seen struct {
	Scope    string
	Revision uint64
}

// Roots is the beacon: the digests of the scopes that the sender owns. A scope is included only if the owner has read
// all of its own objects. Same acknowledges the other side's Roots if both are sent in
// the same step.
type Roots struct {
	Items []Root
	Same  []Root // as in Same
	Mark  uint64 // number of the sender's latest history mark; 0 if none
}

// Root is the digest of one scope.
type Root struct {
	Scope    string
	Count    uint64
	Sum      Sum
	Revision uint64 // newest of the owner's objects in it; 0 if unknown
}

// Same acknowledges the Roots that equal the replica's own. Only Scope and Sum count.
type Same struct{ Items []Root }

// Equal is the beacon while everything is equal, and its answer. Sum is that of all scopes (Peer.combinedSum). Seen has
// the newest revisions of the sender's objects, for scopes in which they have changed since it last sent them.
type Equal struct {
	Sum  Sum
	Seen []Seen
	Mark uint64 // as in Roots
}

// Ask starts or continues a round: the replica requests what is below these prefixes of the key hash.
type Ask struct {
	Scope    string
	Round    uint64
	Prefixes []Prefix
}

// Answer answers an Ask, with one branch per prefix.
type Answer struct {
	Scope    string
	Round    uint64
	Branches []Branch
	View     uint64 // revision up to which the owner has read all of its own store; 0 if unknown
}

// Branch describes what the owner has below one prefix: the sums of its 256 children without the empty ones, or, if
// there are few, every item.
type Branch struct {
	Prefix Prefix
	Split  bool // Sums is set, otherwise Items
	Sums   []ChildSum
	Items  []Listed
}

// ChildSum is the sum of the items below Prefix extended by Child.
type ChildSum struct {
	Child uint8
	Sum   Sum
}

// Listed is the short form of an item.
type Listed struct {
	Hash    KeyHash
	Version Version
}

// Want requests these items in their current version. The owner ignores items that it does not have: only a round
// proves absence.
type Want struct {
	Scope  string
	Hashes []KeyHash
}

// Delta carries items from the owner to the replica.
type Delta struct {
	Scope    string
	Items    []DeltaItem
	Revision uint64 // as in Root
	View     uint64 // as in Answer
}

// Limits of one item. An API server stores no more content. Larger items are rejected by their own side.
const (
	MaxContent = 3 << 19 // 1.5 MiB
	MaxExtra   = 64 << 10
)

// DeltaItem is one item. Seq grows with every item that is sent in a scope and session, so that late arrivals are
// recognized.
type DeltaItem struct {
	Seq        uint64
	Key        Key
	Version    Version
	Gone       bool   // the owner saw the item go; no content
	DeletedUID string // UID of the owner's object if a user deleted it; empty if it left the scope, or if this is unknown
	Content    []byte // canonical and hashed
	Extra      []byte // not hashed

	// Revision of the objects that the content was made of, or up to which the owner saw the item go. 0 if unknown.
	Revision uint64
}

// Ack acknowledges or rejects items.
type Ack struct {
	Scope string
	Items []AckItem
}

// AckItem answers one DeltaItem.
type AckItem struct {
	Seq              uint64
	Key              Key
	Version          Version
	Code             Code
	Message          string
	RetryAfterMillis int64
	HandledMillis    int64 // how long the replica took from the receipt, set and used by adapters only; 0 if unknown
}

// Finished reports that an item that the owner wants deleted no longer exists on the replica side, so that its
// finalizer can be removed.
type Finished struct {
	Scope   string
	Key     Key
	Version Version // of the item that wants the deletion, so that a late message cannot finish a newer one
}

// Held reports which deletions wait for a confirmation.
type Held struct {
	Scope  string
	ID     string // of exactly this set of keys; if empty, nothing is held
	Count  uint64
	Of     uint64
	Reason string
	Sample []Key
	Cause  Cause // empty if the peer is older
}

// WriteOutage reports that the agent's API server does not accept writes, or that it accepts them again.
type WriteOutage struct {
	Reason string // if empty, it accepts writes
}

// ApplicationEvents reports Events of the agent's Applications. The engine does not handle it.
type ApplicationEvents struct{ Items []ApplicationEvent }

// MaxApplicationEvents limits the items of ApplicationEvents.
const MaxApplicationEvents = 64

// ApplicationEvent is an Event of the agent's cluster about one of its Applications.
type ApplicationEvent struct {
	Key            Key    // of the Application, as in the scope of statuses
	ApplicationUID string // on the side that owns it
	UID            string // of the Event
	Type           string // Normal or Warning
	Reason         string
	Message        string
	Component      string // that reported it
	Count          uint32
	FirstMillis    int64 // since 1970, by the clock of the agent's cluster
	LastMillis     int64
}

// UpgradeState reports what the agent does about upgrades, at the start of each session and after each change. The engine
// does not handle it.
type UpgradeState struct {
	ID      string // of the last Upgrade that the agent handled; empty if there was none
	Phase   string // as in Status.Upgrade of the Agent resource
	Message string
}

// Upgrade asks an agent that has sent UpgradeState to run another version of itself. The engine does not handle it.
type Upgrade struct {
	ID            string
	Version       string // which is also the tag of the image
	Repository    string // if empty, that of the running agent
	Digest        string // if empty, the tag is used alone
	TimeoutMillis int64  // in which the new agent must be in sync
}

// Confirm confirms a held deletion, or accepts an untrusted store.
type Confirm struct {
	Scope string
	ID    string
}

// Bye closes or refuses a session.
type Bye struct {
	Code             Code
	Message          string
	RetryAfterMillis int64
}

// Open requests a tunnel from the agent. The engine does not handle it.
type Open struct {
	Token  string
	Target string
}

func (Hello) message()             {}
func (Welcome) message()           {}
func (Roots) message()             {}
func (Equal) message()             {}
func (Same) message()              {}
func (Ask) message()               {}
func (Answer) message()            {}
func (Want) message()              {}
func (Delta) message()             {}
func (Ack) message()               {}
func (Finished) message()          {}
func (Held) message()              {}
func (Confirm) message()           {}
func (ApplicationEvents) message() {}
func (UpgradeState) message()      {}
func (Upgrade) message()           {}
func (WriteOutage) message()       {}
func (Bye) message()               {}
func (Open) message()              {}
