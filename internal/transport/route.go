package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// route selects which of the hub's addresses an agent dials next, and when.
//
//   - After a session, its address is dialed first. After a failed attempt, the next address is dialed.
//   - Between two addresses there is a short random pause, so that agents that lost one hub together do not reach another
//     together. After all addresses have failed, there is a pause that doubles.
//   - A session with another address than the first ends when the first accepts sessions again.
//   - An address whose hub the agent does not follow, because another hub was promoted or it is another hub, is skipped. It
//     is dialed again only after all others have failed, every other time.
type route struct {
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

func newRoute(addresses int, random func() float64) *route {
	return &route{addresses: addresses, random: random, wrong: make([]bool, addresses), pauses: newPauses(random),
		returns: &backoff.Backoff{Min: minReturn, Max: maxReturn, Jitter: random}}
}

// Pauses before an agent tries the first address again during a session with another one: half of it to all of it.
const (
	minReturn = 10 * time.Minute
	maxReturn = time.Hour
)

// next handles the end of an attempt: whether a session was opened, how long it lasted and why it ended. It returns the
// pause before the next attempt.
func (r *route) next(opened bool, lasted time.Duration, ended error) time.Duration {
	r.requested = max(r.requested, retryAfter(ended))
	if opened || isWrongHub(ended) {
		r.wrong[r.current], r.dialWrong = !opened, r.dialWrong && !opened
	}
	switch {
	case opened && r.current == 0:
		r.returns.Reset()
	case opened && isReturn(ended):
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
func (r *route) advance() {
	for r.failed < r.addresses {
		r.current = (r.current + 1) % r.addresses
		if r.dialWrong || !r.wrong[r.current] {
			return
		}
		r.failed++
	}
	r.dialWrong = !r.dialWrong
}

// mayReturn reports whether a session with the current address ends when the first accepts sessions again.
func (r *route) mayReturn() bool { return r.current != 0 && !r.wrong[0] }

// isWrongHub reports whether the agent has ended a session because it does not follow the hub.
func isWrongHub(ended error) bool {
	bye, ok := errors.AsType[*ByeError](ended)
	return ok && bye.Local && (bye.Code == engine.HubSuperseded || bye.Code == engine.WrongHub)
}

// returnToFirst ends a session with another hub than the first when the first accepts sessions again.
func (d *Dialer) returnToFirst(c *Conn) {
	first := d.cfg.Connectors[0]
	for backoff.Sleep(c.ctx, d.route.returns.Next()) {
		session, err := first.Connect(c.ctx, &d.counters, nil)
		if err != nil {
			continue
		}
		session.Close()
		c.Close(engine.Reconnect, fmt.Sprintf("%s accepts sessions again", first.Address()))
		return
	}
}

// isReturn reports whether returnToFirst has ended a session.
func isReturn(ended error) bool {
	bye, ok := errors.AsType[*ByeError](ended)
	return ok && bye.Local && bye.Code == engine.Reconnect
}

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

// retryAfter returns the pause that the hub requested.
func retryAfter(err error) time.Duration {
	if bye, ok := errors.AsType[*ByeError](err); ok {
		return bye.RetryAfter
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.RetryAfter
	}
	return 0
}
