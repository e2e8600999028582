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

// notReadyServer refuses agents until the hub is ready, with the reason and when to retry.
type notReadyServer struct {
	cfg     Config
	reason  func() error
	stop    chan struct{}
	stopped chan struct{}
}

func newNotReadyServer(cfg Config, reason func() error) *notReadyServer {
	return &notReadyServer{cfg: cfg, reason: reason, stop: make(chan struct{}), stopped: make(chan struct{})}
}

// close stops the server and returns when the listener can be used again.
func (s *notReadyServer) close() {
	close(s.stop)
	<-s.stopped
}

func (s *notReadyServer) run(ctx context.Context) error {
	defer close(s.stopped)
	inner, ok := s.cfg.Listener.(interface {
		net.Listener
		SetDeadline(time.Time) error
	})
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	sessions := transport.NewServer(transport.ServerConfig{
		Events: discardEvents{}, Log: s.cfg.Log,
		Admit: func(transport.Peer) (time.Duration, error) {
			return 2*time.Second + time.Duration(s.cfg.Jitter()*float64(3*time.Second)), fmt.Errorf("the hub is not ready: %w", s.reason())
		},
	})
	config := grpc.ServerConfig{TLS: s.cfg.TLS, WebSocket: s.cfg.WebSocket, Authenticate: s.cfg.Authenticate, Explain: s.cfg.Explain}
	if s.cfg.Issue != nil {
		config.Enroll = notReadyEnroller{s.reason}
	}
	err := grpc.NewServer(config, sessions).Run(ctx, &reusableListener{Listener: inner, interrupt: inner.SetDeadline})
	cancel()
	<-watched
	return errors.Join(err, inner.SetDeadline(time.Time{}))
}

// reusableListener is a listener that can be used again after Close.
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

// Close implements net.Listener. It interrupts Accept.
func (l *reusableListener) Close() error {
	l.closed.Store(true)
	return l.interrupt(time.Unix(1, 0))
}

// discardEvents is for a server that accepts no agent.
type discardEvents struct{}

func (discardEvents) Connected(*transport.Conn)                {}
func (discardEvents) Received(*transport.Conn, engine.Message) {}
func (discardEvents) Disconnected(*transport.Conn, error)      {}

// notReadyEnroller refuses temporarily. Without an enroller, the refusal would be permanent.
type notReadyEnroller struct{ reason func() error }

func (s notReadyEnroller) refusal() error {
	return &enroll.Error{Message: "the hub is not ready: " + s.reason().Error(), Temporary: true, RetryAfter: 5 * time.Second}
}

// Join implements enroll.Issuer.
func (s notReadyEnroller) Join(context.Context, enroll.JoinRequest) (enroll.Joined, error) {
	return enroll.Joined{}, s.refusal()
}

// Renew implements enroll.Issuer.
func (s notReadyEnroller) Renew(context.Context, string, string, []byte, time.Time) (enroll.Certificate, error) {
	return enroll.Certificate{}, s.refusal()
}

// Trust implements enroll.Issuer.
func (notReadyEnroller) Trust() (enroll.Trust, <-chan struct{}) { return enroll.Trust{}, nil }
