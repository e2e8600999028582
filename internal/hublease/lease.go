package hublease

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
)

// Shares of the duration of the Lease. The holder stops a margin before the Lease can expire for a standby.
const (
	renewals = 6 // in the duration
	margin   = 6 // the part of the duration that is the margin
)

// Interval returns the pause between two renewals of a Lease with this duration.
func Interval(duration time.Duration) time.Duration { return duration / renewals }

// ServesFor returns for how long a hub may serve agents after it began to renew a Lease with this duration.
func ServesFor(duration time.Duration) time.Duration { return duration - duration/margin }

// conflictPause is the pause after a write that another replica preceded.
const conflictPause = 100 * time.Millisecond

// Durations of a Lease.
const (
	DefaultDuration = time.Minute
	MinDuration     = 15 * time.Second
)

// Limits of Behind. A standby records about once a minute that it has everything.
const (
	DefaultMaxLag = 10 * time.Minute
	MinMaxLag     = 2 * time.Minute
)

// leaseStore reads and writes the Lease. Writes fail with a conflict if the Lease has changed since it was read.
type leaseStore interface {
	// read returns the Lease, its resourceVersion and the duration that its holder wrote.
	read(ctx context.Context) (Record, string, time.Duration, error)
	write(ctx context.Context, resourceVersion string, l Record, duration time.Duration) error
}

// stateStore reads and writes the state of this hub.
type stateStore interface {
	read(ctx context.Context) (hubstate.State, error)
	// replace fails with a conflict if the state is no longer from.
	replace(ctx context.Context, from, to hubstate.State) error
}

// Lease is the Lease of a group of hubs, as one principal replica uses it.
type Lease struct {
	lease      leaseStore
	states     stateStore
	clusterUID string
	state      hubstate.State // of this hub, with which the process started
	duration   time.Duration
	maxLag     time.Duration    // see Settings
	clock      func() time.Time // the wall clock
	log        *slog.Logger

	version string    // resourceVersion that was read last
	since   time.Time // when it was first read

	proven      int64     // standby: the record of when it had everything, as it was read last
	provenSince time.Time // when this record was first read

	mu     sync.Mutex
	until  time.Time // until when this replica may serve agents
	reason string    // why this hub waits
}

// errRestart ends the process, so that it starts with the new state.
var errRestart = errors.New("the Lease of the hubs changed the state of this hub: start again")

// Reason returns why this hub does not hold the Lease, or "".
func (l *Lease) Reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reason
}

func (l *Lease) heldUntil() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

func (l *Lease) setHeldUntil(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = t
}

func (l *Lease) setReason(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reason = text
}

// TryHold tries once to hold the Lease, see Held. It returns an error if the process has to start again.
func (l *Lease) TryHold(ctx context.Context) error {
	_, err := l.step(ctx)
	switch {
	case errors.Is(err, errRestart):
		return err
	case err != nil:
		l.setReason(err.Error())
	}
	return nil
}

// Held reports whether this hub holds the Lease, so that this replica may serve agents.
func (l *Lease) Held() bool { return time.Now().Before(l.heldUntil()) }

// Hold returns when this hub holds the Lease and may serve agents. It returns an error if the process has to start again.
func (l *Lease) Hold(ctx context.Context) error { return l.repeat(ctx, l.Held) }

// Renew renews the Lease until ctx ends. It returns an error before the Lease can expire for a standby. Hold must have
// returned.
func (l *Lease) Renew(ctx context.Context) error {
	for {
		if err := l.renewOnce(ctx); err != nil {
			return err
		}
	}
}

func (l *Lease) renewOnce(ctx context.Context) error {
	before := l.heldUntil()
	ctx, cancel := context.WithDeadlineCause(ctx, before, errNotRenewed)
	defer cancel()
	if !backoff.Sleep(ctx, Interval(l.duration)) {
		return context.Cause(ctx)
	}
	return l.repeat(ctx, func() bool { return l.heldUntil().After(before) })
}

var errNotRenewed = errors.New("the Lease of the hubs was not renewed in time, so that another hub may take over: start again")

// Follow waits as a standby until this hub has to become active. Then it writes the state of this hub and returns an error.
func (l *Lease) Follow(ctx context.Context) error {
	return l.repeat(ctx, func() bool { return false })
}

// repeat takes steps until done. It polls: the interval is that of renewals, and expiry is a matter of time.
func (l *Lease) repeat(ctx context.Context, done func() bool) error {
	var logged logonce.One
	for {
		again, err := l.step(ctx)
		switch {
		case errors.Is(err, errRestart):
			return err
		case err != nil:
			l.setReason(err.Error())
			if logged.Changed(err.Error()) && ctx.Err() == nil {
				l.log.WarnContext(ctx, "Failed to use the Lease of the hubs, retrying", "error", err)
			}
		case done():
			l.setReason("")
			return nil
		default:
			if reason := l.Reason(); reason != "" && logged.Changed(reason) {
				l.log.InfoContext(ctx, "Waiting for the Lease of the hubs", "reason", reason)
			}
		}
		pause := Interval(l.duration)
		if again {
			pause = conflictPause
		}
		if !backoff.Sleep(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// step reads the Lease and does what decide returns. It reports whether to repeat at once.
func (l *Lease) step(ctx context.Context) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Interval(l.duration))
	defer cancel()
	began := time.Now()
	is, version, written, err := l.lease.read(ctx)
	if err != nil {
		return false, err
	}
	if version != l.version {
		l.version, l.since = version, time.Now()
	}
	is.Expired = time.Since(l.since) > max(l.duration, written)
	state, behind := l.state, ""
	if l.decidesByState(is) {
		if state, err = l.states.read(ctx); err != nil {
			return false, err
		}
		if !hubstate.SameRole(state, l.state) {
			return false, errRestart // another replica or a user has changed it
		}
	}
	if state.Role == hubstate.Standby {
		behind = l.behind(state, max(l.duration, written))
	}
	switch d := Decide(l.clusterUID, state, is, behind); d.Action {
	case Claim:
		next := Record{Exists: true, Identity: l.state.Identity, Holder: l.clusterUID, Generation: d.Generation}
		if err := l.lease.write(ctx, version, next, l.duration); err != nil {
			return kube.IsConflict(err), err // another replica of this hub has renewed it, or another hub has taken over
		}
		if l.state.Role != hubstate.Active {
			return true, nil // the next decision is to become active
		}
		l.setHeldUntil(began.Add(ServesFor(l.duration)))
	case Release:
		return false, l.lease.write(ctx, version, Record{Exists: true, Identity: l.state.Identity, Generation: d.Generation}, l.duration)
	case BecomeActive, BecomeStandby:
		next := StateAfter(state, d, is)
		if err := l.states.replace(ctx, state, next); err != nil {
			return false, err
		}
		l.log.WarnContext(ctx, "Changed the state of this hub", "role", string(next.Role), "generation", next.Generation)
		return false, errRestart
	case Wait:
		l.setReason(d.Reason)
	}
	return false, nil
}

// decidesByState reports whether the state with which the process started is not enough. Replication updates that of a standby all
// the time. An active hub that does not hold the Lease may have been demoted: another replica has then given the Lease up.
func (l *Lease) decidesByState(is Record) bool {
	if l.state.Role == hubstate.Standby {
		return is.Expired || l.maxLag > 0
	}
	return is.Holder != l.clusterUID
}

// behind returns why this standby may lack too much to take over, or "". For how long its record has not changed is known from
// the start of this process on.
func (l *Lease) behind(s hubstate.State, duration time.Duration) string {
	if s.ProvenAt != l.proven || l.provenSince.IsZero() {
		l.proven, l.provenSince = s.ProvenAt, time.Now()
	}
	return Behind(s, l.clock(), time.Since(l.provenSince), l.maxLag, duration)
}
