package engine

// Code is the result of an item or a session. Codes travel by name, so that a peer of another release can show one that
// it does not know.
type Code string

// Codes of items. Retryable codes are retried after a delay, the others when the item or its obstacle changes.
const (
	OK            Code = ""
	Invalid       Code = "Invalid"       // the API server or this side finds the content invalid
	Forbidden     Code = "Forbidden"     // RBAC or policy on the replica side
	NotAllowed    Code = "NotAllowed"    // namespace, kind or command that the settings exclude
	NameTaken     Code = "NameTaken"     // another object has that name
	NotAdopted    Code = "NotAdopted"    // exists, is not owned by us, and the policy forbids adoption
	NoObject      Code = "NoObject"      // attached scope: there is no object to fill
	InUse         Code = "InUse"         // a project that an Application still uses
	Busy          Code = "Busy"          // another operation is running
	OnHold        Code = "Held"          // waits for a confirmation
	TooLarge      Code = "TooLarge"      // exceeds what the replica can store
	Unavailable   Code = "Unavailable"   // 429, 5xx, timeout
	Unknown       Code = "Unknown"       // anything else
	Superseded    Code = "Superseded"    // a newer session of this agent exists
	WrongMode     Code = "WrongMode"     // registered differently
	WrongCluster  Code = "WrongCluster"  // another cluster under this name
	WrongProtocol Code = "WrongProtocol" // no version in common
	BadMessage    Code = "BadMessage"    // breaks a limit or the order of the protocol
	Overloaded    Code = "Overloaded"    // reconnect later
	Revoked       Code = "Revoked"       // suspended, or certificate revoked or expired
	ShuttingDown  Code = "ShuttingDown"  // reconnect
	Reconnect     Code = "Reconnect"     // reconnect, to a principal replica with fewer agents
	HubSuperseded Code = "HubSuperseded" // another hub was promoted since
	WrongHub      Code = "WrongHub"      // the agent belongs to a hub of another identity
)

// Retryable reports whether the item may succeed later without a change.
func (c Code) Retryable() bool {
	switch c {
	case Invalid, NotAllowed, NotAdopted, TooLarge, NoObject:
		return false
	}
	return true
}
