package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// quiet logs the same trouble of the same peer once, and again after a while
// with the number of times in between. A fleet that can not get in, or a port
// scan, must not fill the log.
type quiet struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	seen map[string]*trouble
}

type trouble struct {
	logged time.Time
	silent int
}

const (
	quietFor  = 10 * time.Minute
	quietKeys = 4096 // more than that at once, and nothing new is logged
)

func newQuiet(log *slog.Logger, now func() time.Time) *quiet {
	return &quiet{log: log, now: now, seen: map[string]*trouble{}}
}

// warn logs a warning about a peer, unless the same was logged lately.
func (q *quiet) warn(peer, message string, err error, attrs ...slog.Attr) {
	repeated, ok := q.due(peer + "\x00" + message + "\x00" + stable(err))
	if !ok {
		return
	}
	attrs = append(attrs, slog.String("peer", peer), slog.Any("error", err))
	if repeated > 0 {
		attrs = append(attrs, slog.Int("repeated", repeated))
	}
	q.log.LogAttrs(context.Background(), slog.LevelWarn, message, attrs...)
}

func (q *quiet) due(key string) (repeated int, ok bool) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.seen[key]
	if t == nil {
		if len(q.seen) >= quietKeys {
			q.sweep(now)
		}
		if len(q.seen) >= quietKeys {
			return 0, false
		}
		q.seen[key] = &trouble{logged: now}
		return 0, true
	}
	if now.Sub(t.logged) < quietFor {
		t.silent++
		return 0, false
	}
	repeated = t.silent
	t.logged, t.silent = now, 0
	return repeated, true
}

func (q *quiet) sweep(now time.Time) {
	for key, t := range q.seen {
		if now.Sub(t.logged) >= quietFor {
			delete(q.seen, key)
		}
	}
}

// stable is the text of an error without the port numbers in it.
func stable(err error) string {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Err != nil {
		return op.Op + " " + op.Err.Error()
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
