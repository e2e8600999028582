// Package route decides which of the hub's addresses an agent dials next, and when. It does no I/O, so that the simulator
// uses it too.
package route

import (
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// Route selects which of the hub's addresses an agent dials next, and when.
//
//   - After a session, its address is dialed first. After a failed attempt, the next address is dialed.
//   - Between two addresses there is a short random pause, so that agents that lost one hub together do not reach another
//     together. After all addresses have failed, there is a pause that doubles.
//   - A session with another address than the first ends when the first accepts sessions again.
//   - An address whose hub the agent does not follow, because another hub was promoted or it is another hub, is skipped. It
//     is dialed again only after all others have failed, every other time.
type Route struct {
	addresses int
	random    func() float64
	current   int           // address that is dialed next
	failed    int           // addresses that have failed since the last pause
	requested time.Duration // longest pause that one of them requested
	wrong     []bool        // addresses whose hub the agent does not follow
	dialWrong bool          // these are not skipped until all addresses have failed

	pauses  *backoff.Backoff // after all addresses have failed
	returns *backoff.Backoff // before the first address is tried during a session with another one
}

// New returns a Route. random returns numbers between 0 and 1.
func New(addresses int, random func() float64) *Route {
	return &Route{addresses: addresses, random: random, wrong: make([]bool, addresses), pauses: newPauses(random),
		returns: &backoff.Backoff{Min: minReturn, Max: maxReturn, Jitter: random}}
}

// Pauses before an agent tries the first address again during a session with another one: half of it to all of it.
const (
	minReturn = 10 * time.Minute
	maxReturn = time.Hour
)

// End is why an attempt ended.
type End struct {
	WrongHub   bool          // the agent does not follow the hub at this address
	Return     bool          // the agent goes back to the first address
	RetryAfter time.Duration // pause that the hub requested
}

// Current returns the address that is dialed next.
func (r *Route) Current() int { return r.current }

// Next handles the end of an attempt: whether a session was opened, how long it lasted and why it ended. It returns the
// pause before the next attempt.
func (r *Route) Next(opened bool, lasted time.Duration, ended End) time.Duration {
	r.requested = max(r.requested, ended.RetryAfter)
	if opened || ended.WrongHub {
		r.wrong[r.current], r.dialWrong = !opened, r.dialWrong && !opened
	}
	switch {
	case opened && r.current == 0:
		r.returns.Reset()
	case opened && ended.Return:
		r.current = 0
	case !opened:
		dialed := r.current
		r.failed++
		if r.advance(); r.failed < r.addresses {
			return time.Duration(r.random() * float64(firstPause))
		}
		r.current, r.failed = dialed, 0
		r.advance()
	}
	requested := r.requested
	r.failed, r.requested = 0, 0
	return nextPause(r.pauses, opened, lasted, requested)
}

// advance selects the next address. Skipped addresses count as failed.
func (r *Route) advance() {
	for r.failed < r.addresses {
		r.current = (r.current + 1) % r.addresses
		if r.dialWrong || !r.wrong[r.current] {
			return
		}
		r.failed++
	}
	r.dialWrong = !r.dialWrong
}

// MayReturn reports whether a session with the current address ends when the first accepts sessions again.
func (r *Route) MayReturn() bool { return r.current != 0 && !r.wrong[0] }

// NextReturn returns the pause before the first address is tried during a session with another one.
func (r *Route) NextReturn() time.Duration { return r.returns.Next() }

// maxRetryAfter is the longest pause that the hub may request.
const maxRetryAfter = 10 * time.Minute

// newPauses returns the pauses of an agent before it dials again: a random part of a pause that doubles with each
// failure.
func newPauses(random func() float64) *backoff.Backoff {
	return &backoff.Backoff{Min: firstPause, Max: 30 * time.Second, Floor: firstPause / 10, Jitter: random}
}

const firstPause = 500 * time.Millisecond

// nextPause returns the pause after an attempt. A session that was opened and lasted longer than the last pause resets
// the pauses. A session that ends right after it was opened does not, so that the two sides do not spin. The pause that
// the hub requests is added, so that agents that were refused together do not return together.
func nextPause(pauses *backoff.Backoff, opened bool, lasted, retryAfter time.Duration) time.Duration {
	if opened && lasted >= pauses.Last() {
		pauses.Reset()
	}
	return min(max(retryAfter, 0), maxRetryAfter) + pauses.Next()
}
