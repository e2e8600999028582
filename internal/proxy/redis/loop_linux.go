package redis

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// loop reads for many connections in one goroutine, as Redis itself does: who has something to read has its turn, and
// what all turns of a round have put together is written at its end. A goroutine for each connection would have to be
// woken for each request, mostly on another core, would read once more to find nothing, and would share fewer writes.
//
// The goroutine waits for its connections with an epoll instance, and for that one, which is a file too, as goroutines
// wait for all files. So no thread is blocked.
type loop struct {
	file *os.File // the epoll instance
	raw  syscall.RawConn
	over chan struct{} // the goroutine has ended

	mu      sync.Mutex
	ended   sync.Cond // somebody's turn has
	members map[uint64]member
	last    uint64 // number that was given
	turn    uint64 // whose turn it is; 0: nobody's. Only the goroutine changes it

	// Of the goroutine:
	now   time.Time // when the round began
	lanes []*lane   // that have something to write at the end of the round
}

// member is a connection for which the loop reads.
type member interface {
	// readable is its turn: it reads once and must not wait for anything.
	readable(l *loop)
}

func newLoop() (*loop, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil { // or else os does not wait for it
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("wait for an epoll instance: %w", err)
	}
	l := &loop{file: os.NewFile(uintptr(fd), "epoll"), over: make(chan struct{}), members: map[uint64]member{}}
	l.ended.L = &l.mu
	if l.raw, err = l.file.SyscallConn(); err != nil {
		_ = l.file.Close()
		return nil, fmt.Errorf("wait for an epoll instance: %w", err)
	}
	go l.run()
	return l, nil
}

// close ends the loop, which must have no members any more.
func (l *loop) close() {
	_ = l.file.Close()
	<-l.over
}

func (l *loop) run() {
	defer close(l.over)
	var events [256]syscall.EpollEvent
	_ = l.raw.Read(func(fd uintptr) bool {
		for {
			// It does not wait, and so needs not tell the scheduler; see readSome.
			n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, fd,
				uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0) //nolint:gosec // as long as it says
			if errno == syscall.EINTR {
				continue
			}
			if errno != 0 || n == 0 {
				return false
			}
			l.round(events[:n])
		}
	})
}

func (l *loop) round(events []syscall.EpollEvent) {
	l.now = time.Now()
	for i := range events {
		number := uint64(uint32(events[i].Fd)) | uint64(uint32(events[i].Pad))<<32
		l.mu.Lock()
		m := l.members[number]
		l.turn = number
		l.mu.Unlock()
		if m != nil {
			m.readable(l)
		}
		l.mu.Lock()
		l.turn = 0
		l.ended.Broadcast()
		l.mu.Unlock()
	}
	for i, lane := range l.lanes {
		lane.push()
		l.lanes[i] = nil
	}
	l.lanes = l.lanes[:0]
}

// join makes the loop read for a connection. The number that it returns, if it does, is for leaving again.
func (l *loop) join(s *socket, m member) (number uint64, ok bool) {
	l.mu.Lock()
	l.last++
	number = l.last
	l.members[number] = m
	l.mu.Unlock()
	event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32))}
	if err := l.control(s, syscall.EPOLL_CTL_ADD, &event); err != nil {
		l.leave(s, number)
		return 0, false
	}
	return number, true
}

// leave ends that. When it returns the connection has no turn, and will not have one.
func (l *loop) leave(s *socket, number uint64) {
	l.mu.Lock()
	delete(l.members, number)
	for l.turn == number {
		l.ended.Wait()
	}
	l.mu.Unlock()
	_ = l.control(s, syscall.EPOLL_CTL_DEL, nil) // it may be closed, which is as good
}

// expel is leave for who has its turn.
func (l *loop) expel(s *socket) {
	l.mu.Lock()
	delete(l.members, l.turn)
	l.mu.Unlock()
	_ = l.control(s, syscall.EPOLL_CTL_DEL, nil)
}

func (l *loop) control(s *socket, op int, event *syscall.EpollEvent) error {
	var err error
	closed := s.raw.Control(func(fd uintptr) {
		if inside := l.raw.Control(func(epoll uintptr) { err = syscall.EpollCtl(int(epoll), op, int(fd), event) }); inside != nil {
			err = inside
		}
	})
	if closed != nil {
		return closed
	}
	return err
}
