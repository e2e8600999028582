package principal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/util/sharedread"
)

func TestProbes_APIServerUnreachable(t *testing.T) {
	var lc net.ListenConfig
	health, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Cluster: &rest.Config{Host: "http://127.0.0.1:1"}, HealthListener: health, Log: slog.New(slog.DiscardHandler)})
	}()
	for path, want := range map[string]int{"/healthz": 503, "/livez": 200} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want || want == 503 && !strings.Contains(string(body), "API server") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// Agents and clients are accepted only after objects, registrations, settings and the blocklist were read.
func TestWaitForInitialSync_WaitsForAllParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		p := &principal{registry: fleettest.NewRegistry(t), objects: kube.NewReadiness(kube.KindWatches("", true, nil)), settingsRead: make(chan struct{}), blocklist: revoke.New(nil, "argocd", nil, log)}
		ended := make(chan error, 1)
		go func() { ended <- p.waitForInitialSync(t.Context()) }()
		for _, read := range []func(){func() {
			for _, r := range reconcile.Resources() {
				p.objects.Follow(reconcile.List{Resource: r})
			}
		}, func() {
			for _, w := range p.registry.Watches() {
				_ = p.registry.Apply(t.Context(), reconcile.List{Resource: w.Resource})
			}
		}, func() { close(p.settingsRead) }, func() {
			_ = p.blocklist.Sink(func([]string) {})(t.Context(), reconcile.List{})
		}} {
			synctest.Wait()
			if len(ended) > 0 {
				t.Fatal("did not wait")
			}
			read()
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNamespaceCreate_Pattern(t *testing.T) {
	for _, c := range []struct {
		create NamespaceCreate
		name   string
		want   bool
	}{
		{NamespaceCreate{}, "a", false},
		{NamespaceCreate{Enable: true}, "a", true},
		{NamespaceCreate{Enable: true, Pattern: "team-.*"}, "team-x", true},
		{NamespaceCreate{Enable: true, Pattern: "team"}, "team-x", false},
	} {
		if _, got := c.create.allows(c.name); got != c.want {
			t.Errorf("%+v: %s: %v", c.create, c.name, got)
		}
	}
}

// After a restart all agents connect at once. Those that wait keep their connections.
func TestHandleHello_WaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := fleettest.NewRegistry(t, fleettest.Agent("w1", 1, func(a *v1alpha1.Agent) { a.Spec.Suspended = true }))
		s := newSessions(t.Context(), sessionsConfig{registry: registry, conns: newConnections()})
		server := transport.NewServer(transport.ServerConfig{Events: s, Log: slog.New(slog.DiscardHandler)})
		for range maxConcurrentHellos {
			s.hellos <- struct{}{}
		}
		var conns [2]*transport.Conn
		for i := range conns {
			c, err := server.Accept(transport.Peer{Agent: "w1"}, silentSession{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			conns[i] = c
			go s.handleHello(c, engine.Hello{})
		}
		synctest.Wait()
		if conns[0].Cause() != nil || conns[1].Cause() != nil {
			t.Fatalf("did not wait: %v, %v", conns[0].Cause(), conns[1].Cause())
		}
		conns[1].Close(engine.ShuttingDown, "the agent is gone") // and its Hello takes no turn
		synctest.Wait()
		<-s.hellos
		synctest.Wait()
		if bye, ok := conns[0].Cause().(*transport.ByeError); !ok || bye.Code != engine.Revoked {
			t.Errorf("not handled: %v", conns[0].Cause())
		}
		if len(s.hellos) != maxConcurrentHellos-1 {
			t.Errorf("%d Hellos in progress", len(s.hellos))
		}
	})
}

// newHelloSessions returns sessions of a registered agent, w1. posted counts its inputs, which wait for the end of the
// connection.
func newHelloSessions(t *testing.T, log slog.Handler, revision func() (uint64, error)) (s *sessions, accept func() *transport.Conn, posted *atomic.Int32) {
	t.Helper()
	registry := fleettest.NewRegistry(t, fleettest.Agent("w1", 1))
	posted = &atomic.Int32{}
	s = newSessions(t.Context(), sessionsConfig{registry: registry, conns: newConnections(), refusal: func(string, engine.Hello) string { return "" },
		replicas:  fleet.NewReplicas(nil, registry, "argocd", "p1", "", slog.New(slog.DiscardHandler)),
		revisions: sharedread.New(revision), log: slog.New(log), revoked: func(string) bool { return false },
		post: func(_ context.Context, closing <-chan struct{}, _ reconcile.Input) error {
			posted.Add(1)
			<-closing
			return errors.New("closed")
		}})
	server := transport.NewServer(transport.ServerConfig{Events: s, Log: slog.New(slog.DiscardHandler)})
	return s, func() *transport.Conn {
		c, err := server.Accept(transport.Peer{Agent: "w1"}, silentSession{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Connected(c)
		return c
	}, posted
}

// hello is a Hello with another mode than the registered one, so that nothing is recorded.
func hello(attempt uint64) engine.Hello {
	return engine.Hello{Mode: "autonomous", Epoch: engine.Epoch{Incarnation: 1, Attempt: attempt}}
}

// The reconciler can make an agent wait that sends too much. Its Hellos must not take the turns of other agents.
func TestHandleHello_TakesNoTurnWhileItWaitsForTheReconciler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, accept, posted := newHelloSessions(t, slog.DiscardHandler, func() (uint64, error) { return 7, nil })
		c := accept()
		go s.handleHello(c, hello(1))
		synctest.Wait()
		if posted.Load() != 1 || len(s.hellos) > 0 {
			t.Errorf("%d posts, %d Hellos in progress", posted.Load(), len(s.hellos))
		}
		c.Close(engine.ShuttingDown, "end of the test")
	})
}

// One read of the revision serves all agents that wait for it, so that they take no turns. A slow read succeeds. A connection
// that ends does not wait for it, and nothing is reported.
func TestHandleHello_WaitsForTheRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		var log bytes.Buffer
		s, accept, posted := newHelloSessions(t, slog.NewTextHandler(&log, nil), func() (uint64, error) { <-proceed; return 7, nil })
		var returned atomic.Int32
		var conns []*transport.Conn
		for range 2 {
			c := accept()
			conns = append(conns, c)
			go func() { s.handleHello(c, hello(1)); returned.Add(1) }()
		}
		time.Sleep(2 * helloTimeout)
		if posted.Load() != 0 || len(s.hellos) > 0 || returned.Load() != 0 {
			t.Errorf("%d posts, %d Hellos in progress, %d have returned", posted.Load(), len(s.hellos), returned.Load())
		}
		conns[0].Close(engine.ShuttingDown, "the agent is gone")
		synctest.Wait()
		if returned.Load() != 1 || log.Len() > 0 {
			t.Errorf("%d have returned, log: %s", returned.Load(), log.String())
		}
		close(proceed)
		synctest.Wait()
		if posted.Load() != 1 || conns[1].Cause() != nil {
			t.Errorf("%d posts, %v", posted.Load(), conns[1].Cause())
		}
		conns[1].Close(engine.ShuttingDown, "end of the test")
	})
}

// A failed read affects all agents that wait for it. They do not return at the same time.
func TestHandleHello_SpreadsAgentsAfterAFailedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, accept, posted := newHelloSessions(t, slog.NewTextHandler(&log, nil), func() (uint64, error) { return 0, errors.New("too many requests") })
		retries := map[time.Duration]bool{}
		for range 5 {
			c := accept()
			s.handleHello(c, hello(1))
			bye, ok := c.Cause().(*transport.ByeError)
			if !ok || bye.Code != engine.Unavailable || bye.RetryAfter < leastUnavailable || bye.RetryAfter > mostUnavailable {
				t.Fatalf("%#v", c.Cause())
			}
			retries[bye.RetryAfter] = true
		}
		if len(retries) == 1 || posted.Load() != 0 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("retries %v, %d posts, log: %s", retries, posted.Load(), log.String())
		}
	})
}

// What an older connection waited for must not reach the reconciler after a newer connection: its history mark may be older.
func TestHandleHello_OlderConnectionIsSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		var log bytes.Buffer
		s, accept, posted := newHelloSessions(t, slog.NewTextHandler(&log, nil), func() (uint64, error) { <-proceed; return 7, nil })
		older, newer := accept(), accept()
		for attempt, c := range []*transport.Conn{older, newer} {
			s.conns.recordHello(c, hello(uint64(attempt)))
			go s.handleHello(c, hello(uint64(attempt)))
		}
		synctest.Wait()
		close(proceed)
		synctest.Wait()
		if bye, ok := older.Cause().(*transport.ByeError); !ok || bye.Code != engine.Superseded || newer.Cause() != nil || posted.Load() != 1 || !strings.Contains(log.String(), "Older session of agent refused") {
			t.Errorf("%v, %v, %d posts, log: %s", older.Cause(), newer.Cause(), posted.Load(), log.String())
		}
		newer.Close(engine.ShuttingDown, "end of the test")
	})
}

// An agent that moves connects to another replica while its former connection here is closing. That is no fault.
func TestRefuseOlder_IgnoresClosingConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s, accept, _ := newHelloSessions(t, slog.NewTextHandler(&log, nil), func() (uint64, error) { return 7, nil })
		c := accept()
		c.Close(engine.Reconnect, "connect again")
		s.refuseOlder(c, hello(1).Epoch, "a newer session of this agent is connected to principal p2")
		if bye, ok := c.Cause().(*transport.ByeError); !ok || bye.Code != engine.Reconnect || log.Len() > 0 {
			t.Errorf("%v, log: %s", c.Cause(), log.String())
		}
	})
}

// A clone of the agent in another cluster, and a process that has ended, delay nothing, although their sessions are newer.
func TestHandleHello_OtherNewerConnectionsDelayNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		cluster string
		end     func(*transport.Conn)
	}{
		"open connection of a clone":            {cluster: "cluster-b", end: func(*transport.Conn) {}},
		"ended connection of the same cluster":  {cluster: "cluster-a", end: func(c *transport.Conn) { c.Close(engine.ShuttingDown, "the agent is gone") }},
		"refused connection of another cluster": {cluster: "cluster-b", end: func(c *transport.Conn) { c.Close(engine.WrongCluster, "this name belongs to cluster-a") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, accept, posted := newHelloSessions(t, slog.DiscardHandler, func() (uint64, error) { return 7, nil })
				older, newer := accept(), accept()
				claim := hello(2)
				claim.ClusterUID = tc.cluster
				s.conns.recordHello(newer, claim)
				tc.end(newer)
				own := hello(1)
				own.ClusterUID = "cluster-a"
				s.conns.recordHello(older, own)
				go s.handleHello(older, own)
				synctest.Wait()
				if older.Cause() != nil || posted.Load() != 1 {
					t.Errorf("%v, %d posts", older.Cause(), posted.Load())
				}
				older.Close(engine.ShuttingDown, "end of the test")
				newer.Close(engine.ShuttingDown, "end of the test")
			})
		})
	}
}

// Agents that connect while the principal starts are served with their first connection.
func TestServeNotReady_WaitsBeforeItRefuses(t *testing.T) {
	for lasts, want := range map[time.Duration]int{notReadyDelay / 2: 0, 2 * notReadyDelay: 1} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			l := &countingListener{}
			l.interrupted, l.interrupt = context.WithCancel(t.Context())
			err := serveNotReady(ctx, Config{Listener: l, Log: slog.New(slog.DiscardHandler)}, func() error { return errors.New("starting") })
			if err != nil || l.accepts != want {
				t.Errorf("not ready for %v: accepted %d times, want %d; %v", lasts, l.accepts, want, err)
			}
		})
	}
}

// countingListener accepts no connection.
type countingListener struct {
	net.Listener
	accepts     int
	interrupted context.Context
	interrupt   context.CancelFunc
}

func (l *countingListener) Accept() (net.Conn, error) {
	l.accepts++
	<-l.interrupted.Done()
	return nil, net.ErrClosed
}

func (l *countingListener) SetDeadline(at time.Time) error {
	if !at.IsZero() {
		l.interrupt()
	}
	return nil
}

func (l *countingListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestNotReadyEnroller_RefusesTemporarily(t *testing.T) {
	var p *process // the API server has not responded yet
	enroller := notReadyEnroller{p.notReadyReason}
	_, joining := enroller.Join(t.Context(), enroll.JoinRequest{})
	_, renewing := enroller.Renew(t.Context(), enroll.RenewRequest{})
	for _, err := range []error{joining, renewing} {
		if refusal := new(enroll.Error); !errors.As(err, &refusal) || !refusal.Temporary || refusal.RetryAfter == 0 || !strings.Contains(refusal.Message, "waiting for the API server") {
			t.Errorf("error %v", err)
		}
	}
}

// The reconciler ends the session of an agent whose Agent is deleted or suspended, and may do so first. The agent gets the
// reason of the Agent.
func TestDeliver_DeniedAgentGetsTheReason(t *testing.T) {
	for suspended, want := range map[bool]engine.Code{true: engine.Revoked, false: engine.ShuttingDown} {
		registry := fleettest.NewRegistry(t, fleettest.Agent("w1", 1, func(a *v1alpha1.Agent) { a.Spec.Suspended = suspended }))
		s := newSessions(t.Context(), sessionsConfig{registry: registry, conns: newConnections()})
		c, err := transport.NewServer(transport.ServerConfig{Events: s, Log: slog.New(slog.DiscardHandler)}).Accept(transport.Peer{Agent: "w1"}, silentSession{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.conns.add(c)
		s.deliver(reconcile.ToPeer{Agent: "w1", Effect: engine.CloseSession{Session: c.ID, Code: engine.ShuttingDown, Message: "the agent's registration has changed"}})
		if bye, ok := c.Cause().(*transport.ByeError); !ok || bye.Code != want {
			t.Errorf("suspended %v: %v", suspended, c.Cause())
		}
	}
}

// The number of unregistered names that are refused is not bounded.
func TestEndReason_OnlyForRegisteredAgents(t *testing.T) {
	s := newSessions(t.Context(), sessionsConfig{registry: fleettest.NewRegistry(t, fleettest.Agent("w1", 1))})
	for i := range 100 {
		s.setEndReason(fmt.Sprintf("stranger-%d", i), errors.New("not registered"))
	}
	s.setEndReason("w1", errors.New("reset"))
	if len(s.endReasons) != 1 || s.takeEndReason("w1") != "reset" || len(s.endReasons) != 0 {
		t.Errorf("recorded: %v", s.endReasons)
	}
}

// An agent chooses its text. It must stay on one line.
func TestMessage_TextOfAnAgentIsOneLine(t *testing.T) {
	evil := "x\n\x1b[2Jy"
	registry := fleettest.NewRegistry(t, fleettest.Agent("b", 1))
	p := &principal{sessions: newSessions(t.Context(), sessionsConfig{registry: registry})}
	p.sessions.setEndReason("b", errors.New(evil))
	message := func(agent string, f engine.Event) string { return p.message(reconcile.Report{Agent: agent, Event: f}) }
	for what, text := range map[string]string{
		"goodbye":                    message("a", engine.Event{Type: engine.Closed, Message: evil}),
		"end of the connection":      message("b", engine.Event{Type: engine.Closed}),
		"refusal":                    message("a", engine.Event{Type: engine.Refused, Code: engine.WrongMode, Message: evil}),
		"refusal of another cluster": message("a", engine.Event{Type: engine.Refused, Code: engine.WrongCluster, Message: evil, Hello: &engine.Hello{ClusterUID: "$(reboot)"}}),
	} {
		if !strings.Contains(text, "x") || strings.ContainsAny(text, "\n\x1b") || strings.Contains(text, "$(reboot)") {
			t.Errorf("%s: %q", what, text)
		}
	}
}

// silentSession is a session whose peer sends nothing.
type silentSession struct{ transport.Session }

func (silentSession) Abort()                      {}
func (silentSession) RemoteAddr() string          { return "192.0.2.1:1" }
func (silentSession) Traffic() *transport.Traffic { return &transport.Traffic{} }

func TestReceived_NothingBeforeHello(t *testing.T) {
	posted := 0
	s := &sessions{sessionsConfig: sessionsConfig{conns: newConnections(), post: func(context.Context, <-chan struct{}, reconcile.Input) error {
		posted++
		return nil
	}}}
	server := transport.NewServer(transport.ServerConfig{Events: s, Log: slog.New(slog.DiscardHandler)})
	for _, hello := range []bool{false, true} {
		c, err := server.Accept(transport.Peer{Agent: "w1"}, silentSession{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.conns.add(c)
		if hello {
			s.conns.recordHello(c, engine.Hello{})
		}
		s.Received(c, engine.Roots{})
		if bye, ok := c.Cause().(*transport.ByeError); hello && c.Cause() != nil || !hello && (!ok || bye.Code != engine.BadMessage) {
			t.Errorf("after a Hello %v: ended by %v", hello, c.Cause())
		}
	}
	if posted != 1 {
		t.Errorf("%d messages reached the reconciler", posted)
	}
}
