package transport

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits bound what peers, known or not, can make a Server hold. Zero means the
// default.
type Limits struct {
	Queue            int           // bytes that wait for one agent: 8 MiB
	Conns            int           // TCP connections: 20,000, or what open files there are for
	ConnsPerPeer     int           // TCP connections with one certificate: 8
	Handshakes       int           // at the same time: 512
	HandshakeTimeout time.Duration // for TLS and the start of HTTP/2: 10 s
	Streams          uint32        // at the same time on one connection: room for the tunnels, and 64
}

func (l Limits) withDefaults() Limits {
	l.Queue = or(l.Queue, defaultQueue)
	if files, known := openFiles(); l.Conns == 0 && known {
		l.Conns = connsFor(files)
	}
	l.Conns = or(l.Conns, manyConns)
	l.ConnsPerPeer = or(l.ConnsPerPeer, 8)
	l.Handshakes = or(l.Handshakes, 512)
	l.HandshakeTimeout = or(l.HandshakeTimeout, 10*time.Second)
	return l
}

const defaultQueue = 8 << 20

// manyConns is how many connections there may be, with files enough.
const manyConns = 20_000

// connsFor is how many there may be with so many open files. Some are left for all
// else: a principal that could not answer probes any more would be killed, and one
// that cannot reach its API server is of no use to those who are connected.
func connsFor(files int) int {
	return max(1, min(manyConns, files-max(64, files/8)))
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// listener accepts connections within the limits. What is too much is closed at
// once: a peer that waits would only come on top of those that follow.
type listener struct {
	net.Listener
	limits   Limits
	timeout  time.Duration // TCP user timeout
	counters *Counters
	quiet    *dedupLogger
	closed   chan struct{} // no more is accepted
	close    sync.Once

	mu          sync.Mutex
	open        map[*socket]struct{}
	handshaking list.List      // of *socket, the oldest first
	perPeer     map[string]int // connections by certificate
	stopping    bool
}

// handshakeEvictAge is the age at which a handshake has to make way when there are too
// many. An honest one takes milliseconds; those of peers that say nothing are
// the oldest. In an honest rush all are younger, and whoever comes last is told
// to come again.
const handshakeEvictAge = 2 * time.Second

func newListener(inner net.Listener, limits Limits, userTimeout time.Duration, counters *Counters, quiet *dedupLogger) *listener {
	return &listener{
		Listener: inner, limits: limits, timeout: userTimeout, counters: counters, quiet: quiet, closed: make(chan struct{}),
		open: map[*socket]struct{}{}, perPeer: map[string]int{},
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if outOfFiles(err) && l.waitForFiles(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		setOptions(conn, l.timeout)
		s := &socket{Conn: conn, listener: l, total: &l.counters.Traffic, since: time.Now()}
		if reason := l.admit(s); reason != "" {
			l.counters.refuse(reason)
			_ = conn.Close()
			if reason == refusedFull {
				l.quiet.with("", fmt.Errorf("%d agents and others are connected, and no more may be: raise the limit of open files (ulimit -n) if it is below %d, or run another principal",
					l.limits.Conns, manyConns)).Warn("connections refused")
			}
			continue
		}
		return s, nil
	}
}

// outOfFiles tells that a connection is there, and cannot be taken for want of a
// file to hold it. It stays there, and so does the want.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}

// acceptRetryDelay is how long nothing is accepted when there is nothing to hold it with.
// Those who are connected notice nothing.
const acceptRetryDelay = 250 * time.Millisecond

// waitForFiles waits for files to be closed; false: the end has come.
func (l *listener) waitForFiles(err error) bool {
	l.counters.refuse(refusedFiles)
	l.quiet.with("", fmt.Errorf("%w: raise the limit of open files (ulimit -n), or run another principal", err)).Warn("cannot accept connections")
	timer := time.NewTimer(acceptRetryDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

func (l *listener) admit(s *socket) (reason string) {
	var old *socket
	defer func() {
		if old != nil { // outside the lock, which Close takes
			l.counters.refuse(refusedHandshakes)
			_ = old.Close()
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.stopping:
		return refusedShutdown
	case len(l.open) >= l.limits.Conns:
		return refusedFull
	case l.handshaking.Len() >= l.limits.Handshakes:
		oldest := l.handshaking.Front().Value.(*socket)
		if s.since.Sub(oldest.since) < handshakeEvictAge {
			return refusedHandshakes
		}
		old = oldest
		l.settleLocked(oldest)
	}
	l.open[s] = struct{}{}
	s.shake = l.handshaking.PushBack(s)
	l.counters.Sockets.Add(1)
	return ""
}

// settle notes that a handshake is over.
func (l *listener) settle(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settleLocked(s)
}

func (l *listener) settleLocked(s *socket) {
	if s.shake != nil {
		l.handshaking.Remove(s.shake)
		s.shake = nil
	}
}

// claim counts a connection to a certificate, unless it has too many.
func (l *listener) claim(s *socket, fingerprint string, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[s]; !open || l.perPeer[fingerprint] >= most {
		return false
	}
	l.perPeer[fingerprint]++
	s.peer = fingerprint
	return true
}

func (l *listener) forget(s *socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.open[s]; !open {
		return
	}
	delete(l.open, s)
	l.settleLocked(s)
	l.counters.Sockets.Add(-1)
	if s.peer != "" {
		if l.perPeer[s.peer]--; l.perPeer[s.peer] == 0 {
			delete(l.perPeer, s.peer)
		}
	}
}

// stop lets nothing new in and ends what is still shaking hands, so that nobody
// can hold up a shutdown by being slow.
func (l *listener) stop() {
	_ = l.Close()
	l.mu.Lock()
	l.stopping = true
	var shaking []*socket
	for e := l.handshaking.Front(); e != nil; e = e.Next() {
		shaking = append(shaking, e.Value.(*socket))
	}
	l.mu.Unlock()
	for _, s := range shaking {
		_ = s.Close()
	}
}

// closeAll ends every connection.
func (l *listener) closeAll() {
	l.mu.Lock()
	open := make([]*socket, 0, len(l.open))
	for s := range l.open {
		open = append(open, s)
	}
	l.mu.Unlock()
	for _, s := range open {
		_ = s.Close()
	}
}

// socket is a TCP connection that counts its bytes.
type socket struct {
	net.Conn
	listener        *listener // nil on the dialling side
	total           *Traffic
	own             atomic.Pointer[Traffic] // of the session on it
	since           time.Time
	handshakeDoneAt atomic.Int64 // when the handshake was over, in nanoseconds
	synced          atomic.Bool  // a Sync stream was opened on it
	trusting        atomic.Bool  // a Trust stream is open on it
	tunnels         atomic.Pointer[tunnelPool]
	shake           *list.Element // guarded by listener.mu, like peer
	peer            string
	gone            sync.Once
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.total.WireIn.Add(uint64(n))
	if own := s.own.Load(); own != nil {
		own.WireIn.Add(uint64(n))
	}
	return n, err
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	s.total.WireOut.Add(uint64(n))
	if own := s.own.Load(); own != nil {
		own.WireOut.Add(uint64(n))
	}
	return n, err
}

// Close implements net.Conn.
func (s *socket) Close() error {
	err := net.ErrClosed
	s.gone.Do(func() {
		if s.listener != nil {
			s.listener.forget(s)
		}
		err = s.Conn.Close()
	})
	return err
}
