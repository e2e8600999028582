package kube

import (
	"errors"
	"net/http"
	"strings"
	"time"
)

// pace is how hard a writer leans on the API server: as hard as it may while all
// is well; hardly at all, with pauses that grow, while the API server says that it
// is overloaded, has no room left, or does not answer. What waits meanwhile is not
// answered to the peer, whose window fills: it sends no more, and its changes
// become one. After the first success the pace doubles with each round, so that
// who has just come back is not run over.
//
// It belongs to the writer, under its lock.
type pace struct {
	most   int            // requests under way at once, at best
	jitter func() float64 // 0 to 1

	limit   int       // requests under way at once, now
	until   time.Time // none begins before
	slowed  time.Time // when the pace was last slowed down
	pauses  int       // in a row, without a success in between
	refusal time.Time // when a request was last refused for this reason

	trouble  time.Time // since when; zero: there is none
	count    int       // requests refused in it
	told     time.Time // when people were last told of one
	refusals uint64    // ever
}

// The pause after a refusal grows between these. The API server's own wish counts
// for more, up to the last.
const (
	firstBreath    = 250 * time.Millisecond
	longestBreath  = 5 * time.Second
	longestRequest = 30 * time.Second
)

// calm is how long no request must have been refused for a trouble to be over
// while there is much to do.
const calm = 10 * time.Second

// newsEvery is how often people are told of trouble that comes and goes.
const newsEvery = time.Minute

// Trouble tells that a request failed because the API server can not do more, or
// can not be reached, and not because of what was asked; and how long it asks to be
// left alone.
func Trouble(err error) (retryAfter time.Duration, ok bool) {
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

// refused slows down. It returns true if people are to be told.
func (p *pace) refused(began, now time.Time, retryAfter time.Duration) (news bool) {
	p.count++
	p.refusals++
	p.refusal = now
	if p.trouble.IsZero() {
		p.trouble, p.count = now, 1
		if news = p.told.IsZero() || now.Sub(p.told) >= newsEvery; news {
			p.told = now
		}
	}
	if began.Before(p.slowed) {
		return news // it was under way before; what it says is known
	}
	p.slowed = now
	p.limit = max(1, p.limit/2)
	if p.pauses > 0 {
		p.limit = 1
	}
	breath := min(firstBreath<<min(p.pauses, 10), longestBreath)
	p.pauses++
	breath = breath/2 + time.Duration(p.jitter()*float64(breath/2))
	p.until = now.Add(max(breath, min(retryAfter, longestRequest)))
	return news
}

// done speeds up. It returns how long a trouble was that is over now, and how many
// requests it has cost; 0: none is, or it was not worth telling.
func (p *pace) done(began, now time.Time, waiting int) (lasted time.Duration, refused int) {
	if !began.Before(p.slowed) {
		p.pauses = 0
		p.limit = min(p.limit+1, p.most)
	}
	if p.trouble.IsZero() || now.Sub(p.refusal) < calm && waiting > 0 {
		return 0, 0
	}
	if p.told.Equal(p.trouble) {
		lasted, refused = now.Sub(p.trouble), p.count
	}
	p.trouble = time.Time{}
	return lasted, refused
}

// Load is how a writer gets on with its API server.
type Load struct {
	Waiting int    // requests that wait for their turn
	Limit   int    // requests that may be under way at once, now
	Refused uint64 // requests that the API server could not serve, ever
	Trouble bool   // it can not serve them now
}
