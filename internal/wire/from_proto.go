package wire

import (
	"encoding/binary"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// These functions convert generated types that Decode has checked.

func readHello(m *pb.Hello) engine.Message {
	return engine.Hello{
		Epoch: readEpoch(m.GetEpoch()), ClusterUID: m.GetClusterUid(), Mode: m.GetMode(), Mapping: m.GetMapping(), Namespace: m.GetNamespace(),
		Version: m.GetVersion(), Protocol: readRange(m.GetProtocol()), Projection: readRange(m.GetProjection()), Capabilities: m.GetCapabilities(),
		Store: readStore(m.GetStore()), Known: readStore(m.GetKnown()), Seen: convert(m.GetSeen(), readSeen), ClockMillis: m.GetClockMillis(),
		Facts: convert(m.GetFacts(), func(f *pb.Fact) engine.Fact { return engine.Fact{Key: f.GetKey(), Value: f.GetValue()} }),
	}
}

func readWelcome(m *pb.Welcome) engine.Message {
	return engine.Welcome{
		Epoch: readEpoch(m.GetEpoch()), Agent: m.GetAgent(), Mode: m.GetMode(), Mapping: m.GetMapping(), HubNamespace: m.GetHubNamespace(),
		ArgoNamespace: m.GetArgoNamespace(), ServerURL: m.GetServerUrl(), PrincipalUID: m.GetPrincipalUid(), Version: m.GetVersion(),
		Protocol: int(m.GetProtocol()), Projection: int(m.GetProjection()), Capabilities: m.GetCapabilities(), Store: readStore(m.GetStore()),
		Seen: convert(m.GetSeen(), readSeen), ClockMillis: m.GetClockMillis(), InstanceLabel: m.GetInstanceLabel(), HubGeneration: m.GetHubGeneration(), Predecessor: readStore(m.GetPredecessor()), Known: readStore(m.GetKnown()),
	}
}

func readRoots(m *pb.Roots) engine.Message {
	return engine.Roots{Items: convert(m.GetItems(), readRoot), Same: convert(m.GetSame(), readRoot), Mark: m.GetMark()}
}

func readEqual(m *pb.Equal) engine.Message {
	out := engine.Equal{Seen: convert(m.GetSeen(), readSeen), Mark: m.GetMark()}
	out.Sum.Hi, out.Sum.Lo = readHash(m.GetSum())
	return out
}

func readSame(m *pb.Same) engine.Message { return engine.Same{Items: convert(m.GetItems(), readRoot)} }

func readAsk(m *pb.Ask) engine.Message {
	return engine.Ask{Scope: m.GetScope(), Round: m.GetRound(), Prefixes: convert(m.GetPrefixes(), readPrefix)}
}

func readAnswer(m *pb.Answer) engine.Message {
	return engine.Answer{Scope: m.GetScope(), Round: m.GetRound(), Branches: convert(m.GetBranches(), readBranch), View: m.GetView()}
}

func readWant(m *pb.Want) engine.Message {
	return engine.Want{Scope: m.GetScope(), Hashes: convert(m.GetHashes(), func(h uint64) engine.KeyHash { return engine.KeyHash(h) })}
}

func readDelta(m *pb.Delta) engine.Message {
	return engine.Delta{Scope: m.GetScope(), Items: convert(m.GetItems(), readDeltaItem), Revision: m.GetRevision(), View: m.GetView()}
}

func readAck(m *pb.Ack) engine.Message {
	return engine.Ack{Scope: m.GetScope(), Items: convert(m.GetItems(), readAckItem)}
}

func readFinished(m *pb.Finished) engine.Message {
	out := engine.Finished{Scope: m.GetScope(), Key: readKey(m.GetKey())}
	out.Version.Hi, out.Version.Lo = readHash(m.GetVersion())
	return out
}

func readWriteOutage(m *pb.WriteOutage) engine.Message {
	return engine.WriteOutage{Reason: m.GetReason()}
}

func readHeld(m *pb.Held) engine.Message {
	return engine.Held{
		Scope: m.GetScope(), ID: m.GetId(), Count: m.GetCount(), Of: m.GetOf(), Reason: m.GetReason(),
		Sample: convert(m.GetSample(), readKey), Cause: engine.Cause(m.GetCause()),
	}
}

func readApplicationEvents(m *pb.ApplicationEvents) engine.Message {
	return engine.ApplicationEvents{Items: convert(m.GetItems(), func(e *pb.ApplicationEvent) engine.ApplicationEvent {
		return engine.ApplicationEvent{
			Key: readKey(e.GetKey()), ApplicationUID: e.GetApplicationUid(), UID: e.GetUid(), Type: e.GetType(), Reason: e.GetReason(),
			Message: e.GetMessage(), Component: e.GetComponent(), Count: e.GetCount(), FirstMillis: e.GetFirstMillis(), LastMillis: e.GetLastMillis(),
		}
	})}
}

func readUpgradeState(m *pb.UpgradeState) engine.Message {
	return engine.UpgradeState{ID: m.GetId(), Phase: m.GetPhase(), Message: m.GetMessage()}
}

func readUpgrade(m *pb.Upgrade) engine.Message {
	return engine.Upgrade{ID: m.GetId(), Version: m.GetVersion(), Repository: m.GetRepository(), Digest: m.GetDigest(), TimeoutMillis: m.GetTimeoutMillis()}
}

func readConfirm(m *pb.Confirm) engine.Message {
	return engine.Confirm{Scope: m.GetScope(), ID: m.GetId()}
}

func readOpen(m *pb.Open) engine.Message {
	return engine.Open{Token: m.GetToken(), Target: m.GetTarget()}
}

func readBye(m *pb.Bye) engine.Message {
	return engine.Bye{Code: engine.Code(m.GetCode()), Message: m.GetMessage(), RetryAfterMillis: m.GetRetryAfterMillis()}
}

func readEpoch(e *pb.Epoch) engine.Epoch {
	return engine.Epoch{Incarnation: e.GetIncarnation(), Attempt: e.GetAttempt()}
}

func readRange(r *pb.Range) engine.Range {
	return engine.Range{Min: int(r.GetMin()), Max: int(r.GetMax())}
}

func readStore(s *pb.Store) engine.Store {
	return engine.Store{UID: s.GetUid(), Revision: s.GetRevision(),
		Mark: engine.HistoryMark{Record: s.GetMark().GetRecord(), Number: s.GetMark().GetNumber()}}
}

func readSeen(s *pb.Seen) engine.Seen {
	return engine.Seen{Scope: s.GetScope(), Revision: s.GetRevision()}
}

func readKey(k *pb.Key) engine.Key {
	return engine.Key{Namespace: k.GetNamespace(), Name: k.GetName()}
}

func readRoot(r *pb.Root) engine.Root {
	out := engine.Root{Scope: r.GetScope(), Count: r.GetCount(), Revision: r.GetRevision()}
	out.Sum.Hi, out.Sum.Lo = readHash(r.GetSum())
	return out
}

func readDeltaItem(it *pb.Delta_Item) engine.DeltaItem {
	out := engine.DeltaItem{
		Seq: it.GetSeq(), Key: readKey(it.GetKey()), Gone: it.GetGone(), DeletedUID: it.GetDeletedUid(),
		Content: readBytes(it.GetContent()), Extra: readBytes(it.GetExtra()), Revision: it.GetRevision(),
	}
	out.Version.Hi, out.Version.Lo = readHash(it.GetVersion())
	return out
}

func readAckItem(it *pb.Ack_Item) engine.AckItem {
	out := engine.AckItem{
		Seq: it.GetSeq(), Key: readKey(it.GetKey()), Code: engine.Code(it.GetCode()), Message: it.GetMessage(), RetryAfterMillis: it.GetRetryAfterMillis(),
		HandledMillis: it.GetHandledMillis(),
	}
	out.Version.Hi, out.Version.Lo = readHash(it.GetVersion())
	return out
}

func readBranch(b *pb.Branch) engine.Branch {
	out := engine.Branch{
		Prefix: readPrefix(b.GetPrefix()), Split: b.GetSplit(),
		Sums:  convert(b.GetChildren(), func(c byte) engine.ChildSum { return engine.ChildSum{Child: c} }),
		Items: convert(b.GetHashes(), func(h uint64) engine.Listed { return engine.Listed{Hash: engine.KeyHash(h)} }),
	}
	for i := range out.Sums {
		out.Sums[i].Sum.Hi, out.Sums[i].Sum.Lo = readHash(b.GetSums()[16*i:])
	}
	for i := range out.Items {
		out.Items[i].Version.Hi, out.Items[i].Version.Lo = readHash(b.GetVersions()[16*i:])
	}
	return out
}

func readPrefix(b []byte) engine.Prefix {
	var bits [8]byte
	copy(bits[:], b)
	return engine.Prefix{Bits: binary.BigEndian.Uint64(bits[:]), Len: uint8(len(b))}
}

// readHash returns the 128-bit number at the beginning of b. If b is empty, it is zero.
func readHash(b []byte) (hi, lo uint64) {
	if len(b) == 0 {
		return 0, 0
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}

func readBytes(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
