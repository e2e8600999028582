package wire

// tag is a field's number and wire type, as it precedes the field's value. The
// list below is the .proto files once more, for both directions. A field that
// arrives with another wire type is another tag, and so unknown.
type tag uint64

// Wire types.
const (
	varint  = 0
	fixed64 = 1
	block   = 2 // length, then bytes
)

const (
	eventIDField     tag = 1<<3 | block
	eventSourceField tag = 2<<3 | block
	eventSpecField   tag = 3<<3 | block
	eventTypeField   tag = 4<<3 | block
	eventBinaryField tag = 6<<3 | block
	eventTextField   tag = 7<<3 | block
	eventProtoField  tag = 8<<3 | block

	anyTypeURL tag = 1<<3 | block
	anyValue   tag = 2<<3 | block

	helloEpoch        tag = 1<<3 | block
	helloClusterUID   tag = 2<<3 | block
	helloMode         tag = 3<<3 | block
	helloMapping      tag = 4<<3 | block
	helloNamespace    tag = 5<<3 | block
	helloVersion      tag = 6<<3 | block
	helloProtocol     tag = 7<<3 | block
	helloProjection   tag = 8<<3 | block
	helloCapabilities tag = 9<<3 | block
	helloStore        tag = 10<<3 | block
	helloSeen         tag = 11<<3 | block
	helloClockMillis  tag = 12<<3 | varint

	welcomeEpoch         tag = 1<<3 | block
	welcomeAgent         tag = 2<<3 | block
	welcomeMode          tag = 3<<3 | block
	welcomeMapping       tag = 4<<3 | block
	welcomeHubNamespace  tag = 5<<3 | block
	welcomeArgoNamespace tag = 6<<3 | block
	welcomeServerURL     tag = 7<<3 | block
	welcomePrincipalUID  tag = 8<<3 | block
	welcomeVersion       tag = 9<<3 | block
	welcomeProtocol      tag = 10<<3 | varint
	welcomeProjection    tag = 11<<3 | varint
	welcomeCapabilities  tag = 12<<3 | block
	welcomeStore         tag = 13<<3 | block
	welcomeSeen          tag = 14<<3 | block
	welcomeClockMillis   tag = 15<<3 | varint
	welcomeInstanceLabel tag = 16<<3 | block

	epochIncarnation tag = 1<<3 | varint
	epochAttempt     tag = 2<<3 | varint

	rangeMin tag = 1<<3 | varint
	rangeMax tag = 2<<3 | varint

	storeUID      tag = 1<<3 | block
	storeRevision tag = 2<<3 | varint

	seenScope    tag = 1<<3 | block
	seenRevision tag = 2<<3 | varint

	rootsItems tag = 1<<3 | block // of Roots and of Same
	rootsSame  tag = 2<<3 | block // of Roots

	rootScope    tag = 1<<3 | block
	rootCount    tag = 2<<3 | varint
	rootSum      tag = 3<<3 | block
	rootRevision tag = 4<<3 | varint

	askScope    tag = 1<<3 | block
	askRound    tag = 2<<3 | varint
	askPrefixes tag = 3<<3 | block

	answerScope    tag = 1<<3 | block
	answerRound    tag = 2<<3 | varint
	answerView     tag = 4<<3 | varint
	answerBranches tag = 3<<3 | block

	branchPrefix      tag = 1<<3 | block
	branchSplit       tag = 2<<3 | varint
	branchChildren    tag = 3<<3 | block
	branchSums        tag = 4<<3 | block
	branchHashes      tag = 5<<3 | block // packed
	branchHashesPlain tag = 5<<3 | fixed64
	branchVersions    tag = 6<<3 | block

	wantScope       tag = 1<<3 | block
	wantHashes      tag = 2<<3 | block // packed
	wantHashesPlain tag = 2<<3 | fixed64

	deltaScope    tag = 1<<3 | block
	deltaItems    tag = 2<<3 | block
	deltaRevision tag = 3<<3 | varint
	deltaView     tag = 4<<3 | varint

	deltaItemSeq     tag = 1<<3 | varint
	deltaItemKey     tag = 2<<3 | block
	deltaItemVersion tag = 3<<3 | block
	deltaItemGone    tag = 4<<3 | varint
	deltaItemContent tag = 5<<3 | block
	deltaItemExtra   tag = 6<<3 | block
	deltaItemBorn    tag = 7<<3 | varint
	deltaItemDeleted tag = 8<<3 | varint

	keyNamespace tag = 1<<3 | block
	keyName      tag = 2<<3 | block

	ackScope tag = 1<<3 | block
	ackItems tag = 2<<3 | block

	ackItemSeq        tag = 1<<3 | varint
	ackItemKey        tag = 2<<3 | block
	ackItemVersion    tag = 3<<3 | block
	ackItemCode       tag = 4<<3 | block
	ackItemMessage    tag = 5<<3 | block
	ackItemRetryAfter tag = 6<<3 | varint

	finishedScope   tag = 1<<3 | block
	finishedKey     tag = 2<<3 | block
	finishedVersion tag = 3<<3 | block

	heldScope  tag = 1<<3 | block
	heldID     tag = 2<<3 | block
	heldCount  tag = 3<<3 | varint
	heldOf     tag = 4<<3 | varint
	heldReason tag = 5<<3 | block
	heldSample tag = 6<<3 | block
	heldCause  tag = 7<<3 | block

	outageReason tag = 1<<3 | block

	confirmScope tag = 1<<3 | block
	confirmID    tag = 2<<3 | block

	openToken  tag = 1<<3 | block
	openTarget tag = 2<<3 | block

	byeCode       tag = 1<<3 | block
	byeMessage    tag = 2<<3 | block
	byeRetryAfter tag = 3<<3 | varint
)
