package grpc

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// some is a message of about a size.
func some(size int) engine.Delta {
	return engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: 1, Key: engine.Key{Name: "x"}, Content: make([]byte, size)}}}
}

// writeStallTimeout is that of package transport.
const writeStallTimeout = 3 * time.Minute

func TestConn_CutsAPeerThatOnlyAnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		stalled := newRecorder(t)
		stalled.received = func(c *transport.Conn, _ engine.Message) { <-c.Done() }
		d := newSpoke(spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Events: stalled, Log: (&journal{}).logger(), Dial: c.dial, Wait: stopDialling})
		running(t, d.Run)
		conn := h.next("connected").conn
		for range 20 { // more than the windows take, less than the queue
			must(t, conn.Send(some(100_000)))
		}
		time.Sleep(writeStallTimeout - time.Second)
		synctest.Wait()
		if err := conn.Cause(); err != nil {
			t.Fatalf("cut too soon, by %v", err)
		}
		if n := conn.Queued(); n < 100_000 {
			t.Fatalf("only %d bytes wait: it takes them", n)
		}
		time.Sleep(2 * time.Second)
		if got := h.next("disconnected"); !errors.Is(got.err, transport.ErrSlowReader) {
			t.Errorf("ended by %v", got.err)
		}
	})
}

func TestConn_KeepsAPeerThatReadsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, hubConfig{TLS: ca.serverTLS()}, c)
		slow := newRecorder(t)
		read := make(chan struct{}, 1000)
		slow.received = func(*transport.Conn, engine.Message) { time.Sleep(10 * time.Second); read <- struct{}{} }
		d := newSpoke(spokeConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Events: slow, Log: (&journal{}).logger(), Dial: c.dial, Wait: stopDialling})
		running(t, d.Run)
		conn := h.next("connected").conn
		const messages = 70
		for range messages {
			must(t, conn.Send(some(100_000)))
		}
		for range messages {
			<-read
		}
		if err := conn.Cause(); err != nil {
			t.Errorf("cut by %v", err)
		}
	})
}
