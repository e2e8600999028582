package kube

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// writeThrottle limits the number of concurrent writes. While the API server is overloaded, out of storage or
// unreachable, it allows one request between growing pauses. After a success the limit grows by one per success.
//
// Queued writes are not acknowledged to the peer. The peer's window fills, it sends no more, and changes of one object
// are merged. The writer's lock protects all fields.
type writeThrottle struct {
	maxInFlight int
	pause       backoff.Backoff

	limit        int       // requests that may be in flight now
	until        time.Time // no request starts before
	lastSlowdown time.Time
	slowed       bool // no success since the last slowdown
	lastFailure  time.Time

	outageStart    time.Time // zero if there is no outage
	outageFailures int
	lastLogged     time.Time
	totalFailures  uint64
}

// The pause after a failure grows from minPause to maxPause. A longer Retry-After is honored, up to maxRetryAfter.
const (
	minPause      = 250 * time.Millisecond
	maxPause      = 5 * time.Second
	maxRetryAfter = 30 * time.Second
)

// outageQuietPeriod is how long no request may fail until the outage ends, while requests are queued.
const outageQuietPeriod = 10 * time.Second

// outageLogInterval is the minimum time between two logged outages.
const outageLogInterval = time.Minute

func newWriteThrottle(maxInFlight int, jitter func() float64) writeThrottle {
	return writeThrottle{maxInFlight: maxInFlight, limit: maxInFlight,
		pause: backoff.Backoff{Min: minPause, Max: maxPause, Jitter: jitter}}
}

// ServerUnavailable reports whether a request failed because the API server is overloaded, out of storage or
// unreachable, and not because of its content. It also returns the pause that the API server asks for.
func ServerUnavailable(err error) (retryAfter time.Duration, ok bool) {
	e, answered := errors.AsType[*apiError](err)
	switch {
	case err == nil:
		return 0, false
	case !answered:
		return 0, true
	case strings.Contains(e.message, "admission webhook"): // whatever its code, the webhook rejects the object
		return 0, false
	case e.status == http.StatusTooManyRequests, e.status == http.StatusServiceUnavailable,
		e.status == http.StatusGatewayTimeout, e.status == http.StatusBadGateway,
		e.status == http.StatusInternalServerError && strings.Contains(e.message, "etcdserver:"): // such as "mvcc: database space exceeded"
		return time.Duration(e.retryAfter) * time.Second, true
	}
	return 0, false
}

// onUnavailable slows down. It reports whether the outage should be logged.
func (p *writeThrottle) onUnavailable(began, now time.Time, retryAfter time.Duration) (log bool) {
	p.outageFailures++
	p.totalFailures++
	p.lastFailure = now
	if p.outageStart.IsZero() {
		p.outageStart, p.outageFailures = now, 1
		if log = p.lastLogged.IsZero() || now.Sub(p.lastLogged) >= outageLogInterval; log {
			p.lastLogged = now
		}
	}
	if began.Before(p.lastSlowdown) {
		return log // it was already in flight at the last slowdown
	}
	p.limit = max(1, p.limit/2)
	if p.slowed {
		p.limit = 1
	}
	p.lastSlowdown, p.slowed = now, true
	p.until = now.Add(max(p.pause.Next(), min(retryAfter, maxRetryAfter)))
	return log
}

// onSuccess speeds up. If a logged outage ends, it returns its duration and the number of failed requests.
func (p *writeThrottle) onSuccess(began, now time.Time, waiting int) (lasted time.Duration, failures int) {
	if !began.Before(p.lastSlowdown) {
		p.pause.Reset()
		p.slowed = false
		p.limit = min(p.limit+1, p.maxInFlight)
	}
	if p.outageStart.IsZero() || now.Sub(p.lastFailure) < outageQuietPeriod && waiting > 0 {
		return 0, 0
	}
	if p.lastLogged.Equal(p.outageStart) {
		lasted, failures = now.Sub(p.outageStart), p.outageFailures
	}
	p.outageStart = time.Time{}
	return lasted, failures
}

// WriteStats describes the state of a writer.
type WriteStats struct {
	Waiting     int    // queued requests
	Limit       int    // requests that may be in flight now
	Unavailable uint64 // requests that failed because the API server was unavailable
	Outage      bool   // the API server does not accept writes
}
