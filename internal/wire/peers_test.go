package wire

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"pgregory.net/rapid"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestDecode_AcceptsMessagesOfANewerPeer(t *testing.T) {
	for _, typ := range []string{"io.argocd-agent.sync.v1.whisper", "io.argocd-agent.sync.v2.delta", "io.argocd-agent.fleet.v1.hello"} {
		event := foreignEvent(t, &pb.Bye{})
		event.Type = typ
		event.Data = &pb.CloudEvent_ProtoData{ProtoData: &anypb.Any{
			TypeUrl: "type.googleapis.com/argocdagent.v9.Whisper", Value: []byte("whatever"),
		}}
		m, meta, err := Decode(marshal(t, event))
		if err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		if !reflect.DeepEqual(m, Unknown{Type: typ}) || meta != someMeta {
			t.Errorf("%s: decoded as %#v, %#v", typ, m, meta)
		}
	}
}

func TestEncode_RejectsUnknownMessages(t *testing.T) {
	if _, err := Encode(Unknown{Type: "io.argocd-agent.sync.v1.whisper"}, someMeta); codeOf(err) != engine.BadMessage {
		t.Error(err)
	}
	if _, err := Encode(nil, someMeta); codeOf(err) != engine.BadMessage {
		t.Error(err)
	}
}

// The fields have every wire type and are at every level.
func TestDecode_IgnoresFieldsOfANewerPeer(t *testing.T) {
	forEachMessage(t, func(t *rapid.T, m engine.Message, _ Meta) {
		message := generated(m)
		addUnknownFields(message.ProtoReflect())
		data, err := anypb.New(message)
		if err != nil {
			t.Fatal(err)
		}
		addUnknownFields(data.ProtoReflect())
		event := &pb.CloudEvent{
			Id:          "17.3.42",
			Source:      "agent/prod-1",
			SpecVersion: "1.0",
			Type:        typePrefix + eventName(message),
			Attributes: map[string]*pb.CloudEvent_AttributeValue{
				"traceparent": {Attr: &pb.CloudEvent_AttributeValue_CeString{CeString: "00-4bf92f-01"}},
			},
			Data: &pb.CloudEvent_ProtoData{ProtoData: data},
		}
		addUnknownFields(event.ProtoReflect())
		b, err := proto.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		got, meta, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, m) || meta != someMeta {
			t.Fatalf("sent     %#v\nreceived %#v, %#v", m, got, meta)
		}
	})
}

func eventName(m proto.Message) string {
	for name, kind := range kinds {
		if kind.name == string(m.ProtoReflect().Descriptor().Name()) {
			return name
		}
	}
	return ""
}

func addUnknownFields(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
		case field.Kind() != protoreflect.MessageKind:
		case field.IsList():
			for i := range v.List().Len() {
				addUnknownFields(v.List().Get(i).Message())
			}
		default:
			addUnknownFields(v.Message())
		}
		return true
	})
	var b []byte
	b = protowire.AppendTag(b, 1001, protowire.VarintType)
	b = protowire.AppendVarint(b, 1<<63)
	b = protowire.AppendTag(b, 1002, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, 7)
	b = protowire.AppendTag(b, 1003, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, 7)
	b = protowire.AppendTag(b, 1004, protowire.BytesType)
	b = protowire.AppendString(b, "new")
	b = protowire.AppendTag(b, 1005, protowire.StartGroupType)
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	b = protowire.AppendVarint(b, 1)
	b = protowire.AppendTag(b, 1005, protowire.EndGroupType)
	m.SetUnknown(b)
}

func TestDecode_AcceptsMissingFieldsOfAnOlderPeer(t *testing.T) {
	for _, c := range []struct {
		sent proto.Message
		want engine.Message
	}{
		{&pb.Hello{}, engine.Hello{}},
		{&pb.Welcome{}, engine.Welcome{}},
		{&pb.Roots{}, engine.Roots{}},
		{&pb.Same{}, engine.Same{}},
		{&pb.Equal{}, engine.Equal{}},
		{&pb.Ask{Scope: "s"}, engine.Ask{Scope: "s"}},
		{&pb.Answer{Scope: "s"}, engine.Answer{Scope: "s"}},
		{&pb.Want{Scope: "s"}, engine.Want{Scope: "s"}},
		{&pb.Delta{Scope: "s"}, engine.Delta{Scope: "s"}},
		{&pb.Ack{Scope: "s"}, engine.Ack{Scope: "s"}},
		{&pb.Finished{Scope: "s", Key: &pb.Key{Name: "a"}}, engine.Finished{Scope: "s", Key: engine.Key{Name: "a"}}},
		{&pb.Held{}, engine.Held{}},
		{&pb.WriteOutage{}, engine.WriteOutage{}},
		{&pb.UpgradeState{}, engine.UpgradeState{}},
		{&pb.Upgrade{}, engine.Upgrade{}},
		{&pb.Confirm{}, engine.Confirm{}},
		{&pb.Open{}, engine.Open{}},
		{&pb.Bye{}, engine.Bye{}},
	} {
		got, _, err := Decode(marshal(t, foreignEvent(t, c.sent)))
		if err != nil {
			t.Errorf("%T: %v", c.sent, err)
		} else if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T is decoded as %#v", c.sent, got)
		}
	}
}

// Earlier agents send the generation that they follow in field 4 of a Bye.
func TestDecode_AcceptsByeOfEarlierAgents(t *testing.T) {
	sent := &pb.Bye{Code: "HubSuperseded"}
	sent.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 4, protowire.VarintType), 3))
	if got, _, err := Decode(marshal(t, foreignEvent(t, sent))); err != nil || got != (engine.Bye{Code: engine.HubSuperseded}) {
		t.Errorf("%#v, %v", got, err)
	}
}

// The CloudEvents SDK wrote the event, with attributes that we do not use. See the directory interop.
func TestDecode_AcceptsEventsOfTheSDK(t *testing.T) {
	m, meta, err := Decode(readDump(t, "testdata/sdk.golden"))
	if err != nil {
		t.Fatal(err)
	}
	if m != (engine.Confirm{Scope: "application", ID: "5f0c"}) || meta != someMeta {
		t.Errorf("decoded as %#v, %#v", m, meta)
	}
}

func TestDecode_AcceptsOtherEncodings(t *testing.T) {
	field := func(b []byte, name protoreflect.Name, v ...byte) []byte {
		return protowire.AppendBytes(append(b, tagOf("Want", name, protowire.BytesType)...), v)
	}
	plain := func(b []byte, v uint64) []byte {
		return protowire.AppendFixed64(append(b, tagOf("Want", "hashes", protowire.Fixed64Type)...), v)
	}
	for name, c := range map[string]struct {
		message []byte
		want    engine.Want
	}{
		"numbers one by one":       {plain(plain(field(nil, "scope", 's'), 1), 2), engine.Want{Scope: "s", Hashes: []engine.KeyHash{1, 2}}},
		"numbers in two parts":     {field(plain(field(nil, "scope", 's'), 1), "hashes", 2, 0, 0, 0, 0, 0, 0, 0), engine.Want{Scope: "s", Hashes: []engine.KeyHash{1, 2}}},
		"fields in another order":  {field(plain(nil, 1), "scope", 's'), engine.Want{Scope: "s", Hashes: []engine.KeyHash{1}}},
		"a field twice: last wins": {field(field(nil, "scope", 'r'), "scope", 's'), engine.Want{Scope: "s"}},
	} {
		got, _, err := Decode(raw("Want", c.message))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v", name, got)
		}
	}
}
