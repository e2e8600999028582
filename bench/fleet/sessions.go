package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/bench/fleet/memory"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// roundTrips is the number of messages that each in-memory session sends and gets answered.
const roundTrips = 100

// sessions measures the sessions of as many agents over the in-memory transport, without network, TLS and API servers.
// It is the share of the session layer in the other figures.
func (b *bench) sessions(ctx context.Context) error {
	log := slog.New(slog.DiscardHandler)
	server := transport.NewServer(transport.ServerConfig{Events: echo{}, Log: log})
	before := heap()
	var agents, running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	began := time.Now()
	failed := make(chan error, b.agents)
	for i := range b.agents {
		name := fmt.Sprintf("w%04d", i)
		agents.Add(1)
		dialer := transport.NewDialer(transport.DialerConfig{Connectors: []transport.Connector{memory.NewConnector(server, transport.Peer{Agent: name})}, Name: name,
			Events: &pinger{done: agents.Done}, Log: log, Failed: func(_ string, err error, _ time.Duration) { failed <- err },
			Wait: func(context.Context, time.Duration) error { return errors.New("one session is enough") }})
		running.Go(func() { _ = dialer.Run(ctx) })
	}
	answered := make(chan struct{})
	go func() {
		agents.Wait()
		close(answered)
	}()
	var err error
	select {
	case <-answered:
		took := time.Since(began)
		b.Add("in-memory sessions: time for each message and its answer", float64(took.Microseconds())/float64(b.agents*roundTrips), "µs")
		b.Add("in-memory sessions: memory of both ends", (heap()-before)/1e3/float64(b.agents), "kB")
	case err = <-failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop()
	running.Wait()
	server.Drain()
	server.Wait()
	return err
}

// heap returns the live bytes of this process after a garbage collection.
func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc + stats.StackInuse)
}

// echo is a hub that answers digests.
type echo struct{}

// Connected implements transport.Events.
func (echo) Connected(*transport.Conn) {}

// Received implements transport.Events.
func (echo) Received(c *transport.Conn, m engine.Message) {
	if roots, ok := m.(engine.Roots); ok {
		_ = c.Send(engine.Same{Items: roots.Items})
	}
}

// Disconnected implements transport.Events.
func (echo) Disconnected(*transport.Conn, error) {}

// pinger is an agent that sends digests, each after the answer to the one before.
type pinger struct {
	sent int
	done func()
}

// Connected implements transport.Events.
func (p *pinger) Connected(c *transport.Conn) { p.send(c) }

// Received implements transport.Events.
func (p *pinger) Received(c *transport.Conn, m engine.Message) {
	if _, ok := m.(engine.Same); ok {
		p.send(c)
	}
}

// Disconnected implements transport.Events.
func (p *pinger) Disconnected(*transport.Conn, error) {}

func (p *pinger) send(c *transport.Conn) {
	if p.sent == roundTrips {
		p.done()
		return
	}
	p.sent++
	_ = c.Send(engine.Roots{Items: []engine.Root{{Scope: "application", Count: uint64(p.sent)}}})
}
