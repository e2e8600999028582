package redis

import (
	"context"
	"strings"
	"testing"
)

// BenchmarkTenant compares GET of 10 kB as a tenant of the hub's Redis with GET at Redis, without the network between the
// clusters.
func BenchmarkTenant(b *testing.B) {
	hub := startRedis(b, hubPassword)
	endpoint := hub.endpoint()
	value := strings.Repeat("x", 10_000)
	hub.do("SET", "k", value)
	hub.do("SET", TenantPrefix("w1", "")+"k", value)
	b.Run("direct", func(b *testing.B) {
		conn, err := endpoint.connect(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		getAll(b, &testClient{t: b, conn: conn, in: newReplyReader(conn, testLimits)})
	})
	b.Run("tenant", func(b *testing.B) {
		near, far := tunnel(b)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			(&Tenants{Redis: endpoint}).Serve(context.Background(), "w1", far)
		}()
		getAll(b, &testClient{t: b, conn: near, in: newReplyReader(near, testLimits)})
		_ = near.Close()
		<-ended
	})
}

func getAll(b *testing.B, c *testClient) {
	b.Helper()
	request := appendCommand(nil, "GET", "k")
	for b.Loop() {
		if _, err := c.conn.Write(request); err != nil {
			b.Fatal(err)
		}
		if reply, err := c.in.next(); err != nil || len(reply) < 10_000 {
			b.Fatalf("%q, %v", abbreviate(string(reply)), err)
		}
	}
}
