package netem

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection over a bad link. Its two carriers end with it.
type conn struct {
	net.Conn
	in, out   *way
	cut       *time.Timer
	closed    chan struct{}
	closeOnce sync.Once
}

// carryOut takes what was written to the other end when its time has come.
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

// carryIn puts what comes on its way.
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

// Read reads what has arrived by now.
func (c *conn) Read(p []byte) (int, error) {
	got, err := c.in.take(c.closed, len(p))
	return copy(p, got), err
}

// Write puts something on its way. It waits only when much is under way already.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.out.put(append([]byte(nil), p...), c.closed); err != nil {
		return 0, err
	}
	return len(p), nil
}

// SetDeadline is for both directions.
func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(t)
	return nil
}

// SetReadDeadline ends waiting Reads.
func (c *conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline does nothing: Writes hardly wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// Close ends the connection; what is on its way is lost.
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

// way is one direction: pieces in the order in which they were sent, none of which arrives before its predecessor.
type way struct {
	weather  Profile
	counters *Counters

	mu       sync.Mutex
	random   *rand.Rand
	pieces   []piece
	bytes    int
	last     time.Time // when the last piece arrives
	err      error     // after the last piece
	deadline time.Time
	changed  chan struct{}
}

type piece struct {
	data []byte
	at   time.Time // it arrives
}

// roomOnTheWay is what a socket's buffers hold.
const roomOnTheWay = 1 << 20

func newWay(w Profile, random *rand.Rand, counters *Counters) *way {
	return &way{weather: w, random: random, counters: counters, changed: make(chan struct{})}
}

func (w *way) tell() {
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *way) put(p []byte, closed <-chan struct{}) error {
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

// tryPut puts a piece on the way. If there is no room, it returns what to wait for.
func (w *way) tryPut(p []byte) (full <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return nil, w.err
	}
	if w.bytes >= roomOnTheWay {
		return w.changed, nil
	}
	lag := w.weather.lag(len(p), w.random.Float64)
	if lag > 0 {
		w.counters.Late.Add(1)
	}
	if at := time.Now().Add(w.weather.Latency + lag); at.After(w.last) {
		w.last = at
	}
	w.pieces = append(w.pieces, piece{p, w.last})
	w.bytes += len(p)
	w.tell()
	return nil, nil
}

// take waits for the next piece to arrive and returns it, or as much of it as is wanted; 0: all.
func (w *way) take(closed <-chan struct{}, most int) ([]byte, error) {
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

// tryTake returns what has arrived; if nothing has, how long to wait, or for what.
func (w *way) tryTake(most int) (got []byte, wait time.Duration, changed <-chan struct{}, err error) {
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

func (w *way) setDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	w.tell()
}

// end says that nothing more comes.
func (w *way) end(err error) {
	if err == nil {
		err = io.EOF
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	w.tell()
}
