package wire

// Limits of what travels. Both directions hold to them. Raising one needs a
// capability: a peer of an older build would refuse what it allows.
const (
	// MaxEvent is the size of one event on the wire, all included. The
	// transport has to let messages of this size pass.
	MaxEvent = 4 << 20

	// MaxContent is the size of an item's content: etcd's own limit for a
	// request, so nothing larger can be stored on the other side.
	MaxContent = 3 << 19

	// MaxExtra is the size of what travels beside the content.
	MaxExtra = 64 << 10

	// MaxItems is the number of items in a Delta or Ack.
	MaxItems = 1024

	// MaxScopes is the number of scopes that one message is about.
	MaxScopes = 32

	// MaxPrefixes is the number of prefixes in an Ask, and so of branches in an
	// Answer.
	MaxPrefixes = 256

	// MaxListed is the number of items that a branch lists; it sums up at most
	// 256 children. MaxPrefixes full branches fit into one event.
	MaxListed = 256

	// MaxHashes is the number of items in a Want.
	MaxHashes = 4096

	// MaxSample is the number of keys that Held shows.
	MaxSample = 32

	// MaxCapabilities is the number of capabilities of a peer.
	MaxCapabilities = 64

	// MaxText is the size of a message for people. Encode cuts what is longer:
	// no error report may fail for being long.
	MaxText = 1024

	// MaxRetryMillis is the longest pause that one end may ask of the other: a
	// day. Encode shortens what is longer.
	MaxRetryMillis = 24 * 60 * 60 * 1000

	// maxNumber bounds version numbers of protocol and projection.
	maxNumber = 1 << 16
)

// Limits of strings, and what may be in them.
var (
	objectName    = rule{max: 253, valid: isSubdomain, what: "a lower-case RFC 1123 name"}
	namespaceName = rule{max: 63, valid: isLabel, what: "a lower-case RFC 1123 label", optional: true}
	agentName     = rule{max: 253, valid: isSubdomain, what: "a lower-case RFC 1123 name", optional: true}
	scopeName     = rule{max: 64, valid: isToken, what: token}
	shortToken    = rule{max: 64, valid: isToken, what: token, optional: true} // mode, mapping, code, ID
	capability    = rule{max: 64, valid: isToken, what: token}
	labelKey      = rule{max: 317, valid: isToken, what: token, optional: true}
	uid           = rule{max: 128, valid: isToken, what: token, optional: true}
	address       = rule{max: 2048, valid: isToken, what: token, optional: true}
	tunnelWord    = rule{max: 256, valid: isToken, what: token, optional: true}
	buildVersion  = rule{max: 128, valid: isText, what: text, optional: true}
	messageText   = rule{max: MaxText, valid: isText, what: text, optional: true}

	eventID     = rule{max: 62, valid: isToken, what: token} // three numbers of 64 bits
	eventSource = rule{max: 320, valid: isToken, what: token}
	eventType   = rule{max: 128, valid: isToken, what: token}
)

const (
	token = "printable ASCII without spaces"
	text  = "UTF-8 without control characters"
)
