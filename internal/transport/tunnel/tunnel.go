package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Tunnel is one end of a byte stream between hub and agent. Close delivers what was written before; the other end then
// reads to the end. The flow control of the stream stops a writer whose peer does not read, and affects no other tunnel.
//
// Two goroutines work for it, one for each direction, because a Stream has no deadlines. One receives frames and offers
// them to Read, the other one takes the data of Write and sends it. Between them and the caller nothing is queued.
type Tunnel struct {
	agent, target string
	local, remote addr
	stream        Stream
	closeStream   func() // ends the stream in order from this side; nil on the hub, where Pool.Serve returns
	abort         func() // ends the stream at once; nil on the hub
	counters      *Counters

	in      chan Reader   // received data; closed when no more follows
	out     chan Buffer   // data to send
	inUse   chan struct{} // on the hub: closed when the tunnel is used and next is set; nil on an agent
	started chan struct{} // on an agent: closed when the hub uses the tunnel
	ended   chan struct{} // closed by CloseWrite
	closed  chan struct{} // closed by Close
	flushed chan struct{} // closed when nothing more will be sent

	done   context.Context // ends when the other end has closed the tunnel, with io.EOF, or when it broke
	broken context.Context // ends when it broke: received data is lost

	finish, markBroken context.CancelCauseFunc

	startOnce, endOnce, closeOnce sync.Once

	readBy, writeBy *deadline
	lastActivity    atomic.Int64 // of bytes in either direction

	reading sync.Mutex
	rest    Reader // of the last frame

	writing sync.Mutex // held for a whole Write

	next            string             // on the hub: token of the standby tunnel that replaces this one
	openReplacement func(token string) // on an agent: opens that one

	reserved bool // counts as in use; guarded by Pool.mu

	closeReason atomic.Pointer[string] // sent to the other end before the stream ends
}

func newTunnel(s Stream, counters *Counters) *Tunnel {
	t := &Tunnel{
		stream: s, counters: counters, in: make(chan Reader), out: make(chan Buffer),
		started: make(chan struct{}), ended: make(chan struct{}), closed: make(chan struct{}),
		flushed: make(chan struct{}), readBy: newDeadline(), writeBy: newDeadline(),
	}
	t.done, t.finish = context.WithCancelCause(context.Background())
	t.broken, t.markBroken = context.WithCancelCause(context.Background())
	t.markActive()
	return t
}

func (t *Tunnel) Read(b []byte) (int, error) {
	select { // received data is not returned after Close
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
				return 0, t.readEnd()
			}
			t.rest = data
		case <-t.broken.Done():
			return 0, t.readEnd()
		case <-t.closed:
			return 0, t.failed("read", net.ErrClosed)
		case <-t.readBy.passed():
			return 0, t.failed("read", os.ErrDeadlineExceeded)
		}
	}
	n, _ := t.rest.Read(b) // it is not empty
	if t.rest.Remaining() == 0 {
		t.rest = nil
	}
	return n, nil
}

// readEnd returns the error of Read after the last data.
func (t *Tunnel) readEnd() error {
	select {
	case <-t.broken.Done():
		return t.failed("read", t.Cause())
	default:
		return io.EOF
	}
}

// Write implements net.Conn. It returns when the last piece was passed to the goroutine that sends.
func (t *Tunnel) Write(b []byte) (n int, err error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	for first := true; first || len(b) > 0; first = false {
		if err := t.writeError(); err != nil {
			return n, err
		}
		if len(b) == 0 {
			return n, nil
		}
		piece := b[:min(len(b), MaxData)]
		if err := t.pass(t.stream.NewBuffer(piece)); err != nil {
			return n, err
		}
		t.markActive()
		t.counters.BytesOut.Add(uint64(len(piece)))
		n += len(piece)
		b = b[len(piece):]
	}
	return n, nil
}

// writeError returns why Write cannot succeed any longer. It is checked before a select, which chooses at random.
func (t *Tunnel) writeError() error {
	select {
	case <-t.closed:
		return t.failed("write", net.ErrClosed)
	case <-t.ended:
		return t.failed("write", net.ErrClosed)
	case <-t.done.Done():
		return t.failed("write", t.peerClosed())
	case <-t.writeBy.passed():
		return t.failed("write", os.ErrDeadlineExceeded)
	default:
		return nil
	}
}

// pass gives data to the goroutine that sends.
func (t *Tunnel) pass(data Buffer) error {
	select {
	case t.out <- data:
		return nil
	case <-t.closed:
	case <-t.ended:
	case <-t.done.Done():
	case <-t.writeBy.passed():
		data.Free()
		return t.failed("write", os.ErrDeadlineExceeded)
	}
	data.Free()
	return t.writeError()
}

// peerClosed returns the error of Write after the other end has closed the tunnel.
func (t *Tunnel) peerClosed() error {
	if cause := t.Cause(); !errors.Is(cause, io.EOF) {
		return cause
	}
	return fmt.Errorf("the other end has closed it: %w", syscall.EPIPE)
}

// CloseWrite ends the data of this direction. The other direction stays open.
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

// Abort is Close with a reason, which the other end gets instead of an end of file. Only agents can give one.
func (t *Tunnel) Abort(reason string) {
	t.closeReason.Store(&reason)
	_ = t.Close()
}

// Done is closed when the other end has closed the tunnel, or when it broke. In the first case, received data can still
// be read.
func (t *Tunnel) Done() <-chan struct{} { return t.done.Done() }

// Cause returns why Done is closed: io.EOF if the other end has closed the tunnel. It returns nil before that.
func (t *Tunnel) Cause() error {
	if cause := context.Cause(t.broken); cause != nil {
		return cause
	}
	return context.Cause(t.done)
}

// fail breaks the tunnel.
func (t *Tunnel) fail(cause error) {
	t.markBroken(cause) // first: done alone means an end in order
	t.finish(cause)
	if t.abort != nil {
		t.abort()
	}
}

func (t *Tunnel) LocalAddr() net.Addr  { return t.local }
func (t *Tunnel) RemoteAddr() net.Addr { return t.remote }

func (t *Tunnel) SetDeadline(at time.Time) error {
	t.readBy.set(at)
	t.writeBy.set(at)
	return nil
}

func (t *Tunnel) SetReadDeadline(at time.Time) error {
	t.readBy.set(at)
	return nil
}

// SetWriteDeadline implements net.Conn. A Write that fails by it may have been sent in part.
func (t *Tunnel) SetWriteDeadline(at time.Time) error {
	t.writeBy.set(at)
	return nil
}

func (t *Tunnel) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: t.local.Network(), Source: t.local, Addr: t.remote, Err: err}
}

func (t *Tunnel) markActive() { t.lastActivity.Store(time.Now().UnixNano()) }

// IdleFor returns the time since the last byte in either direction.
func (t *Tunnel) IdleFor() time.Duration {
	return time.Duration(time.Now().UnixNano() - t.lastActivity.Load())
}

// addr names an end of a tunnel in errors and logs.
type addr string

func (addr) Network() string { return "tunnel" }

func (a addr) String() string { return string(a) }
