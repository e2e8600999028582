package faultproxy

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

type direction int

const (
	up   direction = iota // client to target
	down                  // target to client
)

const (
	chunkSize  = 16 << 10
	queuedMost = 64 // chunks in transit per direction, as in the network
)

// conn is one connection through a link.
//
// Each direction has a reader and a writer with a queue between them, so that a delay does not reduce the throughput.
type conn struct {
	link   *Link
	client *net.TCPConn

	mu     sync.Mutex
	server *net.TCPConn // nil until dialed
	ended  bool

	frozen atomic.Bool
	dead   chan struct{} // closed by reset
}

// chunk is a piece of data in transit. The last chunk of a direction has the end of the sender: io.EOF or the error.
type chunk struct {
	data []byte
	due  time.Time
	err  error
}

func newConn(l *Link, client *net.TCPConn) *conn {
	return &conn{link: l, client: client, dead: make(chan struct{})}
}

// run forwards until both directions have ended or the connection is reset.
func (c *conn) run() {
	defer c.reset() // no effect after an orderly end on both sides
	if !c.pass() {
		return
	}
	server, err := c.dial()
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	for _, way := range []struct {
		dir      direction
		from, to *net.TCPConn
		counter  *atomic.Int64
	}{{up, c.client, server, &c.link.up}, {down, server, c.client, &c.link.down}} {
		queue := make(chan chunk, queuedMost)
		wg.Go(func() { c.read(way.from, queue) })
		wg.Go(func() { c.write(way.dir, way.to, queue, way.counter) })
	}
	wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		close(c.dead)
		_ = c.client.Close()
		_ = server.Close()
	}
}

func (c *conn) dial() (*net.TCPConn, error) {
	c.link.mu.Lock()
	target := c.link.target
	c.link.mu.Unlock()
	var dialer net.Dialer
	dialled, err := dialer.DialContext(c.link.ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	server, ok := dialled.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("not a TCP connection"), dialled.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		abort(server)
		return nil, net.ErrClosed
	}
	c.server = server
	return server, nil
}

// reset ends the connection with a TCP reset on both sides.
func (c *conn) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	close(c.dead)
	abort(c.client)
	if c.server != nil {
		abort(c.server)
	}
}

// freeze stops all forwarding. Only reset ends the connection then.
func (c *conn) freeze() { c.frozen.Store(true) }

func (c *conn) read(from *net.TCPConn, queue chan<- chunk) {
	defer close(queue)
	var last time.Time
	for {
		buf := make([]byte, chunkSize)
		n, err := from.Read(buf)
		due := time.Now().Add(c.link.latency())
		if due.Before(last) {
			due = last // keep the order of bytes
		}
		last = due
		select {
		case queue <- chunk{data: buf[:n], due: due, err: err}:
		case <-c.dead:
			return
		}
		if err != nil {
			return
		}
	}
}

func (c *conn) write(dir direction, to *net.TCPConn, queue <-chan chunk, counter *atomic.Int64) {
	for piece := range queue {
		if !c.wait(piece.due) || !c.send(dir, to, piece.data, counter) {
			return
		}
		if piece.err == nil {
			continue
		}
		if !c.pass() {
			return
		}
		if !errors.Is(piece.err, io.EOF) || to.CloseWrite() != nil {
			c.reset()
		}
		return
	}
}

// send writes data with the delay and rate of the link.
func (c *conn) send(dir direction, to *net.TCPConn, data []byte, counter *atomic.Int64) bool {
	for len(data) > 0 {
		n := c.link.portion(len(data))
		if !c.link.pace(c, dir, n) || !c.pass() {
			return false
		}
		written, err := to.Write(data[:n])
		counter.Add(int64(written))
		if err != nil {
			c.reset()
			return false
		}
		data = data[n:]
	}
	return true
}

// wait waits until t. It returns false if the connection ends before.
func (c *conn) wait(t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.dead:
		return false
	}
}

// pass waits until forwarding is possible: the link is not cut and the connection is not frozen. It returns false if
// the connection ends before.
func (c *conn) pass() bool {
	for {
		c.link.mu.Lock()
		cut, changed := c.link.cut != 0, c.link.changed
		c.link.mu.Unlock()
		if c.frozen.Load() {
			<-c.dead
			return false
		}
		if !cut {
			return true
		}
		select {
		case <-changed:
		case <-c.dead:
			return false
		}
	}
}

// latency returns the delay of the next chunk.
func (l *Link) latency() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.delay
	if l.jitter > 0 {
		d += rand.N(2*l.jitter) - l.jitter
	}
	return max(d, 0)
}

// portion returns how many of n bytes to send at once. With a limit it is about a tenth of a second, so that
// connections share the link.
func (l *Link) portion(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate <= 0 {
		return n
	}
	return int(min(int64(n), max(l.rate/10, 1)))
}

// pace reserves n bytes of the rate limit and waits for their time, or until the limit changes.
func (l *Link) pace(c *conn, dir direction, n int) bool {
	l.mu.Lock()
	rate, changed := l.rate, l.changed
	if rate <= 0 {
		l.mu.Unlock()
		return true
	}
	start := time.Now()
	if l.free[dir].After(start) {
		start = l.free[dir]
	}
	done := start.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	l.free[dir] = done
	l.mu.Unlock()

	timer := time.NewTimer(time.Until(done))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-c.dead:
			return false
		case <-changed:
			l.mu.Lock()
			same := l.rate == rate
			changed = l.changed
			l.mu.Unlock()
			if !same {
				return true
			}
		}
	}
}
