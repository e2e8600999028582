// Package interop checks that Argo CD's client library works with the proxy as with Redis. It does what argocd-server does.
//
// It is a separate module, so that the product does not depend on the library.
package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	proxy "github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/lab/redistest"
)

const (
	password     = "pass word"
	hubTree      = "app|resources-tree|shop_cart|1.8.3.gz"
	spokeTree    = "app|resources-tree|cart|1.8.3.gz"
	hubChannel   = "app|managed-resources|shop_cart|1.8.3"
	spokeChannel = "app|managed-resources|cart|1.8.3"
)

// hub is a Server with one agent, whose tunnels can be cut.
type hub struct {
	t     *testing.T
	relay *proxy.Relay
	tasks sync.WaitGroup

	mu    sync.Mutex
	away  bool
	conns []net.Conn
}

func (h *hub) Resolve(namespace, name string) (proxy.Target, bool) {
	return proxy.Target{Agent: "w1", Local: name}, namespace == "shop"
}

func (h *hub) Dial(context.Context, string) (net.Conn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.away {
		return nil, errors.New("agent w1 is not connected")
	}
	near, far := net.Pipe()
	h.conns = append(h.conns, near)
	h.tasks.Go(func() { _ = h.relay.Serve(context.Background(), far) })
	return near, nil
}

func (h *hub) set(away bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = away
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	h.conns = nil
}

func direct(t *testing.T, socket string) *redis.Client {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("condition not met: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestProxy_ClientLibraryOfArgoCD(t *testing.T) {
	t.Run("plaintext", func(t *testing.T) { checkProxy(t, nil, nil) })
	t.Run("TLS", func(t *testing.T) {
		certificate := httptest.NewTLSServer(nil) // for its certificate, which is valid for 127.0.0.1
		defer certificate.Close()
		roots := x509.NewCertPool()
		roots.AddCert(certificate.Certificate())
		checkProxy(t, &tls.Config{Certificates: certificate.TLS.Certificates, MinVersion: tls.VersionTLS13}, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	})
}

func checkProxy(t *testing.T, serverTLS, clientTLS *tls.Config) {
	atHub, atSpoke := redistest.Start(t, password), redistest.Start(t, password)
	restart := func(r *redistest.Redis) func() {
		return func() {
			r.Stop()
			r.Run()
		}
	}
	spoke := direct(t, atSpoke.Address)
	h := &hub{t: t, relay: &proxy.Relay{Redis: proxy.Endpoint{Address: atSpoke.Address, Credentials: proxy.Fixed("", password)}}}
	server := proxy.New(proxy.Config{Hub: proxy.Endpoint{Address: atHub.Address}, Agents: h, Dial: h.Dial, TLS: serverTLS})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		h.tasks.Wait()
	}()

	for _, protocol := range []int{2, 3} {
		t.Run("RESP"+strconv.Itoa(protocol), func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), Password: password, MaxRetries: 3, Protocol: protocol, TLSConfig: clientTLS})
			t.Cleanup(func() { _ = client.Close() })
			store(t, client)
			trees(t, h, client, spoke)
			changes(t, h, client, spoke, restart(atSpoke))
			tokens(t, client, restart(atHub))
		})
	}
	wrong := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), Password: "wrong", TLSConfig: clientTLS})
	if err := wrong.Get(ctx, hubTree).Err(); err == nil || errors.Is(err, redis.Nil) {
		t.Errorf("with a wrong password: %v", err)
	}
}

// store does what Argo CD's caches do with the hub's own keys.
func store(t *testing.T, client *redis.Client) {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.Set(ctx, "mfst|x|1.8.3.gz", "manifests", time.Hour).Err())
	must(client.SetNX(ctx, "lock|1.8.3.gz", "locked", time.Minute).Err())
	must(client.Rename(ctx, "mfst|x|1.8.3.gz", "mfst|y|1.8.3.gz").Err())
	if err := client.Rename(ctx, "mfst|x|1.8.3.gz", "z").Err(); err == nil || err.Error() != "ERR no such key" {
		t.Errorf("Argo CD compares this error text: %v", err)
	}
	if value, err := client.Get(ctx, "mfst|y|1.8.3.gz").Result(); err != nil || value != "manifests" {
		t.Error(value, err)
	}
	if err := client.Get(ctx, "none").Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	must(client.Del(ctx, "lock|1.8.3.gz").Err())
	commands, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 100 {
			pipe.Get(ctx, "mfst|y|1.8.3.gz")
			pipe.Exists(ctx, "mfst|y|1.8.3.gz")
		}
		return nil
	})
	if err != nil || len(commands) != 200 {
		t.Error(len(commands), err)
	}
}

func trees(t *testing.T, h *hub, client, spoke *redis.Client) {
	ctx := t.Context()
	if err := client.Get(ctx, hubTree).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a miss: %v", err)
	}
	spoke.Set(ctx, spokeTree, "tree", 0)
	for range 10 {
		if value, err := client.Get(ctx, hubTree).Result(); err != nil || value != "tree" {
			t.Error(value, err)
		}
	}
	h.set(true)
	if value, err := client.Get(ctx, hubTree).Result(); err != nil || value != "tree" {
		t.Error(value, err)
	}
	if err := client.Get(ctx, hubChannel).Err(); err == nil || err.Error() != "ERR agent w1 is not connected" {
		t.Error(err)
	}
	h.set(false)
	if err := client.Get(ctx, hubChannel).Err(); !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	spoke.Del(ctx, spokeTree)
	eventually(t, "the tree is gone", func() bool {
		spoke.Publish(ctx, spokeChannel, "")
		return errors.Is(client.Get(ctx, hubTree).Err(), redis.Nil)
	})
}

func changes(t *testing.T, h *hub, client, spoke *redis.Client, restartSpoke func()) {
	ctx := t.Context()
	spoke.Set(ctx, spokeTree, "tree", 0) // a subscriber is notified at the start only if there is a tree
	pubsub := client.Subscribe(ctx, hubChannel)
	defer func() { _ = pubsub.Close() }()
	channel := pubsub.Channel()
	hear := func(why string) {
		t.Helper()
		select {
		case m := <-channel:
			if m.Channel != hubChannel || m.Payload != "" {
				t.Errorf("%s: %+v", why, m)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: no message", why)
		}
	}
	hear("at the start")
	spoke.Publish(ctx, spokeChannel, "")
	hear("a change")
	h.set(false)
	hear("after a gap")
	spoke.Publish(ctx, spokeChannel, "")
	hear("a change after a gap")
	restartSpoke() // it is empty afterwards. Argo CD's controller writes the tree again and publishes the change
	eventually(t, "a change is received after a restart of the agent's Redis", func() bool {
		spoke.Set(ctx, spokeTree, "tree", 0)
		spoke.Publish(ctx, spokeChannel, "")
		select {
		case m := <-channel:
			return m.Channel == hubChannel
		default:
			return false
		}
	})
	spoke.Del(ctx, spokeTree)
}

// tokens does what Argo CD's sessions do: scan for revoked tokens and subscribe to them, during a restart of the hub's Redis.
func tokens(t *testing.T, client *redis.Client, restartHub func()) {
	ctx := t.Context()
	pubsub := client.Subscribe(ctx, "new-revoked-token")
	defer func() { _ = pubsub.Close() }()
	channel := pubsub.Channel()
	revoke := func() {
		t.Helper()
		eventually(t, "a revoked token is received", func() bool {
			client.Publish(ctx, "new-revoked-token", "id")
			select {
			case m := <-channel:
				return m.Payload == "id"
			default:
				return false
			}
		})
	}
	revoke()
	restartHub()
	revoke()
	client.Set(ctx, "revoked-token|id", "", time.Hour)
	var found []string
	scan := client.Scan(ctx, 0, "revoked-token|*", 10_000).Iterator()
	for scan.Next(ctx) {
		found = append(found, scan.Val())
	}
	if len(found) != 1 || scan.Err() != nil {
		t.Error(found, scan.Err())
	}
}
