package redis

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// session is one client. One goroutine reads its requests and sends each on its way; replies come back through output.
type session struct {
	server *Server
	output output
	conn   net.Conn
	socket *socket // the same as conn, if it is one
	in     buffer
	args   [][]byte

	// Of the reading goroutine:
	is      state // who the client is to Redis
	trusted bool  // Redis has let it do something
	private bool  // everything that goes to Redis takes the own connection
	multi   bool  // between MULTI and EXEC
	id      *identity
	lane    *lane
	own     *own
	running int           // requests right before the one at hand that take the lane together
	runFrom int           // where they start in the buffer
	silence time.Duration // that ends at
	until   time.Time
	calm    int        // reads in a row that brought nothing but what passes
	back    chan error // the loop returns the client

	active      atomic.Int64        // when the loop has read from it, in nanoseconds
	gone        chan struct{}       // closed when output has ended it
	backend     atomic.Pointer[own] // the same as own, for those who end the session
	subscribing atomic.Bool         // has subscribed at some time
	protocol    atomic.Int32
	listening   listening
}

var (
	errGone           = errors.New("the client is gone")
	errQuit           = errors.New("the client said goodbye")
	errSlowSubscriber = errors.New("the client does not read its messages")
	errShutdown       = errors.New("the proxy is shutting down")
)

func newSession(server *Server, conn net.Conn) *session {
	s := &session{server: server, conn: quick(conn), is: state{proto: 2}, gone: make(chan struct{})}
	s.socket, _ = s.conn.(*socket)
	s.protocol.Store(2)
	s.output.init(conn, &server.cfg, &server.tasks)
	s.output.ended = func() {
		close(s.gone)
		if o := s.backend.Load(); o != nil {
			o.close() // the reading goroutine may wait for it
		}
	}
	return s
}

// run serves the client until it or Redis goes away.
func (s *session) run(ctx context.Context) {
	err := s.serve(ctx)
	if errors.Is(err, errProtocol) {
		s.answer(errorReply("ERR " + err.Error()))
	}
	if errors.Is(err, errProtocol) || errors.Is(err, errQuit) {
		s.drainSoon() // what was asked before is answered before
		s.output.finish()
	}
	s.output.fail(err)
	s.listening.end(s)
	if s.own != nil {
		s.own.close()
	}
	if s.id != nil {
		s.server.identities.leave(s.id)
	}
}

func (s *session) serve(ctx context.Context) error {
	silence := s.server.cfg.FirstRequest
	for {
		s.deadline(silence)
		need, err := s.requests(ctx)
		if err != nil {
			return err
		}
		if err := s.read(need); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && s.subscribing.Load() {
				continue // who listens may be silent
			}
			if errors.Is(err, io.EOF) {
				return s.lastWords()
			}
			return err
		}
		silence = s.server.cfg.Idle
	}
}

// read waits for more from the client.
func (s *session) read(need int) error {
	if s.plain() {
		return s.lend()
	}
	s.calm++
	return s.in.fill(s.conn, need)
}

// lastWords answers what a client asked before it closed its half of the connection, within reason.
func (s *session) lastWords() error {
	timer := time.AfterFunc(s.server.cfg.Timeout+time.Second, func() { s.output.fail(errGone) })
	defer timer.Stop()
	s.output.drain()
	return errQuit
}

// deadline is set once for many requests: it is there to end a silence, not to measure it.
func (s *session) deadline(silence time.Duration) {
	now := time.Now()
	if s.silence != silence || s.until.Sub(now) < silence-silence/8 {
		s.silence, s.until = silence, now.Add(silence)
		_ = s.conn.SetReadDeadline(s.until)
	}
}

// requests sends every request on its way that has arrived completely, and tells how long the next one is at least.
func (s *session) requests(ctx context.Context) (need int, err error) {
	for {
		c, need, err := readCommand(s.in.unread(), s.args[:0], s.limits())
		if err != nil && !s.trusted && s.trust(ctx) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if c.length == 0 {
			if !s.flush() {
				return 0, errBackendLost
			}
			return need, nil
		}
		s.args = c.args
		if len(c.args) > 0 {
			if err := s.dispatch(ctx, c); err != nil {
				s.flush()
				return 0, err
			}
		}
		s.in.r += c.length
		if cap(s.args) > 1024 {
			s.args = nil
		}
	}
}

// limits are narrow until Redis knows the client.
func (s *session) limits() limits {
	if !s.trusted {
		return limits{bulk: firstBulk, elements: firstElements, total: 4 * firstBulk}
	}
	most := s.server.cfg.MaxRequest
	return limits{bulk: most, elements: maxArguments, total: most}
}

// trust finds out whether Redis lets the client in as it is, without a password.
func (s *session) trust(ctx context.Context) bool {
	if l, err := s.sharedLane(ctx); err == nil && l.refusal == "" {
		s.trusted = true
	}
	return s.trusted
}

// answer replies to the next request without asking anybody.
func (s *session) answer(reply []byte) {
	if seq, ok := s.place(); ok {
		s.output.complete(seq, 1, reply)
		s.output.flush()
	}
}

func (s *session) fails(message string) {
	s.answer(errorReply(message))
}

// place takes the next place in the order of replies.
func (s *session) place() (uint64, bool) {
	s.calm = 0
	if !s.sendRun() {
		return 0, false
	}
	if s.own != nil && s.output.crowded(s.server.cfg.MaxPipeline) {
		s.own.flush() // what is waited for may not have been sent
	}
	return s.output.open(1, s.server.cfg.MaxPipeline)
}

// flush sends what has been put together. false: Redis is gone.
func (s *session) flush() bool {
	if s.own != nil {
		s.own.flush()
	}
	return s.sendRun()
}

// drain waits until everything that was asked is answered.
func (s *session) drain() bool {
	return s.flush() && s.output.drain()
}

// drainSoon is drain for what Redis answers at once, unless it hangs. The client is not read from meanwhile, so its going
// would not be noticed.
func (s *session) drainSoon() bool {
	timer := time.AfterFunc(s.server.cfg.Answer, func() { s.output.fail(errBackendLost) })
	defer timer.Stop()
	return s.drain()
}

// sharedLane returns the lane of the client's identity.
func (s *session) sharedLane(ctx context.Context) (*lane, error) {
	if s.lane != nil && s.lane.alive() {
		return s.lane, nil
	}
	if s.id == nil {
		s.id = s.server.identities.enter(s.is)
	}
	l, err := s.server.identities.lane(ctx, s.id)
	if err != nil {
		return nil, err
	}
	s.lane = l
	return l, nil
}

// become follows a change of who the client is.
func (s *session) become(is state) {
	s.is = is
	s.protocol.Store(int32(is.proto))
	if is.known {
		s.trusted = true
	}
	if s.id != nil {
		s.server.identities.leave(s.id)
	}
	s.id, s.lane = nil, nil
}
