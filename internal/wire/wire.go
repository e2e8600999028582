package wire

import (
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Meta is what an event has in addition to the message.
type Meta struct {
	// Source names the sender as a URI reference, for users and tools. The transport decides who the peer is. The hub's
	// source also names the agent, because source and ID together must be unique.
	Source string

	// Session that the message belongs to.
	Session engine.Epoch

	// Seq grows with each event of a sender in a session.
	Seq uint64
}

// Unknown is a message of a newer peer. The receiver ignores it.
type Unknown struct {
	engine.Message // nil; makes Unknown one of them
	Type           string
}

// messageKind is one type of message.
type messageKind struct {
	name   string // of the protobuf message
	event  string // last part of the event type
	schema schema
	new    func() proto.Message
	read   func(proto.Message) engine.Message
}

// kinds has all messages by the last part of their event type, which is the name of the protobuf message in lower case.
var kinds = func() map[string]*messageKind {
	all := map[string]*messageKind{}
	for _, k := range []*messageKind{
		kindOf(readHello), kindOf(readWelcome), kindOf(readRoots), kindOf(readSame), kindOf(readEqual), kindOf(readAsk), kindOf(readAnswer), kindOf(readWant),
		kindOf(readDelta), kindOf(readAck), kindOf(readFinished), kindOf(readHeld), kindOf(readWriteOutage), kindOf(readApplicationEvents), kindOf(readUpgradeState), kindOf(readUpgrade), kindOf(readConfirm), kindOf(readOpen), kindOf(readBye),
	} {
		all[k.event] = k
	}
	return all
}()

func kindOf[P any, M interface {
	*P
	proto.Message
}](read func(M) engine.Message) *messageKind {
	message := M(new(P)).ProtoReflect().Descriptor()
	name := string(message.Name())
	return &messageKind{
		name: name, event: strings.ToLower(name), schema: newSchema(message),
		new:  func() proto.Message { return M(new(P)) },
		read: func(m proto.Message) engine.Message { return read(m.(M)) }, //nolint:forcetypeassert // made by new
	}
}

// Encode returns the event that carries a message. Its errors are *Error, with code TooLarge for content that no peer
// could store. Encode truncates texts for users and pauses to their limits.
func Encode(m engine.Message, meta Meta) ([]byte, error) {
	message, err := toProto(m)
	if err != nil {
		return nil, err
	}
	kind := kinds[strings.ToLower(string(message.ProtoReflect().Descriptor().Name()))]
	if size := proto.Size(message); size > MaxEvent {
		return nil, tooLarge("event", size, MaxEvent)
	}
	data, failed := proto.MarshalOptions{Deterministic: true, UseCachedSize: true}.Marshal(message)
	if failed != nil {
		return nil, badField(kind.event, "has a text that is not UTF-8")
	}
	if err := kind.schema.validate(data); err != nil {
		return nil, err.in(kind.event)
	}
	event, err := newEvent(kind, meta, data)
	if err != nil {
		return nil, err
	}
	out, failed := proto.MarshalOptions{Deterministic: true}.Marshal(event)
	switch {
	case failed != nil:
		return nil, badField("event", "cannot be encoded: %v", failed)
	case len(out) > MaxEvent:
		return nil, tooLarge("event", len(out), MaxEvent)
	}
	return out, nil
}

// Decode returns the message that an event carries. Its errors are *Error, with code BadMessage. A message of unknown
// type is Unknown. Decode keeps nothing of the event.
func Decode(event []byte) (engine.Message, Meta, error) {
	if len(event) > MaxEvent {
		return nil, Meta{}, tooLong("event", len(event), MaxEvent)
	}
	env, err := readEvent(event)
	if err != nil {
		return nil, Meta{}, err.in("event")
	}
	if env.kind == nil {
		return Unknown{Type: env.typ}, env.meta, nil
	}
	if err := env.kind.schema.validate(env.data); err != nil {
		return nil, env.meta, err.in(env.kind.event)
	}
	message := env.kind.new()
	if failed := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(env.data, message); failed != nil {
		return nil, env.meta, malformed().in(env.kind.event)
	}
	if err := checkConsistent(message); err != nil {
		return nil, env.meta, err.in(env.kind.event)
	}
	return env.kind.read(message), env.meta, nil
}

// checkConsistent checks rules about several fields.
func checkConsistent(m proto.Message) *Error {
	switch m := m.(type) {
	case *pb.Answer:
		for i, b := range m.GetBranches() {
			if err := checkBranch(b); err != nil {
				return err.in(at("branches", i))
			}
		}
	case *pb.Delta:
		for i, it := range m.GetItems() {
			if it.GetGone() && len(it.GetContent()) > 0 {
				return badField("content", "must be empty if the item is gone").in(at("items", i))
			}
		}
	}
	return nil
}

func checkBranch(b *pb.Branch) *Error {
	children := b.GetChildren()
	switch {
	case b.GetSplit() && len(b.GetHashes()) != 0, !b.GetSplit() && len(children) != 0:
		return badField("split", "does not match: a branch has either sums or items")
	case b.GetSplit() && len(b.GetPrefix()) == 8 && len(children) != 0:
		return badField("prefix", "is a whole hash, which has no children")
	case len(b.GetSums()) != 16*len(children):
		return badField("sums", "must have 16 bytes for each child")
	case len(b.GetVersions()) != 16*len(b.GetHashes()):
		return badField("versions", "must have 16 bytes for each hash")
	}
	for i := 1; i < len(children); i++ {
		if children[i-1] >= children[i] {
			return badField("children", "are not ascending")
		}
	}
	return nil
}
