package principal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/grpc"
)

// notReadyServer answers agents while the hub is not ready to let them in: it tells them
// why, and when to come back. Without it they would wait for an answer, and
// their people would not know for what.
type notReadyServer struct {
	stop    chan struct{} // closed when it is to end
	stopped chan struct{} // closed when it has
}

func newNotReadyServer() *notReadyServer {
	return &notReadyServer{stop: make(chan struct{}), stopped: make(chan struct{})}
}

// close ends it, and returns when the listener is free.
func (d *notReadyServer) close() {
	close(d.stop)
	<-d.stopped
}

// serveNotReady turns agents away until the door is ended.
func (p *principal) serveNotReady(ctx context.Context) error {
	defer close(p.notReady.stopped)
	inner, ok := p.cfg.Listener.(interface {
		net.Listener
		SetDeadline(time.Time) error
	})
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		select {
		case <-p.notReady.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	lent := &reusableListener{Listener: inner, interrupt: inner.SetDeadline}
	sessions := transport.NewServer(transport.ServerConfig{
		Events: discardEvents{}, Log: p.log,
		Admit: func(transport.Peer) (time.Duration, error) {
			return 2*time.Second + time.Duration(p.cfg.Jitter()*float64(3*time.Second)), fmt.Errorf("the hub is not ready: %w", p.notReadyReason())
		},
	})
	err := grpc.NewServer(grpc.ServerConfig{
		TLS: p.cfg.TLS, WebSocket: p.cfg.WebSocket, Authenticate: p.cfg.Authenticate, Enroll: p.notReadyEnroller(), Explain: p.cfg.Explain,
	}, sessions).Run(ctx, lent)
	cancel()
	<-stop
	return errors.Join(err, inner.SetDeadline(time.Time{}))
}

// notReadyReason tells what the hub waits for before it lets agents in.
func (p *principal) notReadyReason() error {
	if !p.assembled.Load() {
		return errors.New("it waits for its API server")
	}
	for _, test := range []func() error{p.objectsReadable, p.registry.readable, p.certificatesReady} {
		if err := test(); err != nil {
			return err
		}
	}
	return errors.New("it is about to be")
}

// reusableListener is a listener that its user may close, and that is of use
// afterwards nevertheless.
type reusableListener struct {
	net.Listener
	interrupt func(time.Time) error
	closed    atomic.Bool
}

// Accept implements net.Listener.
func (l *reusableListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && l.closed.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}

// Close implements net.Listener: whoever waits in Accept does so no longer.
func (l *reusableListener) Close() error {
	l.closed.Store(true)
	return l.interrupt(time.Unix(1, 0))
}

// discardEvents is for a server that lets nobody in.
type discardEvents struct{}

func (discardEvents) Connected(*transport.Conn)                {}
func (discardEvents) Received(*transport.Conn, engine.Message) {}
func (discardEvents) Disconnected(*transport.Conn, error)      {}

// notReadyEnroller is for a server that issues no certificates yet: without it, who
// wants to join would be told that nobody ever will.
type notReadyEnroller struct{ reason func() error }

func (p *principal) notReadyEnroller() enroll.Issuer {
	if p.cfg.Issue == nil {
		return nil
	}
	return notReadyEnroller{p.notReadyReason}
}

func (s notReadyEnroller) refusal() error {
	return &enroll.Error{Message: "the hub is not ready: " + s.reason().Error(), Temporary: true, RetryAfter: 5 * time.Second}
}

// Join implements link.Enroller.
func (s notReadyEnroller) Join(context.Context, enroll.JoinRequest) (enroll.Joined, error) {
	return enroll.Joined{}, s.refusal()
}

// Renew implements link.Enroller.
func (s notReadyEnroller) Renew(context.Context, string, string, []byte, time.Time) (enroll.Certificate, error) {
	return enroll.Certificate{}, s.refusal()
}

// Trust implements link.Enroller.
func (notReadyEnroller) Trust() (enroll.Trust, <-chan struct{}) { return enroll.Trust{}, nil }
