package engine

// Effect is one of the types below: what the caller has to do.
type Effect interface{ effect() }

// Send a message to the peer.
type Send struct {
	Session uint64
	Message Message
}

// CloseSession a connection.
type CloseSession struct {
	Session    uint64
	Code       Code
	Message    string
	RetryAfter Time // agent: do not dial again before
}

// Apply content to the replica's object; answer with Applied.
type Apply struct {
	Scope          string
	Key            Key
	Ticket         uint64
	Version        Version
	Content        []byte
	Extra          []byte
	SourceRevision uint64 // revision of the owner's objects, to be recorded with the mark
	Suspect        bool   // the owner's store is not believed: delete nothing
}

// Remove the replica's object, workloads excepted; answer with Applied.
type Remove struct {
	Scope  string
	Key    Key
	Ticket uint64

	// Deleted reports whether a user deleted the owner's object. Otherwise no
	// user asked for the removal: the item is absent, or has left the scope.
	Deleted bool
}

// KeepAlias asks to record an alias on the object, if it is ours.
type KeepAlias struct {
	Scope string
	Key   Key
	Alias Alias
	Lost  []string // the fields that are not stored as the owner has them; none: it is harmless
	Brief bool     // no other process may rely on it
}

// Event tells people what happened. Facts need no action to stay correct.
type Event struct {
	Event   EventType
	Scope   string
	Key     Key
	Code    Code
	Message string
	Hello   *Hello   // Opened, on the hub
	Welcome *Welcome // Opened, on the agent
	Store   Store    // Opened, StoreAccepted: the other side's
	Held    *Held
}

// EventType names a fact.
type EventType string

// The events.
const (
	Opened          EventType = "Opened"        // a session is up; answer with Begin
	Closed          EventType = "Closed"        // it is gone
	Refused         EventType = "Refused"       // a session was refused (Code, Message)
	Rejected        EventType = "Rejected"      // the replica refused an item: seen by both ends
	Accepted        EventType = "Cured"         // and accepts it now
	Delivered       EventType = "Delivered"     // Pending scope: the replica has taken it
	Finalized       EventType = "Ended"         // owner: the item that it deletes is gone on the replica
	Aliased         EventType = "Aliased"       // stored differently from what was written
	HoldStarted     EventType = "Held"          // deletions wait for a confirmation (Held)
	HoldEnded       EventType = "Unheld"        // what Held names is not held any more
	StoreAccepted   EventType = "StoreAccepted" // a person accepted the other side's store
	InSync          EventType = "Equal"         // a scope is proven equal
	InitialSyncDone EventType = "Compared"      // once in a session: every scope was found equal, or made so
	Unattached      EventType = "Unattached"    // attached scope: the owner knows nothing of this object
)

func (Send) effect()         {}
func (CloseSession) effect() {}
func (Apply) effect()        {}
func (Remove) effect()       {}
func (KeepAlias) effect()    {}
func (Event) effect()        {}
