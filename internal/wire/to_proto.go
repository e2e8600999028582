package wire

import (
	"encoding/binary"

	"google.golang.org/protobuf/proto"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// toProto converts a message to its generated type. Encode then checks the limits.
func toProto(m engine.Message) (proto.Message, *Error) {
	switch m := m.(type) {
	case engine.Hello:
		return &pb.Hello{
			Epoch: toEpoch(m.Epoch), ClusterUid: m.ClusterUID, Mode: m.Mode, Mapping: m.Mapping, Namespace: m.Namespace, Version: m.Version,
			Protocol: toRange(m.Protocol), Projection: toRange(m.Projection), Capabilities: m.Capabilities, Store: toStore(m.Store),
			Known: toStore(m.Known), Seen: convert(m.Seen, toSeen), ClockMillis: m.ClockMillis,
			Facts: convert(m.Facts, func(f engine.Fact) *pb.Fact { return &pb.Fact{Key: f.Key, Value: f.Value} }),
		}, nil
	case engine.Welcome:
		return &pb.Welcome{
			Epoch: toEpoch(m.Epoch), Agent: m.Agent, Mode: m.Mode, Mapping: m.Mapping, HubNamespace: m.HubNamespace,
			ArgoNamespace: m.ArgoNamespace, ServerUrl: m.ServerURL, PrincipalUid: m.PrincipalUID, Version: m.Version,
			Protocol: toVersion(m.Protocol), Projection: toVersion(m.Projection), Capabilities: m.Capabilities, Store: toStore(m.Store),
			Seen: convert(m.Seen, toSeen), ClockMillis: m.ClockMillis, InstanceLabel: m.InstanceLabel, HubGeneration: m.HubGeneration, Predecessor: toStore(m.Predecessor), Known: toStore(m.Known),
		}, nil
	case engine.Roots:
		return &pb.Roots{Items: convert(m.Items, toRoot), Same: convert(m.Same, toRoot), Mark: m.Mark}, nil
	case engine.Equal:
		return &pb.Equal{Sum: toHash(m.Sum.Hi, m.Sum.Lo), Seen: convert(m.Seen, toSeen), Mark: m.Mark}, nil
	case engine.Same:
		return &pb.Same{Items: convert(m.Items, toRoot)}, nil
	case engine.Ask:
		for i, p := range m.Prefixes {
			if !p.Valid() {
				return nil, invalidPrefix().in(at("prefixes", i)).in("ask")
			}
		}
		return &pb.Ask{Scope: m.Scope, Round: m.Round, Prefixes: convert(m.Prefixes, toPrefix)}, nil
	case engine.Answer:
		return toAnswer(m)
	case engine.Want:
		return &pb.Want{Scope: m.Scope, Hashes: convert(m.Hashes, func(h engine.KeyHash) uint64 { return uint64(h) })}, nil
	case engine.Delta:
		return toDelta(m)
	case engine.Ack:
		return &pb.Ack{Scope: m.Scope, Items: convert(m.Items, toAckItem)}, nil
	case engine.Finished:
		return &pb.Finished{Scope: m.Scope, Key: toKey(m.Key), Version: toHash(m.Version.Hi, m.Version.Lo)}, nil
	case engine.Held:
		return &pb.Held{
			Scope: m.Scope, Id: m.ID, Count: m.Count, Of: m.Of, Reason: sanitizeText(m.Reason), Sample: convert(m.Sample, toKey), Cause: string(m.Cause),
		}, nil
	case engine.WriteOutage:
		return &pb.WriteOutage{Reason: sanitizeText(m.Reason)}, nil
	case engine.ApplicationEvents:
		return &pb.ApplicationEvents{Items: convert(m.Items, toApplicationEvent)}, nil
	case engine.UpgradeState:
		return &pb.UpgradeState{Id: m.ID, Phase: m.Phase, Message: sanitizeText(m.Message)}, nil
	case engine.Upgrade:
		return &pb.Upgrade{Id: m.ID, Version: m.Version, Repository: m.Repository, Digest: m.Digest, TimeoutMillis: min(m.TimeoutMillis, MaxRetryMillis)}, nil
	case engine.Confirm:
		return &pb.Confirm{Scope: m.Scope, Id: m.ID}, nil
	case engine.Open:
		return &pb.Open{Token: m.Token, Target: m.Target}, nil
	case engine.Bye:
		return &pb.Bye{Code: string(m.Code), Message: sanitizeText(m.Message), RetryAfterMillis: min(m.RetryAfterMillis, MaxRetryMillis)}, nil
	}
	return nil, badField("event", "cannot carry a %T", m)
}

func toAnswer(m engine.Answer) (proto.Message, *Error) {
	for i := range m.Branches {
		if !m.Branches[i].Prefix.Valid() {
			return nil, invalidPrefix().in("prefix").in(at("branches", i)).in("answer")
		}
	}
	out := &pb.Answer{Scope: m.Scope, Round: m.Round, View: m.View, Branches: convert(m.Branches, toBranch)}
	if err := checkConsistent(out); err != nil {
		return nil, err.in("answer")
	}
	return out, nil
}

func toDelta(m engine.Delta) (proto.Message, *Error) {
	for i := range m.Items {
		it := &m.Items[i]
		switch {
		case len(it.Content) > MaxContent:
			return nil, tooLarge("content", len(it.Content), MaxContent).in(at("items", i)).in("delta")
		case len(it.Extra) > MaxExtra:
			return nil, tooLarge("extra", len(it.Extra), MaxExtra).in(at("items", i)).in("delta")
		}
	}
	out := &pb.Delta{Scope: m.Scope, Revision: m.Revision, View: m.View, Items: convert(m.Items, toDeltaItem)}
	if err := checkConsistent(out); err != nil {
		return nil, err.in("delta")
	}
	return out, nil
}

// convert converts the entries of a list. An empty list becomes nil.
func convert[A, B any](list []A, f func(A) B) []B {
	if len(list) == 0 {
		return nil
	}
	out := make([]B, len(list))
	for i := range list {
		out[i] = f(list[i])
	}
	return out
}

func toEpoch(e engine.Epoch) *pb.Epoch {
	if e == (engine.Epoch{}) {
		return nil
	}
	return &pb.Epoch{Incarnation: e.Incarnation, Attempt: e.Attempt}
}

func toRange(r engine.Range) *pb.Range {
	if r == (engine.Range{}) {
		return nil
	}
	return &pb.Range{Min: toVersion(r.Min), Max: toVersion(r.Max)}
}

// toVersion returns a number beyond the limit for a version that is invalid.
func toVersion(v int) uint32 {
	if v < 0 || v > maxVersion {
		return maxVersion + 1
	}
	return uint32(v)
}

func toStore(s engine.Store) *pb.Store {
	if s == (engine.Store{}) {
		return nil
	}
	out := &pb.Store{Uid: s.UID, Revision: s.Revision}
	if s.Mark != (engine.HistoryMark{}) {
		out.Mark = &pb.HistoryMark{Record: s.Mark.Record, Number: s.Mark.Number}
	}
	return out
}

func toSeen(s engine.Seen) *pb.Seen { return &pb.Seen{Scope: s.Scope, Revision: s.Revision} }

func toKey(k engine.Key) *pb.Key { return &pb.Key{Namespace: k.Namespace, Name: k.Name} }

func toRoot(r engine.Root) *pb.Root {
	return &pb.Root{Scope: r.Scope, Count: r.Count, Sum: toHash(r.Sum.Hi, r.Sum.Lo), Revision: r.Revision}
}

func toDeltaItem(it engine.DeltaItem) *pb.Delta_Item {
	return &pb.Delta_Item{
		Seq: it.Seq, Key: toKey(it.Key), Version: toHash(it.Version.Hi, it.Version.Lo), Gone: it.Gone, Deleted: it.DeletedUID != "", DeletedUid: it.DeletedUID,
		Content: it.Content, Extra: it.Extra, Revision: it.Revision,
	}
}

func toAckItem(it engine.AckItem) *pb.Ack_Item {
	return &pb.Ack_Item{
		Seq: it.Seq, Key: toKey(it.Key), Version: toHash(it.Version.Hi, it.Version.Lo), Code: string(it.Code),
		Message: sanitizeText(it.Message), RetryAfterMillis: min(it.RetryAfterMillis, MaxRetryMillis),
		HandledMillis: min(it.HandledMillis, MaxRetryMillis),
	}
}

func toApplicationEvent(e engine.ApplicationEvent) *pb.ApplicationEvent {
	return &pb.ApplicationEvent{
		Key: toKey(e.Key), ApplicationUid: e.ApplicationUID, Uid: e.UID, Type: e.Type, Reason: e.Reason, Message: sanitizeText(e.Message),
		Component: e.Component, Count: e.Count, FirstMillis: e.FirstMillis, LastMillis: e.LastMillis,
	}
}

func invalidPrefix() *Error { return badField("", "has bits beyond its length") }

func toPrefix(p engine.Prefix) []byte { return binary.BigEndian.AppendUint64(nil, p.Bits)[:p.Len] }

// toHash encodes a 128-bit number. Zero is absent.
func toHash(hi, lo uint64) []byte {
	if hi|lo == 0 {
		return nil
	}
	return appendHash(make([]byte, 0, 16), hi, lo)
}

func appendHash(b []byte, hi, lo uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, hi), lo)
}

// toBranch writes the entries of a branch as columns.
func toBranch(b engine.Branch) *pb.Branch {
	out := &pb.Branch{Prefix: toPrefix(b.Prefix), Split: b.Split, Hashes: convert(b.Items, func(it engine.Listed) uint64 { return uint64(it.Hash) })}
	if len(b.Sums) > 0 {
		out.Children, out.Sums = make([]byte, 0, len(b.Sums)), make([]byte, 0, 16*len(b.Sums))
	}
	for _, s := range b.Sums {
		out.Children = append(out.Children, s.Child)
		out.Sums = appendHash(out.Sums, s.Sum.Hi, s.Sum.Lo)
	}
	if len(b.Items) > 0 {
		out.Versions = make([]byte, 0, 16*len(b.Items))
	}
	for i := range b.Items {
		out.Versions = appendHash(out.Versions, b.Items[i].Version.Hi, b.Items[i].Version.Lo)
	}
	return out
}
