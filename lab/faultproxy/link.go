package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// CutMode is the behavior of a cut link.
type CutMode int

const (
	// Refuse resets open connections and refuses new ones, as if the service were down.
	Refuse CutMode = iota + 1
	// Blackhole drops everything, as if the network were down. Connections stay open. New connections also open,
	// because the kernel completes the handshake, but are not forwarded. After Restore all of them continue, as TCP
	// does. The proxy still answers TCP keep-alives, so only pings of the protocol above detect the cut.
	Blackhole
)

// Counters are the totals of a link since New.
type Counters struct {
	// Accepted connections, and currently open ones.
	Accepted, Open int64
	// Bytes forwarded from the client to the target (Up) and back (Down).
	Up, Down int64
}

// Link forwards TCP connections from a loopback port to a target.
type Link struct {
	port   *reservation
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept loops and connections

	accepted, up, down atomic.Int64

	mu       sync.Mutex
	target   string
	cut      CutMode // zero if not cut
	listener *net.TCPListener
	conns    map[*conn]struct{}
	delay    time.Duration
	jitter   time.Duration
	rate     int64 // bytes per second in each direction. If zero, no limit
	free     [2]time.Time
	changed  chan struct{} // closed and replaced when a setting changes
	closed   bool
}

// New returns a link to target (host:port). The target can start later.
func New(target string) (*Link, error) { return openLink([4]byte{127, 0, 0, 1}, 0, target) }

// SamePort returns a link to another target with the same port at the address 127.0.0.2, for a client that knows two hosts and
// one port.
func (l *Link) SamePort(target string) (*Link, error) {
	return openLink([4]byte{127, 0, 0, 2}, l.port.addr.Port, target)
}

func openLink(host [4]byte, number int, target string) (*Link, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("link to %q: give host:port: %w", target, err)
	}
	port, err := reservePort(host, number)
	if err != nil {
		return nil, fmt.Errorf("link to %s: %w", target, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Link{
		port: port, ctx: ctx, cancel: cancel, target: target,
		conns: map[*conn]struct{}{}, changed: make(chan struct{}),
	}
	l.mu.Lock()
	err = l.listen()
	l.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Addr returns the address of the listener, host:port. It never changes.
func (l *Link) Addr() string { return l.port.addr.String() }

// Cut interrupts the link until Restore.
func (l *Link) Cut(mode CutMode) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(func() { l.cut = mode })
	if mode != Refuse {
		return l.listen()
	}
	if l.listener != nil {
		_ = l.listener.Close() // ends its accept loop
		l.listener = nil
	}
	l.resetAll()
	return nil
}

// Restore ends a cut. Delay and Throttle stay in effect.
func (l *Link) Restore() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(func() { l.cut = 0 })
	return l.listen()
}

// Delay delays all data by d, plus or minus up to jitter, in each direction. Bytes keep their order. Zero ends it.
func (l *Link) Delay(d, jitter time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(func() { l.delay, l.jitter = d, jitter })
}

// Throttle limits the rate of each direction of the whole link. Zero ends it.
func (l *Link) Throttle(bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(func() { l.rate, l.free = bytesPerSecond, [2]time.Time{} })
}

// Reset ends open connections with a TCP reset on both sides.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resetAll()
}

// HalfOpen permanently drops all data of open connections without closing them, as a firewall does that has lost their
// state. New connections work.
func (l *Link) HalfOpen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.freeze()
	}
}

// SetTarget forwards new connections to another address.
func (l *Link) SetTarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

// Counters returns the current totals.
func (l *Link) Counters() Counters {
	l.mu.Lock()
	open := int64(len(l.conns))
	l.mu.Unlock()
	return Counters{Accepted: l.accepted.Load(), Open: open, Up: l.up.Load(), Down: l.down.Load()}
}

// Close resets all connections, releases the port and waits for all goroutines.
func (l *Link) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		l.wg.Wait()
		return nil
	}
	l.closed = true
	if l.listener != nil {
		_ = l.listener.Close()
	}
	l.resetAll()
	l.mu.Unlock()
	l.cancel()
	l.wg.Wait()
	return l.port.close()
}

// set changes settings and wakes all goroutines that wait because of the old ones. The caller must hold mu.
func (l *Link) set(change func()) {
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// listen opens the port if it is not open. The caller must hold mu.
func (l *Link) listen() error {
	if l.closed || l.listener != nil {
		return nil
	}
	listener, err := l.port.listen()
	if err != nil {
		return fmt.Errorf("link to %s: listen: %w", l.target, err)
	}
	l.listener = listener
	l.wg.Go(func() { l.accept(listener) })
	return nil
}

func (l *Link) accept(listener *net.TCPListener) {
	for {
		client, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, which can be temporary
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-l.ctx.Done():
				return
			}
		}
		l.admit(client)
	}
}

// admit starts a connection, unless the link was cut or closed in the meantime.
func (l *Link) admit(client *net.TCPConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.cut == Refuse {
		abort(client)
		return
	}
	l.accepted.Add(1)
	c := newConn(l, client)
	l.conns[c] = struct{}{}
	l.wg.Go(func() {
		c.run()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	})
}

// resetAll resets all open connections. The caller must hold mu.
func (l *Link) resetAll() {
	for c := range l.conns {
		c.reset()
	}
}

// abort closes a connection with a reset instead of an orderly end.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
