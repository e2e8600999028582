package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/mem"
)

// Tunnel is one end of a byte stream between hub and agent: a net.Conn on a
// gRPC stream of the agent's connection. Closing it delivers what was written
// before; the other end then reads to the end. HTTP/2's window of the stream
// holds back who writes to an end that does not read, and nobody else.
//
// Two goroutines work for it, one for each direction, since gRPC has no
// deadlines: one receives and offers the frames to Read, the other takes those
// of Write and sends them. Between them and the caller nothing is queued.
type Tunnel struct {
	agent, target string
	local, remote tunnelAddr
	stream        stream
	halfClose     func() // ends the stream in order from this side; nil: the hub's handler does
	abort         func() // ends the stream at once; nil: the hub's handler does
	counters      *TunnelCounters

	in      chan *mem.Reader // what has come; closed when nothing more does
	out     chan outFrame    // what shall go
	taken   chan struct{}    // on the hub: somebody uses it, and next is set
	started chan struct{}    // on an agent: the hub has put it to use
	ended   chan struct{}    // CloseWrite was called
	closed  chan struct{}    // Close was called
	over    chan struct{}    // the other end has closed it, or it broke
	broken  chan struct{}    // it broke: what has come is lost
	flushed chan struct{}    // nothing more will be sent

	startOnce, endOnce, closeOnce sync.Once

	readBy, writeBy deadline
	lastActivity    atomic.Int64 // when bytes went, in either direction

	reading sync.Mutex
	rest    *mem.Reader // of the last frame

	writing sync.Mutex // a Write is not torn apart by another

	next            string             // on the hub: token of the spare that shall take its place
	openReplacement func(token string) // on an agent: opens that one

	reserved bool // counts as in use; guarded by the hub's book

	mu          sync.Mutex
	cause       error  // why it is over
	lost        bool   // broken is closed
	closeReason string // told to the other end before the stream ends
}

func newTunnel(s stream, counters *TunnelCounters) *Tunnel {
	t := &Tunnel{
		stream: s, counters: counters,
		in: make(chan *mem.Reader), out: make(chan outFrame),
		started: make(chan struct{}), ended: make(chan struct{}), closed: make(chan struct{}),
		over: make(chan struct{}), broken: make(chan struct{}), flushed: make(chan struct{}),
	}
	t.markActive()
	return t
}

// Read implements net.Conn.
func (t *Tunnel) Read(b []byte) (int, error) {
	select { // what has come is not read after the end
	case <-t.closed:
		return 0, t.failed("read", net.ErrClosed)
	case <-t.readBy.passed():
		return 0, t.failed("read", os.ErrDeadlineExceeded)
	default:
	}
	if len(b) == 0 {
		return 0, nil
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.rest == nil {
		select {
		case data, more := <-t.in:
			if !more {
				return 0, t.atEnd()
			}
			t.rest = data
		case <-t.broken:
			return 0, t.atEnd()
		case <-t.closed:
			return 0, t.failed("read", net.ErrClosed)
		case <-t.readBy.passed():
			return 0, t.failed("read", os.ErrDeadlineExceeded)
		}
	}
	n, _ := t.rest.Read(b) // there is something
	if t.rest.Remaining() == 0 {
		t.rest = nil
	}
	return n, nil
}

// atEnd is what a reader gets after everything that came.
func (t *Tunnel) atEnd() error {
	select {
	case <-t.broken:
		return t.failed("read", t.Cause())
	default:
		return io.EOF
	}
}

// Write implements net.Conn. It returns when the last piece is on its way to
// gRPC; up to 64 KiB wait there for the peer's window.
func (t *Tunnel) Write(b []byte) (n int, err error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	for first := true; first || len(b) > 0; first = false {
		if err := t.mayWrite(); err != nil {
			return n, err
		}
		if len(b) == 0 {
			return n, nil
		}
		piece := b[:min(len(b), chunk)]
		if err := t.offer(dataFrame(piece)); err != nil {
			return n, err
		}
		t.markActive()
		t.counters.BytesOut.Add(uint64(len(piece)))
		n += len(piece)
		b = b[len(piece):]
	}
	return n, nil
}

// mayWrite tells what is already known: a select would choose at random.
func (t *Tunnel) mayWrite() error {
	select {
	case <-t.closed:
		return t.failed("write", net.ErrClosed)
	case <-t.ended:
		return t.failed("write", net.ErrClosed)
	case <-t.over:
		return t.failed("write", t.pipe())
	case <-t.writeBy.passed():
		return t.failed("write", os.ErrDeadlineExceeded)
	default:
		return nil
	}
}

func (t *Tunnel) offer(f outFrame) error {
	select {
	case t.out <- f:
		return nil
	case <-t.closed:
	case <-t.ended:
	case <-t.over:
	case <-t.writeBy.passed():
		f.free()
		return t.failed("write", os.ErrDeadlineExceeded)
	}
	f.free()
	return t.mayWrite()
}

// pipe is what a writer gets when nobody reads any more.
func (t *Tunnel) pipe() error {
	if cause := t.Cause(); !errors.Is(cause, io.EOF) {
		return cause
	}
	return fmt.Errorf("the other end has closed it: %w", syscall.EPIPE)
}

// CloseWrite tells the other end that no more data follows, while it may go on
// sending.
func (t *Tunnel) CloseWrite() error {
	select {
	case <-t.closed:
		return t.failed("close", net.ErrClosed)
	default:
	}
	t.endOnce.Do(func() { close(t.ended) })
	return nil
}

// Close implements net.Conn. It does not wait.
func (t *Tunnel) Close() error {
	t.closeOnce.Do(func() { close(t.closed) })
	return nil
}

// Abort is Close with a reason, which the other end gets instead of an end of
// file. Only agents can give one.
func (t *Tunnel) Abort(reason string) {
	t.mu.Lock()
	t.closeReason = reason
	t.mu.Unlock()
	_ = t.Close()
}

// Done is closed when the other end has closed the tunnel, or when it broke. What
// has come can still be read in the first case.
func (t *Tunnel) Done() <-chan struct{} { return t.over }

// Cause returns why the tunnel is over: io.EOF if the other end has closed it;
// nil before that.
func (t *Tunnel) Cause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// finish notes that the other end has closed the tunnel.
func (t *Tunnel) finish(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.cause = cause
		close(t.over)
	}
}

// fail breaks the tunnel.
func (t *Tunnel) fail(cause error) {
	t.finish(cause)
	t.mu.Lock()
	first := !t.lost
	if first {
		t.lost, t.cause = true, cause
		close(t.broken)
	}
	t.mu.Unlock()
	if first && t.abort != nil {
		t.abort()
	}
}

// LocalAddr implements net.Conn.
func (t *Tunnel) LocalAddr() net.Addr { return t.local }

// RemoteAddr implements net.Conn.
func (t *Tunnel) RemoteAddr() net.Addr { return t.remote }

// SetDeadline implements net.Conn.
func (t *Tunnel) SetDeadline(at time.Time) error {
	t.readBy.set(at)
	t.writeBy.set(at)
	return nil
}

// SetReadDeadline implements net.Conn.
func (t *Tunnel) SetReadDeadline(at time.Time) error {
	t.readBy.set(at)
	return nil
}

// SetWriteDeadline implements net.Conn. A Write that fails by it may have been
// sent in part, as always.
func (t *Tunnel) SetWriteDeadline(at time.Time) error {
	t.writeBy.set(at)
	return nil
}

func (t *Tunnel) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: t.local.Network(), Source: t.local, Addr: t.remote, Err: err}
}

func (t *Tunnel) markActive() { t.lastActivity.Store(time.Now().UnixNano()) }

// idleFor is for how long no byte went in either direction.
func (t *Tunnel) idleFor() time.Duration {
	return time.Duration(time.Now().UnixNano() - t.lastActivity.Load())
}

// tunnelAddr is an end of a tunnel, for people.
type tunnelAddr string

// Network implements net.Addr.
func (tunnelAddr) Network() string { return "tunnel" }

func (a tunnelAddr) String() string { return string(a) }
