package wire

// Limits of messages. Both directions use them. To raise one, add a capability: an older peer would reject the message.
const (
	// MaxEvent is the size of one event. The transport must accept messages of this size.
	MaxEvent = 4 << 20

	// MaxContent is the size of an item's content: etcd's limit for a request, so that nothing larger can be stored.
	MaxContent = 3 << 19

	// MaxExtra is the size of an item's data that is not part of its version.
	MaxExtra = 64 << 10

	// MaxItems is the number of items in a Delta or Ack.
	MaxItems = 1024

	// MaxScopes is the number of scopes in one message.
	MaxScopes = 32

	// MaxPrefixes is the number of prefixes in an Ask, and of branches in an Answer.
	MaxPrefixes = 256

	// MaxListed is the number of items in a branch. A branch has at most 256 children. MaxPrefixes full branches fit
	// into one event.
	MaxListed = 256

	// MaxHashes is the number of items in a Want.
	MaxHashes = 4096

	// MaxSample is the number of keys in Held.
	MaxSample = 32

	// MaxCapabilities is the number of capabilities of a peer.
	MaxCapabilities = 64

	// MaxText is the size of a text for users. Encode truncates longer texts, so that no report fails.
	MaxText = 1024

	// MaxRetryMillis is the longest pause that one side may request: a day. Encode shortens longer pauses.
	MaxRetryMillis = 24 * 60 * 60 * 1000

	// maxVersion bounds version numbers of protocol and projection.
	maxVersion = 1 << 16

	// maxGeneration bounds generations of a hub.
	maxGeneration = 1<<31 - 1
)
