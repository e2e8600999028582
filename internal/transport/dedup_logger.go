package transport

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// DedupLogger logs the same error of the same peer once per period, with the number of suppressed entries of the period
// before. A fleet that cannot connect, or a port scan, must not fill the log.
type DedupLogger struct {
	log *slog.Logger
	now func() time.Time

	mu           sync.Mutex
	since        time.Time      // begin of the period
	seen, before map[string]int // suppressed entries by peer and error, in this period and in the one before
}

const (
	suppressPeriod = 10 * time.Minute
	maxLogged      = 4096 // different errors per period. Further ones are not logged.
)

// NewDedupLogger returns a DedupLogger with this clock.
func NewDedupLogger(log *slog.Logger, now func() time.Time) *DedupLogger {
	return &DedupLogger{log: log, now: now}
}

// With returns a logger for an error of a peer. The logger discards its entries if the same error was logged lately.
func (l *DedupLogger) With(peer string, err error) *slog.Logger {
	key := peer + "\x00" + stable(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.since) >= suppressPeriod {
		l.since, l.before, l.seen = now, l.seen, map[string]int{}
	}
	if _, logged := l.seen[key]; logged {
		l.seen[key]++
		return discardLogger
	}
	if len(l.seen) >= maxLogged {
		return discardLogger
	}
	l.seen[key] = 0
	if repeated := l.before[key]; repeated > 0 {
		return l.log.With("peer", peer, "error", err, "repeated", repeated)
	}
	return l.log.With("peer", peer, "error", err)
}

var discardLogger = slog.New(slog.DiscardHandler)

// stable returns the text of an error without port numbers and times.
func stable(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Op + " " + op.Err.Error()
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		return fmt.Sprintf("certificate %s of %s: %d", invalid.Cert.SerialNumber, invalid.Cert.Issuer, invalid.Reason)
	}
	return err.Error()
}

// HostOf returns the address of a peer without its port, which changes with every connection.
func HostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
