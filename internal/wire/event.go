package wire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

const (
	namespacePrefix = "io.argocd-agent."           // of event types that are ours, in any release
	typePrefix      = namespacePrefix + "sync.v1." // of those that this package reads
	protoPrefix     = "argocdagent.v1."            // of the protobuf messages in them
	urlPrefix       = "type.googleapis.com/"       // by convention
	specVersion     = "1.0"                        // of CloudEvents
)

// messageName is what a message is called: at the end of the event's type, and
// at the end of the type URL.
type messageName struct{ event, proto string }

var (
	helloName    = messageName{"hello", "Hello"}
	welcomeName  = messageName{"welcome", "Welcome"}
	rootsName    = messageName{"roots", "Roots"}
	sameName     = messageName{"same", "Same"}
	askName      = messageName{"ask", "Ask"}
	answerName   = messageName{"answer", "Answer"}
	wantName     = messageName{"want", "Want"}
	deltaName    = messageName{"delta", "Delta"}
	ackName      = messageName{"ack", "Ack"}
	finishedName = messageName{"finished", "Finished"}
	heldName     = messageName{"held", "Held"}
	outageName   = messageName{"writeoutage", "WriteOutage"}
	confirmName  = messageName{"confirm", "Confirm"}
	openName     = messageName{"open", "Open"}
	byeName      = messageName{"bye", "Bye"}
)

type readFunc func([]byte) (engine.Message, *Error)

// readers lists what Decode understands, by the end of the event's type.
var readers = map[string]struct {
	name messageName
	read readFunc
}{
	"hello":       {helloName, readHello},
	"welcome":     {welcomeName, readWelcome},
	"roots":       {rootsName, readRoots},
	"same":        {sameName, readSame},
	"ask":         {askName, readAsk},
	"answer":      {answerName, readAnswer},
	"want":        {wantName, readWant},
	"delta":       {deltaName, readDelta},
	"ack":         {ackName, readAck},
	"finished":    {finishedName, readFinished},
	"held":        {heldName, readHeld},
	"writeoutage": {outageName, readWriteOutage},
	"confirm":     {confirmName, readConfirm},
	"open":        {openName, readOpen},
	"bye":         {byeName, readBye},
}

// event wraps what is written into a CloudEvent.
func (w *writer) event(name messageName, meta Meta) {
	w.closeFilled(anyValue, 0)
	w.constant(anyTypeURL, urlPrefix, protoPrefix, name.proto)
	w.close(eventProtoField, 0)
	w.constant(eventTypeField, typePrefix, name.event)
	w.constant(eventSpecField, specVersion)
	w.string(eventSourceField, "event.source", eventSource, meta.Source)
	end := w.len()
	id := strconv.AppendUint(w.scratch[:0], meta.Session.Incarnation, 10)
	id = strconv.AppendUint(append(id, '.'), meta.Session.Attempt, 10)
	id = strconv.AppendUint(append(id, '.'), meta.Seq, 10)
	copy(w.take(len(id)), id)
	w.close(eventIDField, end)
}

// constant writes a string that is made of parts and needs no check.
func (w *writer) constant(t tag, parts ...string) {
	end := w.len()
	for i := range slices.Backward(parts) {
		copy(w.take(len(parts[i])), parts[i])
	}
	w.close(t, end)
}

// envelope is what readEvent finds in an event.
type envelope struct {
	meta Meta
	typ  string   // short, of a message that we know; else in full
	read readFunc // nil: unknown
	data []byte
}

func readEvent(b []byte) (env envelope, err *Error) {
	var id, source, spec, typ, url string
	found, other := false, false
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case eventIDField:
			id = r.string("id", eventID)
		case eventSourceField:
			source = r.string("source", eventSource)
		case eventSpecField:
			spec = r.string("spec_version", shortToken)
		case eventTypeField:
			typ = r.string("type", eventType)
		case eventProtoField:
			found = true
			r.nested("proto_data", readAny(r.data, &url, &env.data))
		case eventBinaryField, eventTextField:
			other = true
		}
	}
	r.need("id", id)
	r.need("source", source)
	r.need("type", typ)
	switch {
	case r.err != nil:
		return env, r.err
	case spec != specVersion:
		return env, badField("spec_version", "is %q instead of %s", spec, specVersion)
	case !strings.HasPrefix(typ, namespacePrefix):
		return env, badField("type", "%q is not one of %s", typ, namespacePrefix)
	}
	env.meta.Source = source
	if !readID(id, &env.meta) {
		return env, badField("id", "%q is not incarnation.attempt.number", id)
	}
	short, ours := strings.CutPrefix(typ, typePrefix)
	known, ok := readers[short]
	if !ours || !ok {
		env.typ = typ
		return env, nil
	}
	env.typ, env.read = known.name.event, known.read
	switch {
	case !found || other:
		return env, badField("data", "has to be proto_data")
	case url[strings.LastIndexByte(url, '/')+1:] != protoPrefix+known.name.proto:
		return env, badField("proto_data", "is a %q, which does not fit the event's type", url)
	}
	return env, nil
}

func readAny(b []byte, url *string, value *[]byte) *Error {
	r := reader{rest: b}
	for r.next() {
		switch r.tag {
		case anyTypeURL:
			*url = r.string("type_url", eventType)
		case anyValue:
			*value = r.data
		}
	}
	return r.err
}

func readID(id string, meta *Meta) bool {
	incarnation, rest, _ := strings.Cut(id, ".")
	attempt, seq, _ := strings.Cut(rest, ".")
	var err1, err2, err3 error
	meta.Session.Incarnation, err1 = strconv.ParseUint(incarnation, 10, 64)
	meta.Session.Attempt, err2 = strconv.ParseUint(attempt, 10, 64)
	meta.Seq, err3 = strconv.ParseUint(seq, 10, 64)
	return err1 == nil && err2 == nil && err3 == nil
}
