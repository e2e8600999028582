package wire

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
)

const (
	namespacePrefix = "io.argocd-agent."           // of our event types in any release
	typePrefix      = namespacePrefix + "sync.v1." // of the event types in this package
	urlPrefix       = "type.googleapis.com/"       // by convention
	specVersion     = "1.0"                        // of CloudEvents
)

// Field numbers of CloudEvent and Any.
const (
	eventIDField     = 1
	eventSourceField = 2
	eventSpecField   = 3
	eventTypeField   = 4
	eventBinaryField = 6
	eventTextField   = 7
	eventProtoField  = 8

	anyURLField   = 1
	anyValueField = 2
)

// newEvent returns the event of an encoded message.
func newEvent(kind *messageKind, meta Meta, data []byte) (*pb.CloudEvent, *Error) {
	if reason := eventSource.violation([]byte(meta.Source)); reason != "" {
		return nil, badField("event.source", "%s", reason)
	}
	event := &pb.CloudEvent{
		Id:     fmt.Sprintf("%d.%d.%d", meta.Session.Incarnation, meta.Session.Attempt, meta.Seq),
		Source: meta.Source, SpecVersion: specVersion, Type: typePrefix + kind.event,
	}
	if kind.binary() {
		event.Data = &pb.CloudEvent_BinaryData{BinaryData: data}
	} else {
		event.Data = &pb.CloudEvent_ProtoData{ProtoData: &anypb.Any{TypeUrl: urlPrefix + protoPrefix + kind.name, Value: data}}
	}
	return event, nil
}

// binary reports whether events have the message in binary_data, without the 40 bytes of a type URL. That is for the
// message that idle connections carry. Peers that do not know this form do not know the message.
func (k *messageKind) binary() bool { return k.event == "equal" }

// envelope is the content of an event.
type envelope struct {
	meta Meta
	typ  string
	kind *messageKind // nil if unknown
	data []byte
}

func readEvent(b []byte) (env envelope, err *Error) {
	var id, source, spec, url string
	var form protowire.Number // field of the data; 0 if there is none
	read := func(into *string, name string, r *rule, data []byte) *Error {
		if reason := r.violation(data); reason != "" {
			return badField(name, "%s", reason)
		}
		*into = string(data)
		return nil
	}
	err = walk(b, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) *Error {
		if typ != protowire.BytesType {
			return nil
		}
		switch num {
		case eventIDField:
			return read(&id, "id", &eventID, data)
		case eventSourceField:
			return read(&source, "source", &eventSource, data)
		case eventSpecField:
			return read(&spec, "spec_version", &shortToken, data)
		case eventTypeField:
			return read(&env.typ, "type", &eventType, data)
		case eventBinaryField, eventTextField:
			form, env.data, url = num, data, "" // the last one counts
		case eventProtoField:
			if form != num {
				form, env.data = num, nil
			}
			return walk(data, func(num protowire.Number, typ protowire.Type, _ uint64, data []byte) *Error {
				switch {
				case typ != protowire.BytesType:
				case num == anyURLField:
					return read(&url, "type_url", &eventType, data)
				case num == anyValueField:
					env.data = data
				}
				return nil
			}).in("proto_data")
		}
		return nil
	})
	switch {
	case err != nil:
		return env, err
	case id == "":
		return env, badField("id", "is missing")
	case source == "":
		return env, badField("source", "is missing")
	case env.typ == "":
		return env, badField("type", "is missing")
	case spec != specVersion:
		return env, badField("spec_version", "is %q instead of %s", spec, specVersion)
	case !strings.HasPrefix(env.typ, namespacePrefix):
		return env, badField("type", "%q does not begin with %s", env.typ, namespacePrefix)
	}
	env.meta.Source = source
	if !readID(id, &env.meta) {
		return env, badField("id", "%q is not incarnation.attempt.number", id)
	}
	name, ours := strings.CutPrefix(env.typ, typePrefix)
	env.kind = kinds[name]
	switch {
	case !ours || env.kind == nil:
		env.kind = nil
	case env.kind.binary() && form == eventBinaryField:
	case form != eventProtoField:
		return env, badField("data", "is not proto_data")
	case url[strings.LastIndexByte(url, '/')+1:] != protoPrefix+env.kind.name:
		return env, badField("proto_data", "is a %q, which does not match the event's type", url)
	}
	return env, nil
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
