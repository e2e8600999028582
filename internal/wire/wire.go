package wire

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Meta is what an event says beside the message.
type Meta struct {
	// Source names the sender as a URI reference, for people and tools: the
	// identity of a peer is what the transport proved. The hub's also names the
	// agent it speaks to, as source and ID together have to be unique.
	Source string

	// Session that the message belongs to.
	Session engine.Epoch

	// Seq grows with each event that a sender sends in a session.
	Seq uint64
}

// Unknown is a message of a type that this build has never heard of, from a
// newer peer. It is no error: whoever gets it ignores it, as the engine does.
type Unknown struct {
	engine.Message // nil; makes Unknown one of them
	Type           string
}

// Encode returns the event that carries a message. Its errors are *Error, with
// code TooLarge for content that no peer could store. Text for people, and
// pauses, are cut to their limits; nothing else is changed.
func Encode(m engine.Message, meta Meta) ([]byte, error) {
	size := sizeOf(m)
	if size > MaxEvent {
		return nil, tooLarge("event", size, MaxEvent)
	}
	w := newWriter(size + envelopeSize)
	name, err := w.message(m)
	if err != nil {
		return nil, err
	}
	if err := w.err.in(name.event); err != nil {
		return nil, err
	}
	w.event(name, meta)
	if w.err != nil {
		return nil, w.err
	}
	if w.len() > MaxEvent {
		return nil, tooLarge("event", w.len(), MaxEvent)
	}
	return w.buf[w.at:], nil
}

// Decode returns the message that an event carries. Its errors are *Error, with
// code BadMessage. A type of message that is not known is Unknown, no error.
// Nothing of the event is kept: its memory may be used again, and a small item
// that somebody holds on to does not hold on to a large event.
func Decode(event []byte) (engine.Message, Meta, error) {
	if len(event) > MaxEvent {
		return nil, Meta{}, badField("event", "has %d bytes, at most %d are allowed", len(event), MaxEvent)
	}
	env, err := readEvent(event)
	if err != nil {
		return nil, Meta{}, err.in("event")
	}
	if env.read == nil {
		return Unknown{Type: env.typ}, env.meta, nil
	}
	m, err := env.read(env.data)
	if err != nil {
		return nil, env.meta, err.in(env.typ)
	}
	return m, env.meta, nil
}

// message writes m and returns what it is called.
func (w *writer) message(m engine.Message) (messageName, error) {
	switch m := m.(type) {
	case engine.Hello:
		w.hello(m)
		return helloName, nil
	case engine.Welcome:
		w.welcome(m)
		return welcomeName, nil
	case engine.Roots:
		w.roots(rootsSame, "same", m.Same)
		w.roots(rootsItems, "items", m.Items)
		return rootsName, nil
	case engine.Same:
		w.roots(rootsItems, "items", m.Items)
		return sameName, nil
	case engine.Ask:
		w.ask(m)
		return askName, nil
	case engine.Answer:
		w.answer(m)
		return answerName, nil
	case engine.Want:
		w.want(m)
		return wantName, nil
	case engine.Delta:
		w.delta(m)
		return deltaName, nil
	case engine.Ack:
		w.ack(m)
		return ackName, nil
	case engine.Finished:
		w.finished(m)
		return finishedName, nil
	case engine.Held:
		w.held(m)
		return heldName, nil
	case engine.WriteOutage:
		w.string(outageReason, "reason", messageText, sanitizeText(m.Reason))
		return outageName, nil
	case engine.Confirm:
		w.confirm(m)
		return confirmName, nil
	case engine.Open:
		w.open(m)
		return openName, nil
	case engine.Bye:
		w.bye(m)
		return byeName, nil
	}
	return messageName{}, badField("event", "cannot carry a %T", m)
}

// envelopeSize is room for the event around a message.
const envelopeSize = 256

// sizeOf estimates the size of a message, on the large side, so that it is
// written into one piece of memory.
func sizeOf(m engine.Message) int {
	size := 256
	switch m := m.(type) {
	case engine.Delta:
		for i := range m.Items {
			it := &m.Items[i]
			size += len(it.Content) + len(it.Extra) + len(it.Key.Name) + len(it.Key.Namespace) + 64
		}
	case engine.Ack:
		for i := range m.Items {
			it := &m.Items[i]
			size += len(it.Code) + min(len(it.Message), MaxText) + len(it.Key.Name) + len(it.Key.Namespace) + 64
		}
	case engine.Answer:
		for i := range m.Branches {
			size += 17*len(m.Branches[i].Sums) + 24*len(m.Branches[i].Items) + 32
		}
	case engine.Ask:
		size += 10 * len(m.Prefixes)
	case engine.Want:
		size += 8 * len(m.Hashes)
	}
	return size
}
