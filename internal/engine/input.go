package engine

// Input is one of the types below.
type Input interface{ input() }

// Connected reports a new connection. The agent then sends Hello.
type Connected struct {
	Session uint64 // chosen by the caller, never reused
	Epoch   Epoch  // agent: the epoch of this session
	Store   Store  // this side's store
	Facts   []Fact // agent: of its cluster
}

// Disconnected reports that a connection is closed.
type Disconnected struct{ Session uint64 }

// Received is a message from the peer.
type Received struct {
	Session uint64
	Message Message
}

// Tick reports that the time of NextWake has come.
type Tick struct{}

// Publish reports that the owner has an item in this version.
type Publish struct {
	Scope     string
	Key       Key
	Version   Version
	DependsOn Key  // zero: none
	SendExtra bool // send it if Extra changed, when it is due ...
	Urgent    bool // ... or at once
}

// Withdraw reports that the owner no longer has an item.
type Withdraw struct {
	Scope      string
	Key        Key
	Seen       bool   // the owner saw it go; otherwise it was missing in a list, and the replica treats it as absent
	DeletedUID string // seen: UID of the owner's object if a user deleted it; empty if it left the scope and may still exist
}

// Observe reports what the replica's own object contains. A caller whose view lags behind its own writes must leave out
// what is older than the last Applied: it would count as a change by another writer.
type Observe struct {
	Scope          string
	Key            Key
	Stored         Version // hash of its projected content
	Size           int     // bytes of that content
	Owned          bool    // has our ownership annotation, so that it counts and may be deleted
	Alias          Alias   // as recorded on the object
	Lossy          bool    // the alias hides that a field is not stored as it was written
	Outdated       bool    // the alias was recorded by another release or under another CRD
	SourceRevision uint64  // as recorded on the object: the revision of the owner's objects that it came from

	SourceGeneration uint64 // as recorded on the object: see Apply
}

// Alias records that content written as Written is stored as Stored.
type Alias struct{ Written, Stored Version }

// ObjectGone reports that the replica's own object is gone.
type ObjectGone struct {
	Scope string
	Key   Key
}

// View reports whether this side has read all of its own objects of a scope.
type View struct {
	Scope    string
	Complete bool
	Reason   string // why not, shown to the peer's user
}

// Applied answers Apply or Remove.
type Applied struct {
	Scope            string
	Key              Key
	Ticket           uint64
	Code             Code
	Message          string
	RetryAfter       Time
	Stored           Version  // after a write: hash of what is stored, or zero if there is no object
	Size             int      // bytes of what is stored
	Replaced         Version  // hash of what the write replaced
	Lost             []string // fields that are not stored as they were written: few and short
	Contested        []string // fields that differed in what the write replaced
	SourceRevision   uint64   // as in Observe
	SourceGeneration uint64   // as in Observe
	Written          bool     // an API write was needed
	Gone             bool     // the item's object is to be deleted and does not exist; if Stored is set, another object has its name
	Deleting         bool     // the object is terminating: its content no longer counts
	LeftUnchanged    bool     // the item asks to leave the object as it is
}

// Begin answers the event Opened. The caller must first report everything that depends on the peer of this session, and
// its view must be as fresh as Seen. Only then are sets compared.
type Begin struct{}

// Recheck reports that the CRD of the objects, or the release of either side, has changed. The item is then written
// once more, soon.
type Recheck struct {
	Scope string
	Key   Key // if zero, every item of the scope
}

// Reconsider reports that items of a mirror scope may have been rejected for a reason that is gone. They are requested
// again.
type Reconsider struct{ Scope string }

// Known reports what is recorded about the other side. Another principal replica may have had a session since. While a
// session is open here, it only closes a session of another cluster.
type Known struct {
	Cluster        string
	Store          Store
	StoreUntrusted bool
}

// Remembered reports on an agent what is recorded about the hub. Another process of the agent may have had a session since
// and may know more. It has no effect while a session is open.
type Remembered struct {
	Store          Store
	StoreUntrusted bool
	Seen           []Seen
	Generation     HubGeneration

	FormerGenerations []HubGeneration // of other hubs

	Removals []Removal

	LaterGenerations []uint64 // as Peer.LaterGenerations returned them before the record was read
}

// Removing reports on an agent that the object of an item is about to be deleted or released because the hub ordered it. What
// Removals returns then must be stored before.
type Removing struct {
	Scope  string
	Key    Key
	Source string // UID of the hub's object; empty if unknown
	ByUser bool   // a user deleted that object, without its resources
}

// Marked reports that this side has stored a history mark. It covers its objects up to Revision.
type Marked struct {
	Mark     HistoryMark
	Revision uint64 // from Status.Unmarked
}

// SetCompact makes a scope of the hub compact, because another principal replica has the session of the agent, or ends that. After
// the end, the caller reports the objects of the scope again, and then its view. It has no effect while a session is open.
type SetCompact struct {
	Scope   string
	Compact bool
}

// Confirmed is a user's confirmation of a hold. The hub forwards it if the agent holds.
type Confirmed struct{ ID string }

// SetWriteOutage reports on the agent that its API server does not accept writes. If Reason is empty, it accepts them.
type SetWriteOutage struct{ Reason string }

func (Connected) input()      {}
func (Disconnected) input()   {}
func (Received) input()       {}
func (Tick) input()           {}
func (Publish) input()        {}
func (Withdraw) input()       {}
func (Observe) input()        {}
func (ObjectGone) input()     {}
func (View) input()           {}
func (Applied) input()        {}
func (Recheck) input()        {}
func (Reconsider) input()     {}
func (Begin) input()          {}
func (SetCompact) input()     {}
func (Confirmed) input()      {}
func (Known) input()          {}
func (Remembered) input()     {}
func (Marked) input()         {}
func (Removing) input()       {}
func (SetWriteOutage) input() {}
