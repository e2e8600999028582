package transport

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// some is a message of about a size.
func some(size int) engine.Delta {
	return engine.Delta{Scope: "application", Items: []engine.DeltaItem{{Seq: 1, Key: engine.Key{Name: "x"}, Content: make([]byte, size)}}}
}

func TestPeerThatReadsNothingIsCutAlthoughItAnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, ServerConfig{TLS: ca.serverTLS()}, c)
		deaf := newRecorder(t)
		deaf.received = func(c *Conn, _ engine.Message) { <-c.Done() }
		d := NewDialer(DialerConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Events: deaf, Log: (&journal{}).logger(), Dial: c.dial, Wait: stopDialling})
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
		if got := h.next("disconnected"); !errors.Is(got.err, ErrSlowReader) {
			t.Errorf("ended by %v", got.err)
		}
	})
}

func TestPeerThatReadsSlowlyIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newCA(t, "ca")
		c := newCable()
		h := startHubOn(t, ServerConfig{TLS: ca.serverTLS()}, c)
		slow := newRecorder(t)
		read := make(chan struct{}, 1000)
		slow.received = func(*Conn, engine.Message) { time.Sleep(10 * time.Second); read <- struct{}{} }
		d := NewDialer(DialerConfig{Address: "localhost:443", TLS: ca.clientTLS("agent-a"), Events: slow, Log: (&journal{}).logger(), Dial: c.dial, Wait: stopDialling})
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
