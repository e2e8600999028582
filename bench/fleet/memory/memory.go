// Package memory implements transport.Session within one process, without a network. It shows that package transport
// does not depend on gRPC.
package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Connector opens sessions of one agent with a Server in the same process.
type Connector struct {
	server *transport.Server
	peer   transport.Peer
}

// NewConnector returns a Connector. The hub accepts its sessions as those of the peer.
func NewConnector(server *transport.Server, peer transport.Peer) *Connector {
	return &Connector{server, peer}
}

func (c *Connector) Address() string { return "memory" }

func (c *Connector) Connect(_ context.Context, _ *transport.Counters, _ *trace.Steps) (transport.Session, error) {
	toHub, toAgent := newQueue[[]byte](), newQueue[[]byte]()
	shared := &sharedState{}
	shared.ctx, shared.abort = context.WithCancelCause(context.Background())
	hub := &session{sharedState: shared, in: toHub, out: toAgent}
	conn, err := c.server.Accept(c.peer, hub, nil)
	if err != nil {
		return nil, err
	}
	shared.running.Go(func() {
		c.server.Serve(conn)
		toAgent.close(nil)
	})
	return &session{sharedState: shared, in: toAgent, out: toHub, agent: true,
		serveTunnel: func(ctx context.Context, s tunnel.Stream) error { return c.server.ServeTunnel(ctx, conn, s) }}, nil
}

// sharedState is what both ends of a session share.
type sharedState struct {
	ctx     context.Context
	abort   context.CancelCauseFunc
	running sync.WaitGroup // the hub's goroutines
}

// session is one end of a session.
type session struct {
	*sharedState
	in, out     *queue[[]byte]
	agent       bool
	serveTunnel func(context.Context, tunnel.Stream) error
	traffic     transport.Traffic
}

var errAborted = errors.New("the session was aborted")

func (s *session) Send(event []byte) error {
	s.traffic.WireOut.Add(uint64(len(event)))
	return s.out.send(s.ctx, event)
}

func (s *session) Receive(read func([]byte)) error {
	event, err := s.in.receive(s.ctx)
	if err != nil {
		return err
	}
	s.traffic.WireIn.Add(uint64(len(event)))
	read(event)
	return nil
}

func (s *session) CloseSend() {
	if s.agent {
		s.out.close(nil)
	}
}

func (s *session) Abort() { s.abort(errAborted) }

func (s *session) Close() {
	s.Abort()
	s.running.Wait()
}

func (s *session) Context() context.Context    { return s.ctx }
func (s *session) RemoteAddr() string          { return "memory" }
func (s *session) Traffic() *transport.Traffic { return &s.traffic }

func (s *session) OpenTunnel(ctx context.Context) (tunnel.Stream, error) {
	if !s.agent {
		return nil, errors.ErrUnsupported
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	toHub, toAgent := newQueue[tunnel.Frame](), newQueue[tunnel.Frame]()
	s.running.Go(func() {
		toAgent.close(s.serveTunnel(ctx, &stream{ctx, toHub, toAgent}))
		stop()
		toAgent.wait(ctx) // the agent may still read
		cancel()
	})
	return &stream{ctx, toAgent, toHub}, nil
}

// stream is one end of a tunnel.
type stream struct {
	ctx     context.Context
	in, out *queue[tunnel.Frame]
}

// buffer is data of a tunnel.
type buffer struct{ *bytes.Reader }

func (buffer) Free()        {}
func (buffer) Close() error { return nil }

func (b buffer) Remaining() int { return b.Len() }

func (s *stream) NewBuffer(data []byte) tunnel.Buffer {
	return buffer{bytes.NewReader(bytes.Clone(data))}
}

func (s *stream) SendData(b tunnel.Buffer) error {
	return s.Send(tunnel.Frame{Data: b.(buffer)}) //nolint:forcetypeassert // made by NewBuffer
}

func (s *stream) Send(f tunnel.Frame) error      { return s.out.send(s.ctx, f) }
func (s *stream) Receive() (tunnel.Frame, error) { return s.in.receive(s.ctx) }
func (s *stream) CloseSend()                     { s.out.close(nil) }

// queueSize is the number of items that a peer may leave unread, as the window of a stream.
const queueSize = 32

// queue is one direction of a session or tunnel.
type queue[T any] struct {
	items   chan T
	closed  chan struct{}
	drained chan struct{} // closed when the receiver has seen the end
	once    sync.Once
	seen    sync.Once
	err     error // why it was closed; nil: in order
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{items: make(chan T, queueSize), closed: make(chan struct{}), drained: make(chan struct{})}
}

func (q *queue[T]) close(err error) {
	q.once.Do(func() {
		q.err = err
		close(q.closed)
	})
}

// wait waits until the receiver has seen the end.
func (q *queue[T]) wait(ctx context.Context) {
	select {
	case <-q.drained:
	case <-ctx.Done():
	}
}

func (q *queue[T]) send(ctx context.Context, item T) error {
	select {
	case <-q.closed:
		return io.EOF
	case <-ctx.Done():
		return io.EOF
	default:
	}
	select {
	case q.items <- item:
		return nil
	case <-q.closed:
	case <-ctx.Done():
	}
	return io.EOF
}

// receive returns all items before it returns the reason of the end.
func (q *queue[T]) receive(ctx context.Context) (item T, err error) {
	select {
	case item = <-q.items:
		return item, nil
	default:
	}
	select {
	case item = <-q.items:
		return item, nil
	case <-q.closed:
		err = q.err
		if err == nil {
			err = io.EOF
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	select { // sent before the end
	case item = <-q.items:
		return item, nil
	default:
		q.seen.Do(func() { close(q.drained) })
		return item, err
	}
}
