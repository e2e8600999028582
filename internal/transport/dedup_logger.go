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

// DedupLogger logs the same error of the same peer once, and again after a while with the number of suppressed entries.
// A fleet that cannot connect, or a port scan, must not fill the log.
type DedupLogger struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	seen map[string]*suppressedEntry
}

type suppressedEntry struct {
	logged     time.Time
	suppressed int
}

const (
	suppressPeriod = 10 * time.Minute
	maxSuppressed  = 4096 // if there are more at once, nothing new is logged
)

// NewDedupLogger returns a DedupLogger with this clock.
func NewDedupLogger(log *slog.Logger, now func() time.Time) *DedupLogger {
	return &DedupLogger{log: log, now: now, seen: map[string]*suppressedEntry{}}
}

// With returns a logger for an error of a peer. The logger discards its entries if the same error was logged lately.
func (l *DedupLogger) With(peer string, err error) *slog.Logger {
	repeated, ok := l.due(peer + "\x00" + stable(err))
	switch {
	case !ok:
		return discardLogger
	case repeated > 0:
		return l.log.With("peer", peer, "error", err, "repeated", repeated)
	}
	return l.log.With("peer", peer, "error", err)
}

var discardLogger = slog.New(slog.DiscardHandler)

// due reports whether to log, and how often the entry was suppressed before.
func (l *DedupLogger) due(key string) (repeated int, ok bool) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.seen[key]
	if t == nil {
		if len(l.seen) >= maxSuppressed {
			l.sweep(now)
		}
		if len(l.seen) >= maxSuppressed {
			return 0, false
		}
		l.seen[key] = &suppressedEntry{logged: now}
		return 0, true
	}
	if now.Sub(t.logged) < suppressPeriod {
		t.suppressed++
		return 0, false
	}
	repeated = t.suppressed
	t.logged, t.suppressed = now, 0
	return repeated, true
}

func (l *DedupLogger) sweep(now time.Time) {
	for key, t := range l.seen {
		if now.Sub(t.logged) >= suppressPeriod {
			delete(l.seen, key)
		}
	}
}

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
