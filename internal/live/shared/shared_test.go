package shared

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/lab/redistest"
)

// pretendRedis is an empty Redis that records requests.
func pretendRedis(t *testing.T) (address string, asked chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	asked = make(chan string, 100)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					asked <- strings.TrimSpace(line)
					if strings.HasSuffix(line, "k\r\n") { // the key, and the end of the request
						_, _ = io.WriteString(conn, "$-1\r\n")
					}
				}
			}()
		}
	}()
	return l.Addr().String(), asked
}

func TestDialRedis_ConnectsToCacheOfSharedAgent(t *testing.T) {
	address, asked := pretendRedis(t)
	s := New(Config{Settings: Settings{Agents: []string{"edge-*"}, RepoServer: "127.0.0.1:1", Redis: redis.Endpoint{Address: address}}, Log: slog.New(slog.DiscardHandler),
		Registry: fleettest.NewRegistry(t, fleettest.Agent("edge-1", 1, func(a *v1alpha1.Agent) { a.UID = "1a2b3c4d-5e6f" }))})
	ctx, cancel := context.WithCancel(t.Context())
	running, ended := make(chan struct{}), make(chan error)
	go func() {
		close(running)
		ended <- s.run(ctx)
	}()
	<-running

	for agent, may := range map[string]bool{"edge-1": true, "w1": false} {
		if err := s.allowed(agent); (err == nil) != may {
			t.Errorf("%s: %v", agent, err)
		}
		for name, target := range s.Targets() {
			if err := target.Admit(agent); (err == nil) != may {
				t.Errorf("%s to %s: %v", agent, name, err)
			}
		}
	}
	if _, here := s.DialRedis("edge-1"); here {
		t.Error("nothing is known yet of where its cache is")
	}
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serveRedis(ctx, "edge-1", far)
	}()
	_, _ = io.WriteString(near, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
	if line, err := bufio.NewReader(near).ReadString('\n'); err != nil || line != "$-1\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	var conn net.Conn
	for here := false; !here; { // run may not have begun when it was asked for the first time
		conn, here = s.DialRedis("edge-1")
	}
	_, _ = io.WriteString(conn, "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "$-1\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	named := 0
	for len(asked) > 0 {
		if <-asked == "argocd-agent|edge-1.1a2b3c4d|k" {
			named++
		}
	}
	if named != 2 {
		t.Errorf("it was asked %d times for what is the agent's", named)
	}
	if _, here := s.DialRedis("w1"); here {
		t.Error("another agent's cache is here")
	}

	// The connections of the Redis proxy end with the session of the agent.
	s.HandleEvent("edge-1", engine.Event{Type: engine.Closed})
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if _, here := s.DialRedis("edge-1"); here {
		t.Error("an agent that has gone")
	}
	_ = near.Close()
	<-served
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDeleted_PurgesKeysOfSharedAgents(t *testing.T) {
	var tasks []func(context.Context) error
	s := New(Config{Settings: Settings{Agents: []string{"edge-*"}, RepoServer: "127.0.0.1:1", Redis: redis.Endpoint{Address: "127.0.0.1:1"}}, Log: slog.New(slog.DiscardHandler),
		Registry: fleettest.NewRegistry(t), AddTask: func(_ string, do func(context.Context) error) { tasks = append(tasks, do) }})
	uid := func(a *v1alpha1.Agent) { a.UID = "1a2b3c4d-5e6f" }
	s.Deleted(fleettest.Agent("w1", 1, uid))
	if len(tasks) != 0 {
		t.Error("keys are purged for an agent with its own Redis")
	}
	s.Deleted(fleettest.Agent("w2", 1, uid, func(a *v1alpha1.Agent) { a.Spec.Shared = true }))
	s.Deleted(fleettest.Agent("edge-1", 1, uid))
	if want := []string{"argocd-agent|edge-1.1a2b3c4d|", "argocd-agent|w2.1a2b3c4d|"}; !slices.Equal(slices.Sorted(maps.Keys(s.purgePrefixes)), want) {
		t.Errorf("prefixes %v", s.purgePrefixes)
	}
	if err := tasks[0](t.Context()); err == nil || len(s.purgePrefixes) != 2 {
		t.Error("prefixes were removed although Redis is unreachable")
	}
	server := redistest.Start(t, "")
	s.tenants.Redis = redis.Endpoint{Address: server.Address}
	for _, key := range []string{"argocd-agent|edge-1.1a2b3c4d|k", "argocd-agent|edge-1.5e6f7a8b|k"} {
		if got, err := server.Ask("SET", key, "v"); err != nil || got != "+OK" {
			t.Fatal(got, err)
		}
	}
	if err := tasks[0](t.Context()); err != nil {
		t.Error(err)
	}
	if got, err := server.Ask("DBSIZE"); err != nil || got != ":1" || len(s.purgePrefixes) != 0 {
		t.Errorf("%s keys are left, %v; %v", got, err, s.purgePrefixes)
	}
}
