package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

var (
	someMeta = Meta{Source: "agent/prod-1", Session: engine.Epoch{Incarnation: 17, Attempt: 3}, Seq: 42}
	someKey  = engine.Key{Namespace: "team-a", Name: "guestbook"}
)

// The message beyond the limit is made without Encode, which would never send it.
func TestLimits_AcceptTheLimitAndRejectOneMore(t *testing.T) {
	const dns = "abcdefghij.bcdefghijk." // 22 bytes
	name := func(n int) string { return strings.Repeat(dns, n/len(dns)+1)[:n-1] + "z" }
	word := func(n int) string { return strings.Repeat("x", n) }
	numbers := func(n int) []engine.KeyHash { return make([]engine.KeyHash, n) }
	key := func(n int) engine.Key { return engine.Key{Name: name(n)} }

	for _, limit := range []struct {
		field   string
		max     int
		message func(n int) engine.Message
	}{
		{"hello.cluster_uid", 128, func(n int) engine.Message { return engine.Hello{ClusterUID: word(n)} }},
		{"hello.mode", 64, func(n int) engine.Message { return engine.Hello{Mode: word(n)} }},
		{"hello.mapping", 64, func(n int) engine.Message { return engine.Hello{Mapping: word(n)} }},
		{"hello.namespace", 63, func(n int) engine.Message { return engine.Hello{Namespace: word(n)} }},
		{"hello.version", 128, func(n int) engine.Message { return engine.Hello{Version: word(n)} }},
		{"hello.protocol.max", maxVersion, func(n int) engine.Message { return engine.Hello{Protocol: engine.Range{Max: n}} }},
		{"hello.projection.min", maxVersion, func(n int) engine.Message { return engine.Hello{Projection: engine.Range{Min: n}} }},
		{"hello.capabilities", 64, func(n int) engine.Message { return engine.Hello{Capabilities: []string{word(n)}} }},
		{"hello.capabilities", MaxCapabilities, func(n int) engine.Message { return engine.Hello{Capabilities: repeat(n, "x")} }},
		{"hello.facts", engine.MaxFacts, func(n int) engine.Message { return engine.Hello{Facts: repeat(n, engine.Fact{Key: "k"})} }},
		{"hello.facts[0].key", 317, func(n int) engine.Message { return engine.Hello{Facts: []engine.Fact{{Key: word(n)}}} }},
		{"hello.facts[0].value", 63, func(n int) engine.Message { return engine.Hello{Facts: []engine.Fact{{Key: "k", Value: word(n)}}} }},
		{"hello.seen", MaxScopes, func(n int) engine.Message { return engine.Hello{Seen: repeat(n, engine.Seen{Scope: "s"})} }},
		{"hello.store.uid", 128, func(n int) engine.Message { return engine.Hello{Store: engine.Store{UID: word(n)}} }},
		{"hello.known.mark.record", 128, func(n int) engine.Message {
			return engine.Hello{Known: engine.Store{Mark: engine.HistoryMark{Record: word(n)}}}
		}},
		{"welcome.agent", 253, func(n int) engine.Message { return engine.Welcome{Agent: name(n)} }},
		{"welcome.mode", 64, func(n int) engine.Message { return engine.Welcome{Mode: word(n)} }},
		{"welcome.mapping", 64, func(n int) engine.Message { return engine.Welcome{Mapping: word(n)} }},
		{"welcome.hub_namespace", 63, func(n int) engine.Message { return engine.Welcome{HubNamespace: word(n)} }},
		{"welcome.argo_namespace", 63, func(n int) engine.Message { return engine.Welcome{ArgoNamespace: word(n)} }},
		{"welcome.server_url", 2048, func(n int) engine.Message { return engine.Welcome{ServerURL: word(n)} }},
		{"welcome.principal_uid", 128, func(n int) engine.Message { return engine.Welcome{PrincipalUID: word(n)} }},
		{"welcome.version", 128, func(n int) engine.Message { return engine.Welcome{Version: word(n)} }},
		{"welcome.protocol", maxVersion, func(n int) engine.Message { return engine.Welcome{Protocol: n} }},
		{"welcome.projection", maxVersion, func(n int) engine.Message { return engine.Welcome{Projection: n} }},
		{"welcome.capabilities", MaxCapabilities, func(n int) engine.Message { return engine.Welcome{Capabilities: repeat(n, "x")} }},
		{"welcome.instance_label", 317, func(n int) engine.Message { return engine.Welcome{InstanceLabel: word(n)} }},
		{"welcome.seen", MaxScopes, func(n int) engine.Message { return engine.Welcome{Seen: repeat(n, engine.Seen{Scope: "s"})} }},
		{"roots.items", MaxScopes, func(n int) engine.Message { return engine.Roots{Items: repeat(n, engine.Root{Scope: "s"})} }},
		{"roots.same", MaxScopes, func(n int) engine.Message { return engine.Roots{Same: repeat(n, engine.Root{Scope: "s"})} }},
		{"roots.items[0].scope", 64, func(n int) engine.Message { return engine.Roots{Items: []engine.Root{{Scope: word(n)}}} }},
		{"same.items", MaxScopes, func(n int) engine.Message { return engine.Same{Items: repeat(n, engine.Root{Scope: "s"})} }},
		{"equal.seen", MaxScopes, func(n int) engine.Message { return engine.Equal{Seen: repeat(n, engine.Seen{Scope: "s"})} }},
		{"ask.scope", 64, func(n int) engine.Message { return engine.Ask{Scope: word(n)} }},
		{"ask.prefixes", MaxPrefixes, func(n int) engine.Message { return engine.Ask{Scope: "s", Prefixes: make([]engine.Prefix, n)} }},
		{"answer.scope", 64, func(n int) engine.Message { return engine.Answer{Scope: word(n)} }},
		{"answer.branches", MaxPrefixes, func(n int) engine.Message { return engine.Answer{Scope: "s", Branches: make([]engine.Branch, n)} }},
		{"answer.branches[0].hashes", MaxListed, func(n int) engine.Message {
			return engine.Answer{Scope: "s", Branches: []engine.Branch{{Items: make([]engine.Listed, n)}}}
		}},
		{"want.scope", 64, func(n int) engine.Message { return engine.Want{Scope: word(n)} }},
		{"want.hashes", MaxHashes, func(n int) engine.Message { return engine.Want{Scope: "s", Hashes: numbers(n)} }},
		{"delta.scope", 64, func(n int) engine.Message { return engine.Delta{Scope: word(n)} }},
		{"delta.items", MaxItems, func(n int) engine.Message { return delta(repeat(n, engine.DeltaItem{Key: someKey})...) }},
		{"delta.items[0].content", MaxContent, func(n int) engine.Message { return delta(engine.DeltaItem{Key: someKey, Content: make([]byte, n)}) }},
		{"delta.items[0].extra", MaxExtra, func(n int) engine.Message { return delta(engine.DeltaItem{Key: someKey, Extra: make([]byte, n)}) }},
		{"delta.items[0].key.name", 253, func(n int) engine.Message { return delta(engine.DeltaItem{Key: key(n)}) }},
		{"delta.items[0].key.namespace", 63, func(n int) engine.Message {
			return delta(engine.DeltaItem{Key: engine.Key{Namespace: word(n), Name: "x"}})
		}},
		{"ack.scope", 64, func(n int) engine.Message { return engine.Ack{Scope: word(n)} }},
		{"ack.items", MaxItems, func(n int) engine.Message {
			return engine.Ack{Scope: "s", Items: repeat(n, engine.AckItem{Key: someKey})}
		}},
		{"ack.items[0].code", 64, func(n int) engine.Message {
			return engine.Ack{Scope: "s", Items: []engine.AckItem{{Key: someKey, Code: engine.Code(word(n))}}}
		}},
		{"finished.key.name", 253, func(n int) engine.Message { return engine.Finished{Scope: "s", Key: key(n)} }},
		{"held.scope", 64, func(n int) engine.Message { return engine.Held{Scope: word(n)} }},
		{"held.cause", 64, func(n int) engine.Message { return engine.Held{Cause: engine.Cause(word(n))} }},
		{"held.id", 64, func(n int) engine.Message { return engine.Held{ID: word(n)} }},
		{"held.sample", MaxSample, func(n int) engine.Message { return engine.Held{Sample: repeat(n, someKey)} }},
		{"held.sample[0].name", 253, func(n int) engine.Message { return engine.Held{Sample: []engine.Key{key(n)}} }},
		{"confirm.scope", 64, func(n int) engine.Message { return engine.Confirm{Scope: word(n)} }},
		{"confirm.id", 64, func(n int) engine.Message { return engine.Confirm{ID: word(n)} }},
		{"open.token", 256, func(n int) engine.Message { return engine.Open{Token: word(n)} }},
		{"open.target", 256, func(n int) engine.Message { return engine.Open{Target: word(n)} }},
		{"bye.code", 64, func(n int) engine.Message { return engine.Bye{Code: engine.Code(word(n))} }},
	} {
		t.Run(limit.field, func(t *testing.T) {
			at, over := limit.message(limit.max), limit.message(limit.max+1)
			event, err := Encode(at, someMeta)
			if err != nil {
				t.Errorf("encode at the limit: %v", err)
			} else if _, _, err := Decode(event); err != nil {
				t.Errorf("decode at the limit: %v", err)
			}
			_, err = Encode(over, someMeta)
			wantError(t, "encode one more", err, limit.field)
			_, _, err = Decode(foreign(t, over))
			wantError(t, "decode one more", err, limit.field)
			if code := codeOf(err); code != engine.BadMessage {
				t.Errorf("decode one more: code %q", code)
			}
		})
	}
}

// A text for users never makes Encode fail. Decode rejects what is too long.
func TestEncode_TruncatesTextsAndPauses(t *testing.T) {
	long := strings.Repeat("ä", MaxText)
	for _, m := range []engine.Message{
		engine.Bye{Message: long},
		engine.Bye{RetryAfterMillis: MaxRetryMillis + 1},
		engine.Held{Reason: long},
		engine.WriteOutage{Reason: long},
		engine.UpgradeState{Message: long},
		engine.Upgrade{TimeoutMillis: MaxRetryMillis + 1},
		engine.Ack{Scope: "s", Items: []engine.AckItem{{Key: someKey, Message: long}}},
		engine.Ack{Scope: "s", Items: []engine.AckItem{{Key: someKey, RetryAfterMillis: MaxRetryMillis + 1}}},
		engine.Ack{Scope: "s", Items: []engine.AckItem{{Key: someKey, HandledMillis: MaxRetryMillis + 1}}},
		engine.Bye{Message: "\x1b[2J"},
	} {
		event, err := Encode(m, someMeta)
		if err != nil {
			t.Errorf("encode: %v", err)
		} else if _, _, err := Decode(event); err != nil {
			t.Errorf("decode what was cut: %v", err)
		}
		if _, _, err := Decode(foreign(t, m)); codeOf(err) != engine.BadMessage {
			t.Errorf("decode %#v: %v", m, err)
		}
	}
	if _, err := Encode(engine.Bye{RetryAfterMillis: -1}, someMeta); err == nil {
		t.Error("a negative pause was sent")
	}
}

func TestLimits_BoundTheEvent(t *testing.T) {
	items := repeat(3, engine.DeltaItem{Key: someKey, Content: make([]byte, MaxContent)})
	_, err := Encode(delta(items...), someMeta)
	wantError(t, "encode", err, "event")
	if codeOf(err) != engine.TooLarge {
		t.Errorf("code %q", codeOf(err))
	}
	_, _, err = Decode(foreign(t, delta(items...)))
	wantError(t, "decode", err, "event")
	if _, _, err := Decode(make([]byte, MaxEvent+1)); err == nil || !strings.Contains(err.Error(), "event") {
		t.Errorf("more than %d bytes: %v", MaxEvent, err)
	}
}

// Messages whose parts are within the limits fit into an event, except content.
func TestLimits_FullMessagesFitIntoAnEvent(t *testing.T) {
	text, name, label := strings.Repeat("x", MaxText), strings.Repeat("x", 253), strings.Repeat("x", 63)
	sums := make([]engine.ChildSum, 256)
	for i := range sums {
		sums[i] = engine.ChildSum{Child: uint8(i), Sum: engine.Sum{Hi: 1}}
	}
	long := engine.Prefix{Len: 8}
	for _, m := range []engine.Message{
		engine.Answer{Scope: "s", Branches: repeat(MaxPrefixes, engine.Branch{Prefix: engine.Prefix{Len: 7}, Split: true, Sums: sums})},
		engine.Answer{Scope: "s", Branches: repeat(MaxPrefixes, engine.Branch{Prefix: long, Items: make([]engine.Listed, MaxListed)})},
		engine.Ack{Scope: "s", Items: repeat(MaxItems, engine.AckItem{
			Seq: 1 << 63, Key: engine.Key{Namespace: label, Name: name}, Version: engine.Version{Hi: 1},
			Code: engine.Code(strings.Repeat("x", 64)), Message: text, RetryAfterMillis: MaxRetryMillis,
		})},
	} {
		event, err := Encode(m, someMeta)
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		t.Logf("%T: at most %d bytes", m, len(event))
	}
}

func repeat[T any](n int, v T) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}

func delta(items ...engine.DeltaItem) engine.Delta { return engine.Delta{Scope: "s", Items: items} }

func codeOf(err error) engine.Code {
	if e := new(Error); errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func wantError(t *testing.T, what string, err error, field string) {
	t.Helper()
	var e *Error
	switch {
	case !errors.As(err, &e):
		t.Errorf("%s: %v instead of an *Error", what, err)
	case e.Field != field:
		t.Errorf("%s: error is about %q instead of %q: %v", what, e.Field, field, err)
	case e.Reason == "":
		t.Errorf("%s: no reason", what)
	}
}
