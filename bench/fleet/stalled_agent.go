package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// stalledAgent imitates an agent that is unresponsive or reads slowly. It connects as an agent does and its connection
// answers pings.
type stalledAgent struct {
	*member
	between time.Duration // pause between two messages that it reads and acknowledges. If 0, it reads nothing after Welcome

	welcomed chan struct{}
	cut      chan struct{} // closed when its connection has ended

	mu     sync.Mutex
	since  time.Time // time of Welcome
	ended  time.Time
	reason error
}

// listen connects the stalled agent. It does not reconnect.
func (f *fleet) listen(ctx context.Context, m *member, server string, between time.Duration) (*stalledAgent, error) {
	d := &stalledAgent{member: m, between: between, welcomed: make(chan struct{}), cut: make(chan struct{})}
	ctx, m.cancel = context.WithCancel(ctx)
	m.done = make(chan struct{})
	dialer := transport.NewDialer(transport.DialerConfig{
		Connectors: []transport.Connector{grpc.NewConnector(grpc.ClientConfig{Address: server, TLS: f.tls(m), Dial: m.dial})}, Events: d, Log: slog.New(slog.DiscardHandler),
		Wait: func(context.Context, time.Duration) error { return errors.New("once is enough") }})
	go func() {
		defer close(m.done)
		m.ended = dialer.Run(ctx)
	}()
	select {
	case <-d.welcomed:
		return d, nil
	case <-m.done:
		return nil, errors.New(m.name + " was refused")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Connected implements transport.Events.
func (d *stalledAgent) Connected(c *transport.Conn) {
	_ = c.Send(engine.Hello{
		Epoch: engine.Epoch{Incarnation: uint64(time.Now().UnixMilli()), Attempt: 1}, ClusterUID: d.cluster.UID(), Mode: string(d.mode), Mapping: string(kind.ByNamespace),
		Namespace: argocd, Version: "bench", Protocol: engine.Range{Min: engine.ProtocolMin, Max: engine.ProtocolMax},
		Projection: engine.Range{Min: engine.ProjectionMin, Max: engine.ProjectionMax},
		Store:      engine.Store{UID: d.cluster.UID(), Revision: d.cluster.Revision()}, ClockMillis: time.Now().UnixMilli()})
}

// Received implements transport.Events. While it blocks, nothing is read.
func (d *stalledAgent) Received(c *transport.Conn, m engine.Message) {
	if _, ok := m.(engine.Welcome); ok {
		d.mu.Lock()
		d.since = time.Now()
		d.mu.Unlock()
		close(d.welcomed)
	}
	if d.between == 0 {
		<-c.Done()
		return
	}
	select {
	case <-c.Done():
		return
	case <-time.After(d.between):
	}
	if delta, ok := m.(engine.Delta); ok {
		ack := engine.Ack{Scope: delta.Scope}
		for _, it := range delta.Items {
			ack.Items = append(ack.Items, engine.AckItem{Seq: it.Seq, Key: it.Key, Version: it.Version})
		}
		_ = c.Send(ack)
	}
}

// Disconnected implements transport.Events.
func (d *stalledAgent) Disconnected(_ *transport.Conn, err error) {
	d.mu.Lock()
	d.ended, d.reason = time.Now(), err
	d.mu.Unlock()
	close(d.cut)
}

// connectedFor returns the duration of the connection.
func (d *stalledAgent) connectedFor() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ended.Sub(d.since)
}
