package kube

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// writeThrottle is how hard a writer leans on the API server: as hard as it may while all
// is well; hardly at all, with pauses that grow, while the API server says that it
// is overloaded, has no room left, or does not answer. What waits meanwhile is not
// answered to the peer, whose window fills: it sends no more, and its changes
// become one. After the first success the pace doubles with each round, so that
// who has just come back is not run over.
//
// It belongs to the writer, under its lock.
type writeThrottle struct {
	maxInFlight int            // requests under way at once, at best
	jitter      func() float64 // 0 to 1

	limit        int       // requests under way at once, now
	until        time.Time // none begins before
	lastSlowdown time.Time // when the pace was last slowed down
	pauses       int       // in a row, without a success in between
	lastFailure      time.Time // when a request was last refused for this reason

	outageStart time.Time // since when; zero: there is none
	outageFailures       int       // requests refused in it
	lastLogged  time.Time // when people were last told of one
	totalFailures    uint64    // ever
}

// The pause after a refusal grows between these. The API server's own wish counts
// for more, up to the last.
const (
	minPause      = 250 * time.Millisecond
	maxPause      = 5 * time.Second
	maxRetryAfter = 30 * time.Second
)

// outageQuietPeriod is how long no request must have been refused for a trouble to be over
// while there is much to do.
const outageQuietPeriod = 10 * time.Second

// outageLogInterval is how often people are told of trouble that comes and goes.
const outageLogInterval = time.Minute

// ServerUnavailable tells that a request failed because the API server cannot do more, or
// cannot be reached, and not because of what was asked; and how long it asks to be
// left alone.
func ServerUnavailable(err error) (retryAfter time.Duration, ok bool) {
	e, answered := errors.AsType[*apiError](err)
	switch {
	case err == nil:
		return 0, false
	case !answered:
		return 0, true
	case strings.Contains(e.message, "admission webhook"): // whatever code it chose, it means the object
		return 0, false
	case e.status == http.StatusTooManyRequests, e.status == http.StatusServiceUnavailable, e.status == http.StatusGatewayTimeout, e.status == http.StatusBadGateway,
		e.status == http.StatusInternalServerError && strings.Contains(e.message, "etcdserver:"): // such as: mvcc: database space exceeded
		return time.Duration(e.retryAfter) * time.Second, true
	}
	return 0, false
}

// onUnavailable slows down. It returns true if people are to be told.
func (p *writeThrottle) onUnavailable(began, now time.Time, retryAfter time.Duration) (news bool) {
	p.outageFailures++
	p.totalFailures++
	p.lastFailure = now
	if p.outageStart.IsZero() {
		p.outageStart, p.outageFailures = now, 1
		if news = p.lastLogged.IsZero() || now.Sub(p.lastLogged) >= outageLogInterval; news {
			p.lastLogged = now
		}
	}
	if began.Before(p.lastSlowdown) {
		return news // it was under way before; what it says is known
	}
	p.lastSlowdown = now
	p.limit = max(1, p.limit/2)
	if p.pauses > 0 {
		p.limit = 1
	}
	breath := min(minPause<<min(p.pauses, 10), maxPause)
	p.pauses++
	breath = breath/2 + time.Duration(p.jitter()*float64(breath/2))
	p.until = now.Add(max(breath, min(retryAfter, maxRetryAfter)))
	return news
}

// onSuccess speeds up. It returns how long a trouble was that is over now, and how many
// requests it has cost; 0: none is, or it was not worth telling.
func (p *writeThrottle) onSuccess(began, now time.Time, waiting int) (lasted time.Duration, refused int) {
	if !began.Before(p.lastSlowdown) {
		p.pauses = 0
		p.limit = min(p.limit+1, p.maxInFlight)
	}
	if p.outageStart.IsZero() || now.Sub(p.lastFailure) < outageQuietPeriod && waiting > 0 {
		return 0, 0
	}
	if p.lastLogged.Equal(p.outageStart) {
		lasted, refused = now.Sub(p.outageStart), p.outageFailures
	}
	p.outageStart = time.Time{}
	return lasted, refused
}

// WriteStats is how a writer gets on with its API server.
type WriteStats struct {
	Waiting int    // requests that wait for their turn
	Limit   int    // requests that may be under way at once, now
	Unavailable uint64 // requests that the API server could not serve, ever
	Outage bool   // it cannot serve them now
}
