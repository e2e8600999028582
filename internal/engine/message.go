package engine

// Message is one of the types below: what two peers say to each other.
// Package wire gives each its form on the wire. A receiver ignores a message
// that it does not know, and one that belongs to another session.
type Message interface{ message() }

// Protocol versions that this build speaks. Peers settle on the highest that
// both know; a build keeps those of its neighbours.
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
	Epoch        Epoch    // of this session; the newest wins
	ClusterUID   string   // UID of kube-system: another cluster under a known name is refused
	Mode         string   // what the agent was configured for; the hub's registration decides
	Mapping      string   // likewise
	Namespace    string   // Argo CD's namespace on the agent's cluster
	Version      string   // of the build, for people
	Protocol     Range    // what this build speaks
	Projection   Range    // likewise
	Capabilities []string // what it can do beyond the protocol version
	Store        Store    // where the agent's own API server is in its history
	Seen         []Seen   // how far the agent has seen the hub's, by scope
	ClockMillis  int64    // to show the skew
}

// Welcome answers Hello and opens the session.
type Welcome struct {
	Epoch         Epoch
	Agent         string // the name that the transport proved
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
	Seen          []Seen
	ClockMillis   int64
	InstanceLabel string // by which Argo CD tracks on the hub; empty: the default
}

// FleetHold is a capability of the hub: it checks removals by absence across its
// agents. An agent that knows it holds such removals until the hub confirms them,
// which the hub does by itself unless many agents lose items at once.
const FleetHold = "fleet-hold"

// Range is what a peer supports, both ends included.
type Range struct{ Min, Max int }

// Epoch orders the sessions of one agent: the incarnation comes from the
// agent's own Lease and grows with every process, the attempt with every dial.
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

// Store identifies an API server's storage and how far its history has come.
// A store that is another one, or that went back, is not believed when it says
// that something is gone.
type Store struct {
	UID      string
	Revision uint64
}

// Seen is the newest revision of the other side's objects in a scope that a
// side knows of. An owner whose own view is older than that would mistake what
// it has not seen yet for gone, so it waits with comparing until it has.
type Seen struct {
	Scope    string
	Revision uint64
}

// Roots is a side's beacon: the digests of whole scopes that it owns. A scope is
// in it only when the owner has seen all of its own objects. What the side owes
// the other an answer to goes along.
type Roots struct {
	Items []Root
	Same  []Root // as in Same
}

// Root is the digest of one scope.
type Root struct {
	Scope    string
	Count    uint64
	Sum      Sum
	Revision uint64 // the newest of the owner's objects that went into it; 0: not told
	Known    bool   // the replica has called it the same before: its next beacon is soon enough for saying so again
}

// Same answers the Roots that equal the replica's own. Only Scope and Sum count.
type Same struct{ Items []Root }

// Ask opens or continues a round: the replica wants to know what is below
// these prefixes of the key hash.
type Ask struct {
	Scope    string
	Round    uint64
	Prefixes []Prefix
}

// Answer is the owner's answer to an Ask, one entry for each prefix asked for.
type Answer struct {
	Scope    string
	Round    uint64
	Branches []Branch
	View     uint64 // up to this revision the owner has seen all of its own store; 0: not told
}

// Branch tells what the owner has below one prefix: either the sums of its 256
// children (those that are not empty), or, where there are few, every item.
type Branch struct {
	Prefix Prefix
	Split  bool // Sums is meant, else Items
	Sums   []ChildSum
	Items  []Listed
}

// ChildSum is the sum of the items below Prefix extended by Child.
type ChildSum struct {
	Child uint8
	Sum   Sum
}

// Listed is an item in short form.
type Listed struct {
	Hash    KeyHash
	Version Version
}

// Want asks the owner to send these items as they are now. What the owner does
// not have it passes over: a round tells about absence.
type Want struct {
	Scope  string
	Hashes []KeyHash
}

// Delta carries items from the owner to the replica.
type Delta struct {
	Scope    string
	Items    []DeltaItem
	Revision uint64 // as in Root
	View     uint64 // the latest revision of its own store that the owner knows of; 0: not told
}

// What one item may have at most. Content is bounded by what an API server
// stores; larger items are refused by their own side.
const (
	MaxContent = 3 << 19 // 1.5 MiB
	MaxExtra   = 64 << 10
)

// DeltaItem is one item. Seq grows with every item that is sent in a scope and
// session: what arrives late is known as late.
type DeltaItem struct {
	Seq     uint64
	Key     Key
	Version Version
	Gone    bool   // the owner was seen to lose it; no content
	Deleted bool   // ... because a user deleted it; false: it left the scope, or not told
	Content []byte // canonical; hashed
	Extra   []byte // travels along, not hashed

	// Revision of the objects that the content was made of; 0: not told.
	Revision uint64
}

// Ack is the replica's answer to items: done, or why not.
type Ack struct {
	Scope string
	Items []AckItem
}

// AckItem answers one DeltaItem.
type AckItem struct {
	Seq              uint64
	Key              Key
	Version          Version
	Code             Code // OK, or why not
	Message          string
	RetryAfterMillis int64
}

// Finished tells the owner that an item which it wants deleted no longer
// exists on the replica's side, so that its finalizer can go.
type Finished struct {
	Scope   string
	Key     Key
	Version Version // of the item that wants the deletion, lest an old word end a new one
}

// Held tells the hub which deletions the replica does not carry out by itself.
type Held struct {
	Scope  string
	ID     string // of exactly this set of keys; empty: nothing is held any more
	Count  uint64
	Of     uint64
	Reason string
	Sample []Key // a few, for people
	Cause  Cause // empty: an older peer, which does not tell
}

// Confirm lets a held deletion go ahead, or accepts a store that went back.
type Confirm struct {
	Scope string
	ID    string
}

// Bye ends a session, or refuses one.
type Bye struct {
	Code             Code
	Message          string
	RetryAfterMillis int64
}

// Open asks the agent to open a tunnel. The engine passes it through.
type Open struct {
	Token  string
	Target string
}

func (Hello) message()    {}
func (Welcome) message()  {}
func (Roots) message()    {}
func (Same) message()     {}
func (Ask) message()      {}
func (Answer) message()   {}
func (Want) message()     {}
func (Delta) message()    {}
func (Ack) message()      {}
func (Finished) message() {}
func (Held) message()     {}
func (Confirm) message()  {}
func (Bye) message()      {}
func (Open) message()     {}
