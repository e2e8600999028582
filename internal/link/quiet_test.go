package link

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func TestSameTroubleIsLoggedOnce(t *testing.T) {
	now := time.Now()
	log := &journal{}
	q := newQuiet(log.logger(), func() time.Time { return now })
	reset := func(port int) error {
		return fmt.Errorf("handshake: %w", &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: port}, Err: errors.New("connection reset")})
	}
	for port := range 50 {
		q.about("10.0.0.1", reset(port)).Warn("trouble")
	}
	q.about("10.0.0.1", errors.New("something else")).Warn("trouble")
	q.about("10.0.0.2", reset(1)).Warn("trouble")
	if n := strings.Count(log.String(), "trouble"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	now = now.Add(quietFor)
	q.about("10.0.0.1", reset(1)).Warn("trouble")
	if text := log.String(); !strings.Contains(text, "repeated=49") {
		t.Errorf("it is not told how often:\n%s", text)
	}
}

func TestScanCanNotFillTheLog(t *testing.T) {
	now := time.Now()
	log := &journal{}
	q := newQuiet(log.logger(), func() time.Time { return now })
	for i := range 2 * quietKeys {
		q.about(fmt.Sprint(i), errors.New("x")).Warn("trouble")
	}
	if n := strings.Count(log.String(), "trouble"); n != quietKeys {
		t.Errorf("%d lines", n)
	}
	now = now.Add(quietFor)
	q.about("new", errors.New("x")).Warn("trouble")
	if n := strings.Count(log.String(), "trouble"); n != quietKeys+1 || len(q.seen) != 1 {
		t.Errorf("%d lines, %d kept", n, len(q.seen))
	}
}
