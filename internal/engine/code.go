package engine

// Code says what became of an item or a session. Codes travel by name, so that
// a peer of another build can show one that it has never heard of.
type Code string

// Codes of items. Retryable ones are tried again after a while, the others
// when the item changes or the obstacle goes away.
const (
	OK            Code = ""
	Invalid       Code = "Invalid"       // the API server, or we, find the content wrong
	Forbidden     Code = "Forbidden"     // RBAC or policy on the replica's side
	NotAllowed    Code = "NotAllowed"    // namespace, kind or command that the settings exclude
	NameTaken     Code = "NameTaken"     // something else has that name
	NotAdopted    Code = "NotAdopted"    // exists, is not ours, and the policy says never
	NoObject      Code = "NoObject"      // attached scope: nothing there to fill
	InUse         Code = "InUse"         // a project that an Application still names
	Busy          Code = "Busy"          // another operation is running; waits
	HeldBack      Code = "Held"          // waits for a confirmation
	TooLarge      Code = "TooLarge"      // exceeds what the replica can store
	Unavailable   Code = "Unavailable"   // 429, 5xx, timeout: will be tried again
	Unknown       Code = "Unknown"       // anything else
	Superseded    Code = "Superseded"    // a newer session of this agent exists
	WrongMode     Code = "WrongMode"     // registered differently
	WrongCluster  Code = "WrongCluster"  // another cluster under this name
	WrongProtocol Code = "WrongProtocol" // no version in common
	BadMessage    Code = "BadMessage"    // breaks a limit or the order of the protocol
	Overloaded    Code = "Overloaded"    // come back later
	Revoked       Code = "Revoked"       // suspended, or certificate revoked
	ShuttingDown  Code = "ShuttingDown"  // reconnect
)

// Retryable reports whether time alone may cure the item.
func (c Code) Retryable() bool {
	switch c {
	case Invalid, NotAllowed, NotAdopted, TooLarge, NoObject:
		return false
	}
	return true
}
