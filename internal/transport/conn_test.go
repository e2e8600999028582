package transport

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeSession is a peer that accepts everything and sends nothing.
type fakeSession struct {
	Session
	ended chan struct{}
	once  sync.Once
}

func newFakeSession() *fakeSession { return &fakeSession{ended: make(chan struct{})} }

func (s *fakeSession) Send([]byte) error { return nil }
func (s *fakeSession) Receive(func([]byte)) error {
	<-s.ended
	return io.EOF
}
func (s *fakeSession) CloseSend()               { s.Abort() }
func (s *fakeSession) Abort()                   { s.once.Do(func() { close(s.ended) }) }
func (s *fakeSession) Context() context.Context { return context.Background() }
func (s *fakeSession) RemoteAddr() string       { return "fake" }
func (s *fakeSession) Traffic() *Traffic        { return &Traffic{} }

type discardEvents struct{}

func (discardEvents) Connected(*Conn)                {}
func (discardEvents) Received(*Conn, engine.Message) {}
func (discardEvents) Disconnected(*Conn, error)      {}

func roots(n int) engine.Roots {
	return engine.Roots{Items: []engine.Root{{Scope: "application", Count: uint64(n)}}}
}

func TestConn_SendsTheQueueOnlyBeforeAShutdown(t *testing.T) {
	for code, want := range map[engine.Code]int{engine.ShuttingDown: 3, engine.Reconnect: 3, engine.Revoked: 1} {
		c := newConn(newFakeSession(), "hub/agent-a", &Traffic{}, defaultQueue, time.Now())
		c.grace = time.Hour
		must(t, c.Send(roots(1)))
		must(t, c.Send(roots(2)))
		c.Close(code, "bye")
		batch, last := c.take()
		if len(batch) != want || !last {
			t.Errorf("%s: %d messages are sent instead of %d", code, len(batch), want)
		}
		sum := 0
		for _, event := range batch {
			sum += len(event)
		}
		if c.Queued() != sum {
			t.Errorf("%s: %d bytes are counted instead of %d", code, c.Queued(), sum)
		}
		c.timer.Stop()
	}
}

func TestConn_HasNoSenderWhileIdle(t *testing.T) {
	c := newConn(newFakeSession(), "hub/agent-a", &Traffic{}, defaultQueue, time.Now())
	var running sync.WaitGroup
	running.Go(func() { c.run(discardEvents{}) })
	for i := range 3 {
		must(t, c.Send(roots(i)))
		for idle := false; !idle; {
			c.mu.Lock()
			idle = !c.sending && c.running
			c.mu.Unlock()
		}
	}
	c.Close(engine.ShuttingDown, "bye")
	running.Wait()
}

func TestServer_RefusesSessionsWhileItDrains(t *testing.T) {
	s := NewServer(ServerConfig{Events: discardEvents{}, Log: slog.New(slog.DiscardHandler)})
	s.Drain()
	if _, err := s.Accept(Peer{Agent: "agent-a"}, newFakeSession(), nil); err == nil || s.Counters().Refused()[RefusedShuttingDown] != 1 {
		t.Errorf("error %v, refused %v", err, s.Counters().Refused())
	}
}

// A session ends when the certificate expires that the agent connected with. The agent connects again with the renewed
// one.
func TestServer_EndsSessionWhenCertificateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(ServerConfig{Events: discardEvents{}, Log: slog.New(slog.DiscardHandler)})
		serve := func(left time.Duration) *Conn {
			p := Peer{Agent: "agent-a"}
			if left > 0 {
				p.NotAfter = time.Now().Add(left)
			}
			c, err := s.Accept(p, newFakeSession(), nil)
			must(t, err)
			go s.Serve(c)
			c.greeted.Store(true)
			return c
		}
		short, long, mesh := serve(time.Hour), serve(48*time.Hour), serve(0)
		time.Sleep(time.Hour - time.Nanosecond)
		synctest.Wait()
		if err := short.Cause(); err != nil {
			t.Errorf("before the end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if bye, ok := short.Cause().(*ByeError); !ok || bye.Code != engine.Revoked || !strings.Contains(bye.Message, "expired") || bye.RetryAfter != 0 {
			t.Errorf("after the end: %v", short.Cause())
		}
		for _, c := range []*Conn{long, mesh} {
			if err := c.Cause(); err != nil {
				t.Errorf("another session: %v", err)
			}
		}
		s.Drain()
	})
}

func TestServer_LimitsSessionsOfAgent(t *testing.T) {
	s := NewServer(ServerConfig{Events: discardEvents{}, Log: slog.New(slog.DiscardHandler)})
	accept := func(agent string) *Conn {
		t.Helper()
		c, err := s.Accept(Peer{Agent: agent}, newFakeSession(), nil)
		must(t, err)
		return c
	}
	current, other := accept("agent-a"), accept("agent-b")
	must(t, current.Send(engine.Welcome{Agent: "agent-a"}))
	var all []*Conn
	for range maxSessionsPerAgent + 1 {
		all = append(all, accept("agent-a"))
	}
	for i, c := range all {
		if ended := c.Cause() != nil; ended != (i < 2) {
			t.Errorf("session %d ended: %v", i, ended)
		}
	}
	if current.Cause() != nil || other.Cause() != nil {
		t.Error("a current session was ended")
	}
}
