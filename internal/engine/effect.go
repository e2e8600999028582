package engine

// Effect is one of the types below. The caller must carry it out.
type Effect interface{ effect() }

// Send sends a message to the peer.
type Send struct {
	Session uint64
	Message Message
}

// CloseSession closes a connection.
type CloseSession struct {
	Session    uint64
	Code       Code
	Message    string
	RetryAfter Time // agent: earliest time of the next dial
}

// Apply writes content to the replica's object. The caller answers with Applied.
type Apply struct {
	Scope          string
	Key            Key
	Ticket         uint64
	Version        Version
	Content        []byte
	Extra          []byte
	SourceRevision uint64 // revision of the owner's objects, recorded with the ownership annotation
	View           uint64 // revision up to which the owner knows its own store; an object that IsLater must stay
	StoreUntrusted bool   // the owner's store is untrusted for this item: delete nothing

	SourceGeneration uint64 // of the hub, recorded with the source revision; 0 before the first promotion
}

// Remove deletes the replica's object but not its workloads. The caller answers with Applied.
type Remove struct {
	Scope  string
	Key    Key
	Ticket uint64

	// DeletedUID is the UID of the owner's object if a user deleted it. Empty: the item is absent or has left the scope.
	DeletedUID string
}

// RecordAlias records an alias on the object, if it is owned by us.
type RecordAlias struct {
	Scope     string
	Key       Key
	Alias     Alias
	Lost      []string // fields that are not stored as the owner has them; if empty, the alias is harmless
	Temporary bool     // no other process may rely on it
}

// Event reports what happened. It needs no action.
type Event struct {
	Type    EventType
	Scope   string
	Key     Key
	Code    Code
	Message string
	Hello   *Hello   // Opened, on the hub
	Welcome *Welcome // Opened, on the agent
	Store   Store    // Opened, StoreAccepted, StoreContinued: the other side's store
	Held    *Held

	Revision uint64 // InSync, on the replica side: of the owner's root

	Unshared []string // Opened: scopes of this side that the other side does not know
}

// EventType names an event.
type EventType string

// Event types.
const (
	Opened          EventType = "Opened"          // a session is open; the caller answers with Begin
	Closed          EventType = "Closed"          // the session is closed
	Refused         EventType = "Refused"         // a session was refused (Code, Message)
	Rejected        EventType = "Rejected"        // the replica rejected an item; both ends emit it
	Accepted        EventType = "Accepted"        // the replica accepts a rejected item now
	Delivered       EventType = "Delivered"       // OneShot scope: the replica has accepted the item
	Finalized       EventType = "Finalized"       // owner: the replica's object of an item that is being deleted is gone
	Aliased         EventType = "Aliased"         // stored differently from what was written
	HoldStarted     EventType = "HoldStarted"     // deletions wait for a confirmation (Held)
	HoldEnded       EventType = "HoldEnded"       // the hold in Held has ended
	StoreAccepted   EventType = "StoreAccepted"   // a user accepted the other side's store
	StoreContinued  EventType = "StoreContinued"  // agent: the store of a promoted hub continues the known one
	WriteOutageSet  EventType = "WriteOutageSet"  // hub: the agent's API server does not accept writes (Message); empty: it does
	InSync          EventType = "InSync"          // the digests of a scope are equal
	InitialSyncDone EventType = "InitialSyncDone" // once per session: every scope was in sync, or differs after it was compared twice
	Unattached      EventType = "Unattached"      // attached scope: the owner has no item for this object
)

func (Send) effect()         {}
func (CloseSession) effect() {}
func (Apply) effect()        {}
func (Remove) effect()       {}
func (RecordAlias) effect()  {}
func (Event) effect()        {}
