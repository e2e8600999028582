package redis

import (
	"context"
	"strings"
	"testing"
)

// hubAt connects to a Relay as a hub does, which can be hostile.
func hubAt(t *testing.T, spoke *realRedis) *testClient {
	t.Helper()
	hub, agent := tunnel(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = (&Relay{Redis: spoke.endpoint()}).Serve(context.Background(), agent)
	}()
	c := &testClient{t: t, conn: hub, in: newReplyReader(hub, testLimits)}
	t.Cleanup(func() {
		c.close()
		<-ended
	})
	return c
}

func TestRelay_AllowedRequests(t *testing.T) {
	spoke := startRedis(t, spokePassword)
	spoke.do("SET", treeKey("cart"), "tree", "EX", "100")
	spoke.do("SET", "cluster|info|https://kubernetes.default.svc|1.8.3", "info")
	c := hubAt(t, spoke)
	c.expect("$4 tree", "GET", treeKey("cart"))
	c.expect("$4 info", "GET", "cluster|info|https://kubernetes.default.svc|1.8.3")
	c.expect("*2 $4 tree $-1", "MGET", treeKey("cart"), treeKey("other")+".gz")
	c.expect(":1", "EXISTS", treeKey("cart"))
	c.expect(":100", "TTL", treeKey("cart"))
	c.expect("+PONG", "PING")
	c.expect(confirmed('*', "subscribe", channelKey("cart"), "1"), "SUBSCRIBE", channelKey("cart"))
	spoke.do("PUBLISH", channelKey("cart"), "")
	c.receives(old("message", channelKey("cart"), ""))
	c.expect(confirmed('*', "unsubscribe", channelKey("cart"), "0"), "UNSUBSCRIBE", channelKey("cart"))
}

func TestRelay_RefusesOtherRequests(t *testing.T) {
	spoke := startRedis(t, spokePassword)
	spoke.do("SET", treeKey("cart"), "tree")
	spoke.do("SET", "app|secret|x", "secret")
	for _, request := range [][]string{
		{"SET", treeKey("cart"), "forged"},
		{"DEL", treeKey("cart")},
		{"GET", "app|secret|x"},
		{"GET", "mfst|x"},
		{"MGET", treeKey("cart"), "session|x"},
		{"GETDEL", treeKey("cart")},
		{"SUBSCRIBE", "new-revoked-token"},
		{"PSUBSCRIBE", "app|managed-resources|*"},
		{"PUBLISH", channelKey("cart"), ""},
		{"KEYS", "*"}, {"STRLEN", treeKey("cart")}, {"SCAN", "0"}, {"EVAL", "return 1", "0"}, {"CONFIG", "GET", "*"}, {"AUTH", "x"},
		{"HELLO", "3"}, {"MONITOR"}, {"FLUSHALL"}, {"SELECT", "1"}, {"MULTI"}, {"PING", "x"}, {"UNSUBSCRIBE"}, {"MGET"},
		{"GET"}, {"GET", treeKey("cart"), treeKey("cart")},
	} {
		c := hubAt(t, spoke)
		c.send(string(appendCommand(nil, "GET", treeKey("cart"))) + string(appendCommand(nil, request...)))
		c.receives("$4 tree") // the reply to the earlier request
		if got := c.reply(); !strings.HasPrefix(got, "-ERR refused by the agent: ") {
			t.Errorf("%v: %q", request, got)
		}
		c.ends()
	}
	for _, bytes := range []string{
		"GET " + treeKey("cart") + "\r\n", "*1\r\n$-5\r\n", "*2\r\n$3\r\nGET\r\n$99999999999\r\n", "*99999999\r\n", "GARBAGE",
	} {
		c := hubAt(t, spoke)
		c.send(bytes + "\r\n")
		if got := c.reply(); !strings.HasPrefix(got, "-ERR ") {
			t.Errorf("%q: %q", bytes, got)
		}
		c.ends()
	}
	if got := spoke.do("GET", treeKey("cart")); got != "$4 tree" {
		t.Errorf("the value is %q now", got)
	}
}

func TestRelay_UnreachableRedisReturnsError(t *testing.T) {
	spoke := startRedis(t, spokePassword)
	spoke.as.Password = "wrong"
	if got := hubAt(t, spoke).reply(); !strings.Contains(got, "WRONGPASS") {
		t.Error(got)
	}
	spoke.Stop()
	c := hubAt(t, spoke)
	if got := c.reply(); !strings.HasPrefix(got, "-ERR cannot reach the cluster's Redis: connect to Redis at ") {
		t.Error(got)
	}
	c.ends()
}
