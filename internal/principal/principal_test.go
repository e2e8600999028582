package principal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/identity/revoke"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
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
		p := &principal{registry: fleettest.NewRegistry(t), objects: kube.NewReadiness(nil), settingsRead: make(chan struct{}), blocklist: revoke.New(nil, "argocd", nil, log)}
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

// Calls share a request that starts after them, and never one that started before.
func TestRevisionReader_SharesNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, proceed := 0, make(chan struct{})
		f := newRevisionReader(func() (string, error) {
			reads++
			n := reads
			<-proceed
			return strconv.Itoa(n), nil
		})
		var wg sync.WaitGroup
		call := func(want uint64) {
			wg.Go(func() {
				if n, err := f.revision(t.Context()); n != want || err != nil {
					t.Errorf("%d, %v, want %d", n, err, want)
				}
			})
		}
		call(1)
		synctest.Wait()
		for range 10 {
			call(2)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.revision(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		synctest.Wait()
		close(proceed)
		wg.Wait()
		if reads != 2 {
			t.Errorf("%d reads", reads)
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

func TestAdmit_LimitsHellosInProgress(t *testing.T) {
	s := &sessions{sessionsConfig: sessionsConfig{jitter: func() float64 { return 0.5 }}}
	s.helloCount.Store(maxConcurrentHellos - 1)
	if retry, err := s.admit(transport.Peer{}); retry != 0 || err != nil {
		t.Errorf("not full yet: %v, %v", retry, err)
	}
	s.helloCount.Add(1)
	if retry, err := s.admit(transport.Peer{}); retry != 3*time.Second || err == nil {
		t.Errorf("full: %v, %v", retry, err)
	}
}

func TestNotReadyEnroller_RefusesTemporarily(t *testing.T) {
	var p *principal // the API server has not responded yet
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
