package engine

// Input is one of the types below.
type Input interface{ input() }

// Connected says that a connection is there. The agent then says Hello.
type Connected struct {
	Session uint64 // chosen by the caller, never used twice
	Epoch   Epoch  // agent: of this session
	Store   Store  // of this side, now
}

// Disconnected says that a connection is gone.
type Disconnected struct{ Session uint64 }

// Received is a message from the peer.
type Received struct {
	Session uint64
	Message Message
}

// Tick says that the time from NextWake has come.
type Tick struct{}

// Publish says that the owner has an item, in this version.
type Publish struct {
	Scope     string
	Key       Key
	Version   Version
	DependsOn Key  // zero: none
	Touch     bool // send it even if only Extra changed, when it is due ...
	Urgent    bool // ... or at once
}

// Withdraw says that the owner has an item no longer. Seen: it was watched
// leaving. Otherwise it was merely missing when the owner looked again, and the
// replica treats it as such. Deleted, of what was seen: a user deleted the
// owner's object. Otherwise the object left the scope and may still exist.
type Withdraw struct {
	Scope   string
	Key     Key
	Seen    bool
	Deleted bool
}

// Observe says what the replica's own object holds. A caller whose view lags
// behind its own writes leaves out what is older than the last Applied: it would
// be taken for somebody's change.
type Observe struct {
	Scope          string
	Key            Key
	Stored         Version // hash of its content under the projection
	Size           int     // bytes of that content
	Owned          bool    // carries our mark, so that it counts and may be removed
	Alias          Alias   // as recorded on the object
	Lossy          bool    // the alias hides that a field is not stored as it was written
	SourceRevision uint64  // likewise: the revision of the owner's objects that it came from
}

// Alias says that content written as Written is stored as Stored.
type Alias struct{ Written, Stored Version }

// ObjectGone says that the replica's own object is gone.
type ObjectGone struct {
	Scope string
	Key   Key
}

// View says whether this side has seen all of its own objects of a scope.
type View struct {
	Scope    string
	Complete bool
	Reason   string // why not, for the peer's user
}

// Applied is the caller's answer to Apply or Remove.
type Applied struct {
	Scope          string
	Key            Key
	Ticket         uint64
	Code           Code // OK or why not
	Message        string
	RetryAfter     Time
	Stored         Version  // after a write: hash of what is stored; zero: no object
	Size           int      // bytes of what is stored
	Replaced       Version  // hash of what the write replaced
	Lost           []string // fields that are not stored as they were written: few and short, for people
	Contested      []string // likewise, fields that were not so in what the write replaced
	SourceRevision uint64   // as in Observe
	Written        bool     // an API write happened, else all was right already
	Gone           bool     // the item is one to be deleted, and no object of it is left; Held: there is another one
	Deleting       bool     // the object is being deleted: its content no longer counts
	Left           bool     // the object was left as it is, on purpose: that is what the item asks for
}

// Begin answers the fact Opened, once the caller has told everything that
// depends on whom the session is with, and its view is as fresh as the other
// side's knowledge of it (Seen). Only then sets are compared.
type Begin struct{}

// Recheck says that what an alias rests on has changed: the schema of the objects,
// or the release of either side. Then the item is written once more, soon.
type Recheck struct {
	Scope string
	Key   Key // zero: every item of the scope
}

// Retry says that an obstacle of a rejected item is gone.
type Retry struct {
	Scope string
	Key   Key
}

// Known says what is recorded of the other side by now: another replica of the
// hub may have met it since. While a session is open here, this end knows best.
type Known struct {
	Cluster string
	Store   Store
	Suspect bool
}

// Confirmed is a person's word that a held deletion may go ahead. On the hub
// it is passed on if it was the agent that held back.
type Confirmed struct{ ID string }

func (Connected) input()    {}
func (Disconnected) input() {}
func (Received) input()     {}
func (Tick) input()         {}
func (Publish) input()      {}
func (Withdraw) input()     {}
func (Observe) input()      {}
func (ObjectGone) input()   {}
func (View) input()         {}
func (Applied) input()      {}
func (Recheck) input()      {}
func (Retry) input()        {}
func (Begin) input()        {}
func (Confirmed) input()    {}
func (Known) input()        {}
