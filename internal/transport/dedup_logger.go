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

// dedupLogger logs the same trouble of the same peer once, and again after a while
// with the number of times in between. A fleet that cannot get in, or a port
// scan, must not fill the log.
type dedupLogger struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	seen map[string]*suppressedEntry
}

type suppressedEntry struct {
	logged time.Time
	silent int
}

const (
	suppressPeriod = 10 * time.Minute
	maxSuppressed  = 4096 // more than that at once, and nothing new is logged
)

func newQuiet(log *slog.Logger, now func() time.Time) *dedupLogger {
	return &dedupLogger{log: log, now: now, seen: map[string]*suppressedEntry{}}
}

// with returns a logger for trouble of a peer. It says nothing if the same was
// logged lately.
func (q *dedupLogger) with(peer string, err error) *slog.Logger {
	repeated, ok := q.due(peer + "\x00" + stable(err))
	switch {
	case !ok:
		return discardLogger
	case repeated > 0:
		return q.log.With("peer", peer, "error", err, "repeated", repeated)
	}
	return q.log.With("peer", peer, "error", err)
}

var discardLogger = slog.New(slog.DiscardHandler)

// due reports whether something is to be logged, and how often it was not.
func (q *dedupLogger) due(key string) (repeated int, ok bool) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.seen[key]
	if t == nil {
		if len(q.seen) >= maxSuppressed {
			q.sweep(now)
		}
		if len(q.seen) >= maxSuppressed {
			return 0, false
		}
		q.seen[key] = &suppressedEntry{logged: now}
		return 0, true
	}
	if now.Sub(t.logged) < suppressPeriod {
		t.silent++
		return 0, false
	}
	repeated = t.silent
	t.logged, t.silent = now, 0
	return repeated, true
}

func (q *dedupLogger) sweep(now time.Time) {
	for key, t := range q.seen {
		if now.Sub(t.logged) >= suppressPeriod {
			delete(q.seen, key)
		}
	}
}

// stable is the text of an error without the port numbers and times in it.
func stable(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Op + " " + op.Err.Error()
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Cert != nil {
		return fmt.Sprintf("certificate %s of %s: %d", invalid.Cert.SerialNumber, invalid.Cert.Issuer, invalid.Reason)
	}
	return err.Error()
}

// hostOf is the address of a peer without its port, which changes every time.
func hostOf(addr net.Addr) string {
	if host, _, err := net.SplitHostPort(addr.String()); err == nil {
		return host
	}
	return addr.String()
}
