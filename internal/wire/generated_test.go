package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// generated converts a message without any check, so that tests can send what Encode rejects.
func generated(m engine.Message) proto.Message {
	switch m := m.(type) {
	case engine.Hello:
		return &pb.Hello{
			Epoch: pbEpoch(m.Epoch), ClusterUid: m.ClusterUID, Mode: m.Mode, Mapping: m.Mapping,
			Namespace: m.Namespace, Version: m.Version, Protocol: pbRange(m.Protocol),
			Projection: pbRange(m.Projection), Capabilities: m.Capabilities, Store: pbStore(m.Store), Known: pbStore(m.Known), Seen: each(m.Seen, pbSeen), Facts: each(m.Facts, pbFact),
			ClockMillis: m.ClockMillis,
		}
	case engine.Welcome:
		return &pb.Welcome{
			Epoch: pbEpoch(m.Epoch), Agent: m.Agent, Mode: m.Mode, Mapping: m.Mapping,
			HubNamespace: m.HubNamespace, ArgoNamespace: m.ArgoNamespace, ServerUrl: m.ServerURL,
			PrincipalUid: m.PrincipalUID, Version: m.Version, Protocol: uint32(m.Protocol),
			Projection: uint32(m.Projection), Capabilities: m.Capabilities, Store: pbStore(m.Store), Seen: each(m.Seen, pbSeen),
			ClockMillis: m.ClockMillis, InstanceLabel: m.InstanceLabel, HubGeneration: m.HubGeneration, Predecessor: pbStore(m.Predecessor), Known: pbStore(m.Known),
		}
	case engine.Roots:
		return &pb.Roots{Items: each(m.Items, pbRoot), Same: each(m.Same, pbRoot), Mark: m.Mark}
	case engine.Equal:
		return &pb.Equal{Sum: pbPair(m.Sum.Hi, m.Sum.Lo), Seen: each(m.Seen, pbSeen), Mark: m.Mark}
	case engine.Same:
		return &pb.Same{Items: each(m.Items, pbRoot)}
	case engine.Ask:
		return &pb.Ask{Scope: m.Scope, Round: m.Round, Prefixes: each(m.Prefixes, pbPrefix)}
	case engine.Answer:
		return &pb.Answer{Scope: m.Scope, Round: m.Round, View: m.View, Branches: each(m.Branches, pbBranch)}
	case engine.Want:
		return &pb.Want{Scope: m.Scope, Hashes: each(m.Hashes, func(h engine.KeyHash) uint64 { return uint64(h) })}
	case engine.Delta:
		return &pb.Delta{Scope: m.Scope, Revision: m.Revision, View: m.View, Items: each(m.Items, func(it engine.DeltaItem) *pb.Delta_Item {
			return &pb.Delta_Item{
				Seq: it.Seq, Key: pbKey(it.Key), Version: pbPair(it.Version.Hi, it.Version.Lo),
				Gone: it.Gone, Deleted: it.DeletedUID != "", DeletedUid: it.DeletedUID, Content: it.Content, Extra: it.Extra, Revision: it.Revision,
			}
		})}
	case engine.Ack:
		return &pb.Ack{Scope: m.Scope, Items: each(m.Items, func(it engine.AckItem) *pb.Ack_Item {
			return &pb.Ack_Item{
				Seq: it.Seq, Key: pbKey(it.Key), Version: pbPair(it.Version.Hi, it.Version.Lo),
				Code: string(it.Code), Message: it.Message, RetryAfterMillis: it.RetryAfterMillis, HandledMillis: it.HandledMillis,
			}
		})}
	case engine.Finished:
		return &pb.Finished{Scope: m.Scope, Key: pbKey(m.Key), Version: pbPair(m.Version.Hi, m.Version.Lo)}
	case engine.Held:
		return &pb.Held{
			Scope: m.Scope, Id: m.ID, Count: m.Count, Of: m.Of, Reason: m.Reason, Sample: each(m.Sample, pbKey), Cause: string(m.Cause),
		}
	case engine.WriteOutage:
		return &pb.WriteOutage{Reason: m.Reason}
	case engine.ApplicationEvents:
		return &pb.ApplicationEvents{Items: each(m.Items, func(e engine.ApplicationEvent) *pb.ApplicationEvent {
			return &pb.ApplicationEvent{
				Key: pbKey(e.Key), ApplicationUid: e.ApplicationUID, Uid: e.UID, Type: e.Type, Reason: e.Reason, Message: e.Message,
				Component: e.Component, Count: e.Count, FirstMillis: e.FirstMillis, LastMillis: e.LastMillis,
			}
		})}
	case engine.UpgradeState:
		return &pb.UpgradeState{Id: m.ID, Phase: m.Phase, Message: m.Message}
	case engine.Upgrade:
		return &pb.Upgrade{Id: m.ID, Version: m.Version, Repository: m.Repository, Digest: m.Digest, TimeoutMillis: m.TimeoutMillis}
	case engine.Confirm:
		return &pb.Confirm{Scope: m.Scope, Id: m.ID}
	case engine.Open:
		return &pb.Open{Token: m.Token, Target: m.Target}
	case engine.Bye:
		return &pb.Bye{Code: string(m.Code), Message: m.Message, RetryAfterMillis: m.RetryAfterMillis}
	}
	return nil
}

func each[A, B any](list []A, f func(A) B) []B {
	var out []B
	for _, a := range list {
		out = append(out, f(a))
	}
	return out
}

func pbEpoch(e engine.Epoch) *pb.Epoch {
	if e == (engine.Epoch{}) {
		return nil
	}
	return &pb.Epoch{Incarnation: e.Incarnation, Attempt: e.Attempt}
}

func pbRange(r engine.Range) *pb.Range {
	if r == (engine.Range{}) {
		return nil
	}
	return &pb.Range{Min: uint32(r.Min), Max: uint32(r.Max)}
}

func pbStore(s engine.Store) *pb.Store {
	if s == (engine.Store{}) {
		return nil
	}
	out := &pb.Store{Uid: s.UID, Revision: s.Revision}
	if s.Mark != (engine.HistoryMark{}) {
		out.Mark = &pb.HistoryMark{Record: s.Mark.Record, Number: s.Mark.Number}
	}
	return out
}

func pbFact(f engine.Fact) *pb.Fact { return &pb.Fact{Key: f.Key, Value: f.Value} }

func pbSeen(s engine.Seen) *pb.Seen { return &pb.Seen{Scope: s.Scope, Revision: s.Revision} }

func pbKey(k engine.Key) *pb.Key { return &pb.Key{Namespace: k.Namespace, Name: k.Name} }

func pbRoot(r engine.Root) *pb.Root {
	return &pb.Root{Scope: r.Scope, Count: r.Count, Sum: pbPair(r.Sum.Hi, r.Sum.Lo), Revision: r.Revision}
}

func pbPrefix(p engine.Prefix) []byte {
	return binary.BigEndian.AppendUint64(nil, p.Bits)[:p.Len]
}

func pbPair(hi, lo uint64) []byte {
	if hi|lo == 0 {
		return nil
	}
	return pbColumn(nil, hi, lo)
}

func pbColumn(b []byte, hi, lo uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, hi), lo)
}

func pbBranch(b engine.Branch) *pb.Branch {
	out := &pb.Branch{Prefix: pbPrefix(b.Prefix), Split: b.Split}
	for _, s := range b.Sums {
		out.Children = append(out.Children, s.Child)
		out.Sums = pbColumn(out.Sums, s.Sum.Hi, s.Sum.Lo)
	}
	for _, it := range b.Items {
		out.Hashes = append(out.Hashes, uint64(it.Hash))
		out.Versions = pbColumn(out.Versions, it.Version.Hi, it.Version.Lo)
	}
	return out
}
