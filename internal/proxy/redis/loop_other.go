//go:build !linux

package redis

import (
	"errors"
	"time"
)

// loop exists on Linux. Elsewhere every connection is read by its own goroutine.
type loop struct {
	now   time.Time
	lanes []*lane
}

func newLoop() (*loop, error) { return nil, errors.ErrUnsupported }

func (*loop) close() {}

func (*loop) join(*socket, any) (uint64, bool) { return 0, false }

func (*loop) leave(*socket, uint64) {}

func (*loop) expel(*socket) {}
