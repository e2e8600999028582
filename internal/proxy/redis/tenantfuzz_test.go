package redis

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzTenantNamesNothingOfOthers checks, whatever an agent sends, that Redis gets well-formed requests of the few kinds
// that are let through, and that every name in them begins with the agent's prefix.
func FuzzTenantNamesNothingOfOthers(f *testing.F) {
	for _, request := range [][]string{
		{"SET", "k", "v", "EX", "10"}, {"GET", "argocd-agent|w2|k"}, {"MGET", "a", "b"}, {"RENAME", "a", "b"}, {"SUBSCRIBE", "a", "*"},
		{"HELLO", "3", "AUTH", "a", "b"}, {"PSUBSCRIBE", "\\*"}, {"eval", "x", "0"}, {"GET", "a\r\nDEL b"}, {"CLIENT", "SETINFO", "x", "y"},
	} {
		f.Add(appendCommand(nil, request...))
	}
	f.Add([]byte("GET x\r\nDEL y\r\n"))
	prefix := TenantPrefix("w1", "")
	limit := TenantLimits{}.withDefaults()
	f.Fuzz(func(t *testing.T, input []byte) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		go func() { _, _ = new(bytes.Buffer).ReadFrom(near) }()
		all := &Tenants{}
		mine := all.share("w1", limit)
		s := &tenant{all: all, limits: limit, share: mine, agent: "w1", prefix: prefix, conn: far, out: newReplies(far, time.Second, mine.reads)}
		bound := limits{bulk: 1 << 20, elements: 1000, total: 1 << 20}
		var sent []byte
		for len(input) > 0 {
			c, _, err := readCommand(input, nil, bound)
			if err != nil || c.length == 0 {
				break
			}
			input = input[c.length:]
			if len(c.args) > 0 {
				sent, _ = s.take(sent, c.args)
			}
		}
		for len(sent) > 0 {
			c, _, err := readCommand(sent, nil, limits{bulk: 2 << 20, elements: 1000, total: 2 << 20})
			if err != nil || c.length == 0 {
				t.Fatalf("Redis gets %q: %v", sent, err)
			}
			sent = sent[c.length:]
			checkTenantRequest(t, prefix, c.args)
		}
	})
}

func checkTenantRequest(t *testing.T, prefix string, args [][]byte) {
	t.Helper()
	name := strings.ToUpper(string(args[0]))
	names := args[1:]
	switch {
	case name == "HELLO" || name == "PING":
		names = nil
	case slices.Contains([]string{"SET", "SETEX", "PSETEX", "PUBLISH", "GET", "TTL", "PTTL", "STRLEN"}, name):
		names = names[:1]
	case slices.Contains([]string{"MGET", "EXISTS", "DEL", "UNLINK", "RENAME", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"}, name):
	default:
		t.Fatalf("Redis gets %q", args)
	}
	for _, one := range names {
		if !bytes.HasPrefix(one, []byte(prefix)) {
			t.Fatalf("Redis gets %q", args)
		}
	}
}
