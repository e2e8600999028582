package wire

import (
	"math"

	"pgregory.net/rapid"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Generators of valid messages, all limits included.

var (
	anyUint64  = rapid.Uint64()
	anyLabel   = rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?`)
	anyToken   = rapid.StringMatching(`[!-~]{1,64}`)
	maybeToken = rapid.OneOf(rapid.Just(""), anyToken)
	maybeLabel = rapid.OneOf(rapid.Just(""), anyLabel)
	anyName    = rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?){0,3}`)
	anyText    = rapid.StringOf(rapid.Rune().Filter(func(c rune) bool { return !isControl(c) })).Filter(func(s string) bool { return isText([]byte(s)) && len(s) <= MaxText })
	anyNumber  = rapid.IntRange(0, maxVersion)
	anyPause   = rapid.Int64Range(0, MaxRetryMillis)
)

// some returns a list of at most that many values. An empty list is nil.
func some[T any](t *rapid.T, label string, most int, g *rapid.Generator[T]) []T {
	list := rapid.SliceOfN(g, 0, most).Draw(t, label)
	if len(list) == 0 {
		return nil
	}
	return list
}

func someBytes(t *rapid.T, label string) []byte {
	return some(t, label, 100, rapid.Byte())
}

var anyMeta = rapid.Custom(func(t *rapid.T) Meta {
	return Meta{
		Source:  anyToken.Draw(t, "source"),
		Session: anyEpoch.Draw(t, "session"),
		Seq:     anyUint64.Draw(t, "seq"),
	}
})

var anyEpoch = rapid.Custom(func(t *rapid.T) engine.Epoch {
	return engine.Epoch{Incarnation: anyUint64.Draw(t, "incarnation"), Attempt: anyUint64.Draw(t, "attempt")}
})

var anyStore = rapid.Custom(func(t *rapid.T) engine.Store {
	return engine.Store{UID: maybeToken.Draw(t, "uid"), Revision: anyUint64.Draw(t, "revision"),
		Mark: engine.HistoryMark{Record: maybeToken.Draw(t, "record"), Number: anyUint64.Draw(t, "number")}}
})

var anyRange = rapid.Custom(func(t *rapid.T) engine.Range {
	return engine.Range{Min: anyNumber.Draw(t, "min"), Max: anyNumber.Draw(t, "max")}
})

var anyKey = rapid.Custom(func(t *rapid.T) engine.Key {
	return engine.Key{Namespace: maybeLabel.Draw(t, "namespace"), Name: anyName.Draw(t, "name")}
})

var anyVersion = rapid.Custom(func(t *rapid.T) engine.Version {
	return engine.Version{Hi: anyUint64.Draw(t, "hi"), Lo: anyUint64.Draw(t, "lo")}
})

var anyFact = rapid.Custom(func(t *rapid.T) engine.Fact {
	return engine.Fact{Key: anyToken.Draw(t, "key"), Value: rapid.StringMatching(`[!-~]{0,63}`).Draw(t, "value")}
})

var anySeen = rapid.Custom(func(t *rapid.T) engine.Seen {
	return engine.Seen{Scope: anyToken.Draw(t, "scope"), Revision: anyUint64.Draw(t, "revision")}
})

var anyRoot = rapid.Custom(func(t *rapid.T) engine.Root {
	return engine.Root{
		Scope:    anyToken.Draw(t, "scope"),
		Count:    anyUint64.Draw(t, "count"),
		Sum:      engine.Sum(anyVersion.Draw(t, "sum")),
		Revision: anyUint64.Draw(t, "revision"),
	}
})

var anyPrefix = rapid.Custom(func(t *rapid.T) engine.Prefix {
	var p engine.Prefix
	for range rapid.IntRange(0, 8).Draw(t, "length") {
		p = p.Child(rapid.Byte().Draw(t, "byte"))
	}
	return p
})

var anyBranch = rapid.Custom(func(t *rapid.T) engine.Branch {
	b := engine.Branch{Prefix: anyPrefix.Draw(t, "prefix")}
	if b.Prefix.Len < 8 && rapid.Bool().Draw(t, "split") {
		b.Split = true
		for child := range 256 {
			if rapid.IntRange(0, 9).Draw(t, "used") == 0 {
				b.Sums = append(b.Sums, engine.ChildSum{Child: uint8(child), Sum: engine.Sum(anyVersion.Draw(t, "sum"))})
			}
		}
		return b
	}
	b.Items = some(t, "items", 20, rapid.Custom(func(t *rapid.T) engine.Listed {
		return engine.Listed{Hash: engine.KeyHash(anyUint64.Draw(t, "hash")), Version: anyVersion.Draw(t, "version")}
	}))
	return b
})

var anyDeltaItem = rapid.Custom(func(t *rapid.T) engine.DeltaItem {
	it := engine.DeltaItem{
		Seq:     anyUint64.Draw(t, "seq"),
		Key:     anyKey.Draw(t, "key"),
		Version: anyVersion.Draw(t, "version"),
		Gone:    rapid.Bool().Draw(t, "gone"),
		Extra:   someBytes(t, "extra"),

		Revision: anyUint64.Draw(t, "revision"),
	}
	if it.Gone {
		it.DeletedUID = rapid.SampledFrom([]string{"", "8c1f7d0e-1111-4222-8333-444455556666"}).Draw(t, "deletedUID")
	} else {
		it.Content = someBytes(t, "content")
	}
	return it
})

var anyAckItem = rapid.Custom(func(t *rapid.T) engine.AckItem {
	return engine.AckItem{
		Seq:              anyUint64.Draw(t, "seq"),
		Key:              anyKey.Draw(t, "key"),
		Version:          anyVersion.Draw(t, "version"),
		Code:             engine.Code(maybeToken.Draw(t, "code")),
		Message:          anyText.Draw(t, "message"),
		RetryAfterMillis: anyPause.Draw(t, "retry"),
		HandledMillis:    anyPause.Draw(t, "handled"),
	}
})

// messages has a generator for each message, by the end of its event type.
var messages = map[string]*rapid.Generator[engine.Message]{
	"hello": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Hello{
			Epoch:        anyEpoch.Draw(t, "epoch"),
			ClusterUID:   maybeToken.Draw(t, "cluster"),
			Mode:         maybeToken.Draw(t, "mode"),
			Mapping:      maybeToken.Draw(t, "mapping"),
			Namespace:    maybeLabel.Draw(t, "namespace"),
			Version:      maybeToken.Draw(t, "version"),
			Protocol:     anyRange.Draw(t, "protocol"),
			Projection:   anyRange.Draw(t, "projection"),
			Capabilities: some(t, "capabilities", MaxCapabilities, anyToken),
			Store:        anyStore.Draw(t, "store"),
			Known:        anyStore.Draw(t, "known"),
			Seen:         some(t, "seen", MaxScopes, anySeen),
			Facts:        some(t, "facts", engine.MaxFacts, anyFact),
			ClockMillis:  rapid.Int64Range(math.MinInt64, math.MaxInt64).Draw(t, "clock"),
		}
	}),
	"welcome": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Welcome{
			Epoch:         anyEpoch.Draw(t, "epoch"),
			Agent:         anyName.Draw(t, "agent"),
			Mode:          maybeToken.Draw(t, "mode"),
			Mapping:       maybeToken.Draw(t, "mapping"),
			HubNamespace:  maybeLabel.Draw(t, "hub"),
			ArgoNamespace: maybeLabel.Draw(t, "argo"),
			ServerURL:     maybeToken.Draw(t, "url"),
			PrincipalUID:  maybeToken.Draw(t, "principal"),
			Version:       maybeToken.Draw(t, "version"),
			Protocol:      anyNumber.Draw(t, "protocol"),
			Projection:    anyNumber.Draw(t, "projection"),
			Capabilities:  some(t, "capabilities", MaxCapabilities, anyToken),
			Store:         anyStore.Draw(t, "store"),
			Seen:          some(t, "seen", MaxScopes, anySeen),
			ClockMillis:   rapid.Int64().Draw(t, "clock"),
			InstanceLabel: maybeToken.Draw(t, "instance"),
			HubGeneration: rapid.Uint64Range(0, maxGeneration).Draw(t, "generation"),
			Predecessor:   anyStore.Draw(t, "predecessor"),
			Known:         anyStore.Draw(t, "known"),
		}
	}),
	"roots": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Roots{Items: some(t, "items", MaxScopes, anyRoot), Same: some(t, "same", MaxScopes, anyRoot), Mark: anyUint64.Draw(t, "mark")}
	}),
	"same": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Same{Items: some(t, "items", MaxScopes, anyRoot)}
	}),
	"equal": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Equal{Sum: anyRoot.Draw(t, "root").Sum, Seen: some(t, "seen", MaxScopes, anySeen), Mark: anyUint64.Draw(t, "mark")}
	}),
	"ask": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Ask{
			Scope:    anyToken.Draw(t, "scope"),
			Round:    anyUint64.Draw(t, "round"),
			Prefixes: some(t, "prefixes", MaxPrefixes, anyPrefix),
		}
	}),
	"answer": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Answer{
			View:     anyUint64.Draw(t, "view"),
			Scope:    anyToken.Draw(t, "scope"),
			Round:    anyUint64.Draw(t, "round"),
			Branches: some(t, "branches", 8, anyBranch),
		}
	}),
	"want": rapid.Custom(func(t *rapid.T) engine.Message {
		hash := rapid.Custom(func(t *rapid.T) engine.KeyHash { return engine.KeyHash(anyUint64.Draw(t, "hash")) })
		return engine.Want{Scope: anyToken.Draw(t, "scope"), Hashes: some(t, "hashes", 100, hash)}
	}),
	"delta": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Delta{Scope: anyToken.Draw(t, "scope"), Items: some(t, "items", 20, anyDeltaItem), Revision: anyUint64.Draw(t, "revision"), View: anyUint64.Draw(t, "view")}
	}),
	"ack": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Ack{Scope: anyToken.Draw(t, "scope"), Items: some(t, "items", 20, anyAckItem)}
	}),
	"finished": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Finished{
			Scope:   anyToken.Draw(t, "scope"),
			Key:     anyKey.Draw(t, "key"),
			Version: anyVersion.Draw(t, "version"),
		}
	}),
	"held": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Held{
			Scope:  maybeToken.Draw(t, "scope"),
			ID:     maybeToken.Draw(t, "id"),
			Count:  anyUint64.Draw(t, "count"),
			Of:     anyUint64.Draw(t, "of"),
			Reason: anyText.Draw(t, "reason"),
			Sample: some(t, "sample", MaxSample, anyKey),
			Cause:  engine.Cause(maybeToken.Draw(t, "cause")),
		}
	}),
	"writeoutage": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.WriteOutage{Reason: anyText.Draw(t, "reason")}
	}),
	"applicationevents": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.ApplicationEvents{Items: some(t, "items", engine.MaxApplicationEvents, rapid.Custom(func(t *rapid.T) engine.ApplicationEvent {
			return engine.ApplicationEvent{
				Key: anyKey.Draw(t, "key"), ApplicationUID: maybeToken.Draw(t, "application"), UID: maybeToken.Draw(t, "uid"),
				Type: maybeToken.Draw(t, "type"), Reason: maybeToken.Draw(t, "reason"), Message: anyText.Draw(t, "message"),
				Component: maybeToken.Draw(t, "component"), Count: rapid.Uint32Max(math.MaxInt32).Draw(t, "count"),
				FirstMillis: rapid.Int64().Draw(t, "first"), LastMillis: rapid.Int64().Draw(t, "last"),
			}
		}))}
	}),
	"upgradestate": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.UpgradeState{ID: maybeToken.Draw(t, "id"), Phase: maybeToken.Draw(t, "phase"), Message: anyText.Draw(t, "message")}
	}),
	"upgrade": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Upgrade{ID: maybeToken.Draw(t, "id"), Version: maybeToken.Draw(t, "version"), Repository: maybeToken.Draw(t, "repository"),
			Digest: maybeToken.Draw(t, "digest"), TimeoutMillis: anyPause.Draw(t, "timeout")}
	}),
	"confirm": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Confirm{Scope: maybeToken.Draw(t, "scope"), ID: maybeToken.Draw(t, "id")}
	}),
	"open": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Open{Token: maybeToken.Draw(t, "token"), Target: maybeToken.Draw(t, "target")}
	}),
	"bye": rapid.Custom(func(t *rapid.T) engine.Message {
		return engine.Bye{
			Code:             engine.Code(maybeToken.Draw(t, "code")),
			Message:          anyText.Draw(t, "message"),
			RetryAfterMillis: anyPause.Draw(t, "retry"),
		}
	}),
}
