package wire

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// foreign is an event of a peer that follows the .proto files and no limit.
func foreign(tb testing.TB, m engine.Message) []byte {
	tb.Helper()
	return marshal(tb, foreignEvent(tb, generated(m)))
}

func foreignEvent(tb testing.TB, m proto.Message) *pb.CloudEvent {
	tb.Helper()
	data, err := anypb.New(m)
	if err != nil {
		tb.Fatal(err)
	}
	return &pb.CloudEvent{
		Id:          "17.3.42",
		Source:      "agent/prod-1",
		SpecVersion: "1.0",
		Type:        "io.argocd-agent.sync.v1." + string(bytes.ToLower([]byte(data.MessageName().Name()))),
		Data:        &pb.CloudEvent_ProtoData{ProtoData: data},
	}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
