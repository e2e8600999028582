package sim

import (
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/hublease"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
)

// This file is the Lease in a third place that decides which of two hubs is active. The decisions are those of the product.

// hubLeaseDuration is the default of the product.
const hubLeaseDuration = time.Minute

func ms(d time.Duration) engine.Time { return engine.Time(d.Milliseconds()) }

// hubLease is the Lease, with the API server that has it.
type hubLease struct {
	record    hublease.Record
	version   uint64
	lostUntil [2]engine.Time // until when each hub cannot reach it
}

// leaseView is the Lease as one process sees it.
type leaseView struct {
	version uint64
	since   engine.Time // when this version was first read
	until   engine.Time // until when the process may serve agents
}

// holdsLease reports whether a process may serve agents.
func (p *process) holdsLease() bool { return p.w.group.lease == nil || p.w.now < p.lease.until }

// holdsLease reports whether a replica of the hub may serve.
func (s *site) holdsLease() bool {
	return slices.ContainsFunc(s.principals, func(p *process) bool { return p.up && p.holdsLease() })
}

// useLease reads the Lease, does what is decided, and comes back.
func (p *process) useLease() {
	pause := ms(hublease.Interval(hubLeaseDuration))
	if p.stepLease() {
		pause = 100
	}
	p.later(pause, p.useLease)
}

// stepLease takes one step. It reports whether to repeat at once.
func (p *process) stepLease() (again bool) {
	w, s, l := p.w, p.site, p.w.group.lease
	if w.now < l.lostUntil[s.index] {
		return false
	}
	is, version := l.record, l.version
	if version != p.lease.version {
		p.lease.version, p.lease.since = version, w.now
	}
	is.Expired = w.now-p.lease.since > ms(hubLeaseDuration) || w.mutant.takesLease
	state, uid := p.born, p.cluster.st.uid
	if state.Role == hubstate.Standby && is.Expired || state.Role == hubstate.Active && is.Holder != uid {
		if p.cluster.down() {
			return false
		}
		if state = s.hub().State; !sameRole(state, p.born) {
			return false // it starts again
		}
	}
	switch d := hublease.Decide(uid, state, is, ""); d.Action {
	case hublease.Claim:
		l.write(hublease.Record{Exists: true, Identity: p.born.Identity, Holder: uid, Generation: d.Generation})
		// After a demotion, replicas that have not heard of it may still serve, with or without a Lease. A renewal takes nothing.
		w.check(is.Holder == "" || is.Holder == uid || !s.other().holdsLease(), "%s takes the Lease, and %s may still serve agents", p.name, s.other().cluster.name)
		if p.born.Role != hubstate.Active {
			w.tracef("%s: takes over with generation %d", p.name, d.Generation)
			return true
		}
		p.lease.until = w.now + ms(hublease.ServesFor(hubLeaseDuration))
		p.later(p.lease.until-w.now, p.endWithoutLease)
	case hublease.Release:
		l.write(hublease.Record{Exists: true, Identity: p.born.Identity, Generation: d.Generation})
	case hublease.BecomeActive, hublease.BecomeStandby:
		p.becomes(state, hublease.StateAfter(state, d, is))
	case hublease.Wait:
	}
	return false
}

func (l *hubLease) write(r hublease.Record) {
	l.record = r
	l.version++
}

// becomes writes the state of the hub that the Lease decides, unless a user has changed it.
func (p *process) becomes(from, next hubstate.State) {
	is := p.site.hub().State
	if p.cluster.down() || !sameRole(is, from) {
		return
	}
	if from.Role == hubstate.Standby {
		next.Predecessor = is.Predecessor
		p.site.lossy = true
	}
	p.site.write(actor{what: p.name, proc: p}, next)
	if next.Role == hubstate.Active {
		p.w.group.use(p.site)
	}
}

// endWithoutLease ends a process that could not renew the Lease in time.
func (p *process) endWithoutLease() {
	if p.w.now >= p.lease.until {
		p.w.tracef("%s: the Lease was not renewed", p.name)
		p.restartIn(p.w.between(second, 5*second))
	}
}

// withoutLease keeps a hub from the Lease.
func withoutLease(w *world, a action) {
	if l := w.group.lease; l != nil {
		i := a.n[0] % 2
		l.lostUntil[i] = w.now + 2*span(a.n[1])
		w.tracef("%s: does not reach the Lease", w.group.sites[i].cluster.name)
	}
}
