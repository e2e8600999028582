package engine

// Time is milliseconds on a clock that the caller chooses; it may stand still
// but the engine never sees it go back.
type Time int64

// Second is a second in Time.
const Second Time = 1000

// ScopeStyle says what a scope's items are.
type ScopeStyle uint8

const (
	// Mirror scopes are equal sets: the replica creates and deletes.
	Mirror ScopeStyle = iota
	// Attached scopes fill objects that exist for another reason: the replica
	// neither creates nor deletes.
	Attached
	// OneShot scopes hold what waits to be carried out once. There is nothing
	// to compare: what is pending is sent, and sent again in a new session.
	OneShot
)

// Role is a side's part in a scope.
type Role uint8

// The two roles.
const (
	Owner Role = iota
	Replica
)

// ScopeConfig describes a scope to the Peer. Both ends list the same scopes in
// the same order, which is the order in which kinds depend on each other.
type ScopeConfig struct {
	Name      string
	Style     ScopeStyle
	Role      Role
	DependsOn string // scope in which an item's Needs is looked up

	// NoBudget says that items may be removed by absence without a confirmation,
	// however many: credentials, of which less is safer. While the owner's store is
	// suspect, they are held all the same.
	NoBudget bool
}

// Config of a Peer.
type Config struct {
	Hub    bool // this end is the hub's
	Scopes []ScopeConfig

	// Hub: what is registered for this agent. Agent: what it is configured for.
	Mode    string
	Mapping string

	// Self goes into Hello (agent) or Welcome (hub) as it is, with epoch, store,
	// clock and negotiated versions filled in.
	Hello   Hello
	Welcome Welcome

	// KnownCluster (hub) is the cluster UID registered for this agent, if any.
	KnownCluster string
	// KnownStore is how far the other side's store was last seen, if ever.
	KnownStore Store
	// KnownSeen is how far it was last seen in single scopes, as Seen told it.
	KnownSeen []Seen
	// StoreUntrusted says that the other side's store was found to have gone back
	// before this process started, and that nobody has accepted it yet.
	StoreUntrusted bool

	Tuning Tuning
}

// Tuning holds the numbers. Zero means the default.
type Tuning struct {
	Window                int  // bytes in flight for each scope
	DeltaBytes            int  // of content in one message
	DeltaItems            int  // in one message
	AskPrefixes           int  // in one message
	MaxItems              int  // in a scope that a peer fills
	MaxBytes              int  // of content that this side stores for a scope that a peer fills
	MaxTombstones         int  // explicit deletions remembered for a peer that is away
	Beacon                Time // between roots
	Resend                Time // until an item without an answer is sent again
	PeerTimeout           Time // of a peer that leaves items unanswered, until the session is given up
	MinRetryDelay         Time // first retry of a rejected item
	MaxRetryDelay         Time // longest pause between retries
	MaxInvalidDelay       Time // likewise, of an item that the replica finds wrong
	MaxUnavailableDelay   Time // the same for what could not be written just now: the other side may be well again at any time
	DependencyTimeout     Time // how long an item waits for its project
	ExtraInterval         Time // between two sends of an item for its Extra alone
	RoundTimeout          Time // until an unanswered round is started afresh
	DeletionBudgetItems   int  // a round that removes more than this many ...
	DeletionBudgetPercent int  // ... and more than this share is held
}

func (t Tuning) withDefaults() Tuning {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	defT := func(v *Time, d Time) {
		if *v == 0 {
			*v = d
		}
	}
	def(&t.Window, 1<<20)
	def(&t.DeltaBytes, 256<<10)
	def(&t.DeltaItems, 128)
	def(&t.AskPrefixes, 32)
	def(&t.MaxItems, 50_000)
	def(&t.MaxBytes, 512<<20)
	def(&t.MaxTombstones, 10_000)
	defT(&t.Beacon, 60*Second)
	defT(&t.Resend, 60*Second)
	defT(&t.PeerTimeout, 180*Second)
	defT(&t.MinRetryDelay, Second)
	defT(&t.MaxRetryDelay, 300*Second)
	defT(&t.MaxInvalidDelay, 60*Second)
	defT(&t.MaxUnavailableDelay, 20*Second)
	defT(&t.DependencyTimeout, 5*Second)
	defT(&t.ExtraInterval, 600*Second)
	defT(&t.RoundTimeout, 30*Second)
	def(&t.DeletionBudgetItems, 10)
	def(&t.DeletionBudgetPercent, 20)
	return t
}

// Source is the caller's cache of its own objects: no I/O.
type Source interface {
	// Content reads an item at the moment it is sent. False: it is gone by now.
	Content(scope string, key Key) (content, extra []byte, ok bool)

	// Revision is the newest resourceVersion among the objects of a scope that
	// the Peer was told of.
	Revision(scope string) uint64

	// SourceRevision is the revision of the objects that an item is made of; 0: unknown.
	SourceRevision(scope string, key Key) uint64

	// View is how much is known of this side's own store: all of what concerns
	// the scope up to least, and something as late as most. 0: unknown.
	View(scope string) (least, most uint64)
}
