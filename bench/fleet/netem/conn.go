package netem

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection over the link. Its two goroutines end with it.
type conn struct {
	net.Conn
	in, out   *direction
	cut       *time.Timer
	closed    chan struct{}
	closeOnce sync.Once
}

// carryOut sends written data to the other end after its delay.
func (c *conn) carryOut() {
	for {
		p, err := c.out.take(c.closed, 0)
		if err == nil {
			_, err = c.Conn.Write(p)
		}
		if err != nil {
			c.out.end(err)
			_ = c.Close()
			return
		}
	}
}

// carryIn delays data from the other end.
func (c *conn) carryIn() {
	for {
		p := make([]byte, 16<<10)
		n, err := c.Conn.Read(p)
		if n > 0 && c.in.put(p[:n], c.closed) != nil {
			return
		}
		if err != nil {
			c.in.end(err)
			return
		}
	}
}

// Read returns data that has arrived.
func (c *conn) Read(p []byte) (int, error) {
	got, err := c.in.take(c.closed, len(p))
	return copy(p, got), err
}

// Write queues data for sending. It blocks only if the buffer is full.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.out.put(append([]byte(nil), p...), c.closed); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetDeadline applies to both directions.
func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}

// SetReadDeadline ends blocked calls of Read.
func (c *conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline has no effect, because Write rarely blocks.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection. Data in transit is lost.
func (c *conn) Close() error {
	err := net.ErrClosed
	c.closeOnce.Do(func() {
		if c.cut != nil {
			c.cut.Stop()
		}
		close(c.closed)
		err = c.Conn.Close()
	})
	return err
}

// direction is one direction: a queue of chunks in order of sending. A chunk never arrives before its predecessor.
type direction struct {
	profile  Profile
	counters *Counters

	mu       sync.Mutex
	random   *rand.Rand
	pieces   []piece
	bytes    int
	last     time.Time // arrival of the last chunk
	err      error     // returned after the last chunk
	deadline time.Time
	changed  chan struct{}
}

type piece struct {
	data []byte
	at   time.Time // arrival time
}

// bufferSize is the size of socket buffers.
const bufferSize = 1 << 20

func newWay(w Profile, random *rand.Rand, counters *Counters) *direction {
	return &direction{profile: w, random: random, counters: counters, changed: make(chan struct{})}
}

func (w *direction) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *direction) put(p []byte, closed <-chan struct{}) error {
	for {
		full, err := w.tryPut(p)
		if full == nil {
			return err
		}
		select {
		case <-full:
		case <-closed:
			return net.ErrClosed
		}
	}
}

// tryPut queues a chunk. If the buffer is full, it returns the channel to wait for.
func (w *direction) tryPut(p []byte) (full <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	if w.bytes >= bufferSize {
		return w.changed, nil
	}
	lag := w.profile.lag(len(p), w.random.Float64)
	if lag > 0 {
		w.counters.Late.Add(1)
	}
	if at := time.Now().Add(w.profile.Latency + lag); at.After(w.last) {
		w.last = at
	}
	w.pieces = append(w.pieces, piece{p, w.last})
	w.bytes += len(p)
	w.tell()
	return nil, nil
}

// take waits for the next chunk and returns it, or a part of at most limit bytes. If 0, all of it.
func (w *direction) take(closed <-chan struct{}, most int) ([]byte, error) {
	for {
		got, wait, changed, err := w.tryTake(most)
		if got != nil || err != nil {
			return got, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-closed:
			timer.Stop()
			return nil, net.ErrClosed
		}
		timer.Stop()
	}
}

// tryTake returns arrived data. If there is none, it returns the time or the channel to wait for.
func (w *direction) tryTake(most int) (got []byte, wait time.Duration, changed <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	wait = time.Hour
	if !w.deadline.IsZero() {
		if wait = w.deadline.Sub(now); wait <= 0 {
			return nil, 0, nil, os.ErrDeadlineExceeded
		}
	}
	switch {
	case len(w.pieces) == 0 && w.err != nil:
		return nil, 0, nil, w.err
	case len(w.pieces) == 0:
		return nil, wait, w.changed, nil
	}
	first := &w.pieces[0]
	if left := first.at.Sub(now); left > 0 {
		return nil, min(wait, left), w.changed, nil
	}
	got = first.data
	if most > 0 && len(got) > most {
		got, first.data = got[:most], got[most:]
	} else {
		first.data = nil
		w.pieces = w.pieces[1:]
	}
	w.bytes -= len(got)
	w.tell()
	return got, 0, nil, nil
}

func (w *direction) setDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	w.tell()
}

// end marks the end of the data.
func (w *direction) end(err error) {
	if err == nil {
		err = io.EOF
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.tell()
}
