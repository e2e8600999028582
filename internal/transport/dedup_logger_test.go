package transport

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
		q.with("10.0.0.1", reset(port)).Warn("trouble")
	}
	q.with("10.0.0.1", errors.New("something else")).Warn("trouble")
	q.with("10.0.0.2", reset(1)).Warn("trouble")
	if n := strings.Count(log.String(), "trouble"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	now = now.Add(suppressPeriod)
	q.with("10.0.0.1", reset(1)).Warn("trouble")
	if text := log.String(); !strings.Contains(text, "repeated=49") {
		t.Errorf("it is not told how often:\n%s", text)
	}
}

func TestScanCanNotFillTheLog(t *testing.T) {
	now := time.Now()
	log := &journal{}
	q := newQuiet(log.logger(), func() time.Time { return now })
	for i := range 2 * maxSuppressed {
		q.with(fmt.Sprint(i), errors.New("x")).Warn("trouble")
	}
	if n := strings.Count(log.String(), "trouble"); n != maxSuppressed {
		t.Errorf("%d lines", n)
	}
	now = now.Add(suppressPeriod)
	q.with("new", errors.New("x")).Warn("trouble")
	if n := strings.Count(log.String(), "trouble"); n != maxSuppressed+1 || len(q.seen) != 1 {
		t.Errorf("%d lines, %d kept", n, len(q.seen))
	}
}
