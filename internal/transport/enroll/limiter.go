package enroll

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/ratelimit"
)

const (
	// maxConcurrent is the number of requests that are processed at the same time: each one costs requests to the API
	// server and memory. Clients that join have the same number for themselves, so that they cannot block renewals.
	maxConcurrent = 16

	interval = 500 * time.Millisecond // per request, in the long run
	burst    = 40                     // requests at once: many clusters may share one address
)

// Limiter limits requests for certificates.
type Limiter struct {
	rate              *ratelimit.Limiter // by caller
	renewing, joining chan struct{}
}

// NewLimiter returns a Limiter with this clock.
func NewLimiter(now func() time.Time) *Limiter {
	return &Limiter{rate: ratelimit.New(interval, burst, now), renewing: make(chan struct{}, maxConcurrent), joining: make(chan struct{}, maxConcurrent)}
}

// Begin admits a request, or returns why not. The caller must call done after the request.
func (l *Limiter) Begin(caller string, join bool) (done func(), err *Error) {
	if wait := l.rate.Take(caller); wait > 0 {
		return nil, &Error{Message: "too many requests from this client: try again later", Temporary: true, RetryAfter: wait}
	}
	places := l.renewing
	if join {
		places = l.joining
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	default:
		return nil, &Error{Message: "the hub issues too many certificates at the same time: try again later", Temporary: true, RetryAfter: time.Second}
	}
}
