package redis

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

// FuzzTenant_NamesOnlyItsOwnKeys checks, whatever an agent sends, that Redis gets well-formed requests of the few kinds
// that are let through, and that every name in them begins with the agent's prefix.
func FuzzTenant_NamesOnlyItsOwnKeys(f *testing.F) {
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
		var sent bytes.Buffer
		s := newTenantConn(t.Context(), &Tenants{}, limit, "w1", far, &sent)
		requests := newCommandReader(bytes.NewReader(input), limits{bulk: 1 << 20, elements: 1000, total: 1 << 20})
		for c, err := requests.next(); err == nil; c, err = requests.next() {
			s.take(c.args)
		}
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		received := newCommandReader(&sent, limits{bulk: 2 << 20, elements: 1000, total: 2 << 20})
		for {
			c, err := received.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || c.inline {
				t.Fatalf("Redis receives %q: %v", c.raw, err)
			}
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
