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
	f.Fuzz(func(t *testing.T, input []byte) {
		agent, far := net.Pipe()
		hub, redis := net.Pipe()
		served, received := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(served)
			(&Tenants{}).serve(t.Context(), "w1", far, hub)
		}()
		go func() { _, _ = io.Copy(io.Discard, agent) }()
		go func() { // replies to every request with an error, which also ends a SUBSCRIBE
			defer close(received)
			for requests := newCommandReader(redis, limits{bulk: 2 << 20, elements: 1000, total: 2 << 20}); ; {
				args, err := requests.next()
				switch {
				case errors.Is(err, io.EOF):
					return
				case err != nil:
					t.Errorf("Redis receives %q: %v", args, err)
					return
				}
				checkTenantRequest(t, prefix, args)
				_, _ = redis.Write(errorReply("ERR"))
			}
		}()
		_, _ = agent.Write(input) // the proxy can refuse the rest
		_, _ = agent.Write([]byte("*1\r\n$4\r\nQUIT\r\n"))
		_ = agent.Close()
		<-served
		<-received
		_ = redis.Close()
	})
}

func checkTenantRequest(t *testing.T, prefix string, args [][]byte) {
	t.Helper()
	name := strings.ToUpper(string(args[0]))
	names := args[1:]
	switch {
	case name == "HELLO" || name == "PING":
		names = nil
	case slices.Contains([]string{"SET", "PUBLISH", "GET", "TTL", "PTTL", "STRLEN"}, name):
		names = names[:1]
	case slices.Contains([]string{"MGET", "EXISTS", "DEL", "UNLINK", "RENAME", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"}, name):
	default:
		t.Errorf("Redis gets %q", args)
	}
	for _, one := range names {
		if !bytes.HasPrefix(one, []byte(prefix)) {
			t.Errorf("Redis gets %q", args)
		}
	}
}
