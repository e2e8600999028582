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
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// notReadyDelay is how long agents wait for an answer while the principal starts. It is shorter than their timeout. After
// a usual start they then need no second connection, whose handshakes would delay the start.
const notReadyDelay = 10 * time.Second

// serveNotReady refuses agents until ctx ends, with the reason and when to retry. It begins after notReadyDelay. The
// listener can be used again then.
func serveNotReady(ctx context.Context, cfg Config, reason func() error) error {
	inner, ok := cfg.Listener.(interface {
		net.Listener
		SetDeadline(time.Time) error
	})
	if !ok || !backoff.Sleep(ctx, notReadyDelay) {
		return nil
	}
	sessions := transport.NewServer(transport.ServerConfig{
		Events: discardEvents{}, Log: cfg.Log,
		Admit: func(transport.Peer) (time.Duration, error) {
			return 2*time.Second + time.Duration(cfg.Jitter()*float64(3*time.Second)), fmt.Errorf("the hub is not ready: %w", reason())
		},
	})
	config := grpc.ServerConfig{TLS: cfg.TLS, WebSocket: cfg.WebSocket, Authenticate: cfg.Authenticate, Explain: cfg.Explain}
	if cfg.Issue != nil {
		config.Enroll = notReadyEnroller{reason}
	}
	err := grpc.NewServer(config, sessions).Run(ctx, &reusableListener{Listener: inner, interrupt: inner.SetDeadline})
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
func (s notReadyEnroller) Renew(context.Context, enroll.RenewRequest) (enroll.Certificate, error) {
	return enroll.Certificate{}, s.refusal()
}

// Trust implements enroll.Issuer.
func (notReadyEnroller) Trust() (enroll.Trust, <-chan struct{}) { return enroll.Trust{}, nil }
