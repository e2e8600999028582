package transport

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"
)

func TestDedupLogger_LogsTheSameErrorOnce(t *testing.T) {
	now := time.Now()
	log := &strings.Builder{}
	l := NewDedupLogger(slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return now })
	reset := func(port int) error {
		return fmt.Errorf("handshake: %w", &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: port}, Err: errors.New("connection reset")})
	}
	for port := range 50 {
		l.With("10.0.0.1", reset(port)).Warn("Refused")
	}
	l.With("10.0.0.1", errors.New("something else")).Warn("Refused")
	l.With("10.0.0.2", reset(1)).Warn("Refused")
	if n := strings.Count(log.String(), "Refused"); n != 3 {
		t.Errorf("%d lines:\n%s", n, log)
	}
	now = now.Add(suppressPeriod)
	l.With("10.0.0.1", reset(1)).Warn("Refused")
	if text := log.String(); !strings.Contains(text, "repeated=49") {
		t.Errorf("the number of suppressed entries is missing:\n%s", text)
	}
}

func TestDedupLogger_BoundsDifferentErrors(t *testing.T) {
	now := time.Now()
	log := &strings.Builder{}
	l := NewDedupLogger(slog.New(slog.NewTextHandler(log, nil)), func() time.Time { return now })
	for i := range 2 * maxLogged {
		l.With(fmt.Sprint(i), errors.New("x")).Warn("Refused")
	}
	if n := strings.Count(log.String(), "Refused"); n != maxLogged {
		t.Errorf("%d lines", n)
	}
	now = now.Add(suppressPeriod)
	l.With("new", errors.New("x")).Warn("Refused")
	if n := strings.Count(log.String(), "Refused"); n != maxLogged+1 || len(l.seen) != 1 {
		t.Errorf("%d lines, %d kept", n, len(l.seen))
	}
}
