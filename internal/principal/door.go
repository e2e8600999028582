package principal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/link"
)

// door answers agents while the hub is not ready to let them in: it tells them
// why, and when to come back. Without it they would wait for an answer, and
// their people would not know for what.
type door struct {
	enough chan struct{} // closed when it is to end
	shut   chan struct{} // closed when it has
}

func newDoor() *door { return &door{enough: make(chan struct{}), shut: make(chan struct{})} }

// end ends it, and returns when the listener is free.
func (d *door) end() {
	close(d.enough)
	<-d.shut
}

// keepDoor turns agents away until the door is ended.
func (p *principal) keepDoor(ctx context.Context) error {
	defer close(p.door.shut)
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
		case <-p.door.enough:
			cancel()
		case <-ctx.Done():
		}
	}()
	lent := &lentListener{Listener: inner, interrupt: inner.SetDeadline}
	err := link.NewServer(link.ServerConfig{
		TLS: p.cfg.TLS, WebSocket: p.cfg.WebSocket, Authenticate: p.cfg.Authenticate, Events: nobody{}, Enroll: p.shutOffice(), Log: p.log, Explain: p.cfg.Explain,
		Admit: func(link.Peer) (time.Duration, error) {
			return 2*time.Second + time.Duration(p.cfg.Jitter()*float64(3*time.Second)), fmt.Errorf("the hub is not ready: %w", p.unready())
		},
	}).Run(ctx, lent)
	cancel()
	<-stop
	return errors.Join(err, inner.SetDeadline(time.Time{}))
}

// unready tells what the hub waits for before it lets agents in.
func (p *principal) unready() error {
	if !p.begun.Load() {
		return errors.New("it waits for its API server")
	}
	for _, test := range []func() error{p.objectsReadable, p.registry.readable, p.certified} {
		if err := test(); err != nil {
			return err
		}
	}
	return errors.New("it is about to be")
}

// lentListener is a listener that its user may close, and that is of use
// afterwards nevertheless.
type lentListener struct {
	net.Listener
	interrupt func(time.Time) error
	closed    atomic.Bool
}

// Accept implements net.Listener.
func (l *lentListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && l.closed.Load() {
		return nil, net.ErrClosed
	}
	return c, err
}

// Close implements net.Listener: whoever waits in Accept does so no longer.
func (l *lentListener) Close() error {
	l.closed.Store(true)
	return l.interrupt(time.Unix(1, 0))
}

// nobody is for a server that lets nobody in.
type nobody struct{}

func (nobody) Connected(*link.Conn)                {}
func (nobody) Received(*link.Conn, engine.Message) {}
func (nobody) Disconnected(*link.Conn, error)      {}

// shutOffice is for a server that issues no certificates yet: without it, who
// wants to join would be told that nobody ever will.
type shutOffice struct{ unready func() error }

func (p *principal) shutOffice() link.Enroller {
	if p.cfg.Issue == nil {
		return nil
	}
	return shutOffice{p.unready}
}

func (s shutOffice) later() error {
	return &link.EnrollError{Message: "the hub is not ready: " + s.unready().Error(), Temporary: true, RetryAfter: 5 * time.Second}
}

// Join implements link.Enroller.
func (s shutOffice) Join(context.Context, link.JoinRequest) (link.Joined, error) {
	return link.Joined{}, s.later()
}

// Renew implements link.Enroller.
func (s shutOffice) Renew(context.Context, link.Peer, []byte, time.Time) (link.Certificate, error) {
	return link.Certificate{}, s.later()
}

// Trust implements link.Enroller.
func (shutOffice) Trust() (link.Trust, <-chan struct{}) { return link.Trust{}, nil }
