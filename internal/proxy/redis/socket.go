package redis

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
)

// socket reads and writes with as little around the system calls as there can be. One goroutine may read and one may write.
type socket struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
	into    *buffer // of fill

	// The methods as values, which are made once.
	tryRead, tryFill, tryPoll, tryWrite, tryWriteOnce func(fd uintptr) bool
}

// transfer is a call under way.
type transfer struct {
	b   []byte
	n   int
	err syscall.Errno
}

// quick returns a connection as a socket, if it is one.
func quick(conn net.Conn) net.Conn {
	is, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := is.SyscallConn()
	if err != nil {
		return conn
	}
	s := &socket{Conn: conn, raw: raw}
	s.tryRead, s.tryFill, s.tryPoll, s.tryWrite, s.tryWriteOnce = s.readOnce, s.fillOnce, s.pollOnce, s.writeAll, s.writeOnce
	return s
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	s.in = transfer{b: b}
	err := s.raw.Read(s.tryRead)
	s.in.b = nil
	return s.in.n, s.outcome(err)
}

func (s *socket) readOnce(fd uintptr) bool {
	s.in.n, s.in.err = readSome(fd, s.in.b)
	return s.in.err != syscall.EAGAIN
}

func (s *socket) outcome(err error) error {
	switch {
	case err != nil:
		s.in.n = 0
		return err
	case s.in.err != 0:
		s.in.n = 0
		return os.NewSyscallError("read", s.in.err)
	case s.in.n == 0:
		return io.EOF
	}
	return nil
}

// lent are the buffers of those who read something just now. There are few at a time, so they stay in the processor's
// cache; and who waits has none.
var lent = sync.Pool{New: func() any { return new([bigBuffer]byte) }}

// keepsBorrowed is how much a client must have sent of a request for the rest of which it keeps a whole buffer.
const keepsBorrowed = bigBuffer / 4

// fill reads once into a buffer that is borrowed when there is something to read.
func (s *socket) fill(b *buffer, want int) error {
	s.in, s.into = transfer{n: want}, b
	err := s.raw.Read(s.tryFill)
	s.into = nil
	if err = s.outcome(err); err == nil {
		b.w += s.in.n
	}
	return err
}

func (s *socket) fillOnce(fd uintptr) bool {
	b, want := s.into, s.in.n
	b.borrow()
	n, err := readSome(fd, b.room(want))
	if err == syscall.EAGAIN {
		b.settle()
		return false
	}
	s.in.n, s.in.err = n, err
	return true
}

// poll is fill without waiting: n is 0 if there is nothing to read.
func (s *socket) poll(b *buffer, want int) (n int, err error) {
	s.in, s.into = transfer{n: want}, b
	err = s.raw.Read(s.tryPoll)
	s.into = nil
	if err == nil && s.in.err == syscall.EAGAIN {
		return 0, nil
	}
	err = s.outcome(err)
	b.w += s.in.n
	return s.in.n, err
}

func (s *socket) pollOnce(fd uintptr) bool {
	b := s.into
	if b.keep == 0 {
		b.borrow()
	}
	s.in.n, s.in.err = readSome(fd, b.room(s.in.n))
	return true
}

// borrow replaces a buffer by a larger one, for a while.
func (b *buffer) borrow() {
	if b.borrowed != nil || b.w-b.r > bigBuffer/2 {
		return
	}
	lending := lent.Get().(*[bigBuffer]byte) //nolint:forcetypeassert // nothing else is in there
	b.w = copy(lending[:], b.unread())
	b.r, b.bytes, b.borrowed = 0, lending[:], lending
}

// settle gives a borrowed buffer back, if there is not much in it.
func (b *buffer) settle() {
	rest := b.unread()
	if b.borrowed == nil || len(rest) >= keepsBorrowed {
		return
	}
	b.bytes = append([]byte(nil), rest...)
	b.r, b.w = 0, len(rest)
	b.giveBack()
}

// giveBack ends the loan of what bytes were.
func (b *buffer) giveBack() {
	if b.borrowed != nil {
		lent.Put(b.borrowed)
		b.borrowed = nil
	}
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (int, error) {
	s.out = transfer{b: b}
	err := s.raw.Write(s.tryWrite)
	s.out.b = nil
	if err == nil && s.out.err != 0 {
		err = os.NewSyscallError("write", s.out.err)
	}
	return s.out.n, err
}

// put writes what the socket takes, without waiting.
func (s *socket) put(b []byte) (int, error) {
	s.out = transfer{b: b}
	err := s.raw.Write(s.tryWriteOnce)
	s.out.b = nil
	if err == nil && s.out.err != 0 {
		err = os.NewSyscallError("write", s.out.err)
	}
	return s.out.n, err
}

func (s *socket) writeOnce(fd uintptr) bool {
	s.writeAll(fd) // until it would wait
	return true
}

func (s *socket) writeAll(fd uintptr) bool {
	for s.out.n < len(s.out.b) {
		n, err := writeSome(fd, s.out.b[s.out.n:])
		if err == syscall.EAGAIN {
			return false
		}
		if err != 0 {
			s.out.err = err
			return true
		}
		s.out.n += n
	}
	return true
}
