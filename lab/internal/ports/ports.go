// Package ports reserves TCP ports of the loopback interface for the components of one lab.
//
// A free port of the kernel is not safe: the kernel can use it for an outgoing connection before the component listens.
// So a lab reserves a block of ports below the ephemeral range, with a file lock, for its lifetime. A restarted
// component finds its port free.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

const (
	first     = 16000 // above well-known ports, below the ephemeral range (32768 and up)
	blockSize = 400
	blocks    = 40
)

// Block is the range of ports of one lab.
type Block struct {
	lock *os.File

	mu   sync.Mutex
	next int
	end  int
}

// Claim reserves a block that no other lab of this machine has. All labs share the locks in directory.
func Claim(folder string) (*Block, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of port locks: %w", err)
	}
	start := rand.IntN(blocks)
	for i := range blocks {
		number := (start + i) % blocks
		from := first + number*blockSize
		file, err := os.OpenFile(filepath.Join(folder, "ports-"+strconv.Itoa(from)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open a port lock: %w", err)
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &Block{lock: file, next: from, end: from + blockSize}, nil
		}
		_ = file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock the ports from %d: %w", from, err)
		}
	}
	return nil, fmt.Errorf("all %d port blocks are taken by other labs: end one with `lab down`", blocks)
}

// Next returns an unused port of the block.
func (b *Block) Next() (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.next < b.end {
		port := b.next
		b.next++
		if Check(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("the lab's %d ports are used up", blockSize)
}

// Release releases the block.
func (b *Block) Release() error { return b.lock.Close() }

// Check returns an error with an explanation if a port is in use.
func Check(port int) error {
	listener, err := net.Listen("tcp", Address(port))
	if err != nil {
		return fmt.Errorf("port %d is occupied: end what listens there (ss -ltnp 'sport = :%d' names it), or choose another: %w",
			port, port, err)
	}
	return listener.Close()
}

// Address returns the loopback address of a port.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
