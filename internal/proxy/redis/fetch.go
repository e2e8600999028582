package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// answer is what becomes of a question about an agent's key.
type answer struct {
	value []byte
	found bool
	err   error
}

// flight is a request to an agent that is under way.
type flight struct {
	era   uint64 // of the cache
	seq   uint64
	heard bool
	done  chan struct{}
	is    answer
}

// question names a key of an agent as the hub asks for it.
type question struct {
	target Target
	key    appKey
}

// id names the value in the cache.
func (q question) id() string {
	id := q.target.Agent + "\n" + q.key.plain(q.target.Local)
	if q.key.zipped {
		id += gzipSuffix
	}
	return id
}

// cacheable: Argo CD tells of a change after it wrote the tree, but before it writes the managed resources.
func (q question) cacheable() bool { return q.key.kind == ResourcesTree }

var errTooSlow = errors.New("no answer in time")

// get answers from the cache at once, or later from the agent, on another goroutine.
func (a *agents) get(q question, then func(answer)) {
	id, era := q.id(), a.cache.era()
	last, known := a.cache.get(id)
	var current *flight
	a.with(q.target.Agent, func(p *peer) {
		var ch channel
		if q.cacheable() {
			ch = *p.want(q.key.channel(q.target.Local), time.Now().Add(a.cfg.CacheIdle))
			if known && last.heard && ch.heard && last.seq == ch.seq && time.Since(last.at) < a.cfg.CacheAge {
				return
			}
			// Who asks after a change must not get what somebody asked for before it.
			if f := p.flights[id]; f != nil && f.heard && ch.heard && f.seq == ch.seq {
				current = f
				return
			}
		}
		current = &flight{era: era, seq: ch.seq, heard: ch.heard, done: make(chan struct{})}
		p.flights[id] = current
		a.tasks.Go(func() { p.fly(q, id, current) })
	})
	if current == nil {
		a.counts.hits.Add(1)
		then(answer{value: last.value, found: true})
		return
	}
	a.tasks.Go(func() { then(a.wait(q.target.Agent, current, last, known)) })
}

// wait for an agent: shortly if there is a last known value, which is better than nothing.
func (a *agents) wait(agent string, f *flight, last entry, known bool) answer {
	patience := a.cfg.Timeout
	if known {
		patience = a.cfg.Patience
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	is := answer{err: fmt.Errorf("agent %s does not answer: %w", agent, errTooSlow)}
	select {
	case <-f.done:
		is = f.is
	case <-timer.C:
	}
	if is.err != nil && known {
		a.counts.stale.Add(1)
		return answer{value: last.value, found: true}
	}
	return is
}

// fly asks the agent and keeps the answer, also if whoever asked has given up.
func (p *peer) fly(q question, id string, f *flight) {
	at := time.Now()
	ctx, cancel := context.WithTimeoutCause(p.all.ctx, p.all.cfg.Timeout, errTooSlow)
	f.is = p.fetch(ctx, q)
	cancel()
	switch {
	case f.is.err != nil:
	case f.is.found:
		p.all.cache.put(entry{id: id, value: f.is.value, seq: f.seq, heard: f.heard, at: at}, f.era)
	default:
		p.all.cache.remove(id, at)
	}
	p.mu.Lock()
	if p.flights[id] == f {
		delete(p.flights, id)
	}
	p.mu.Unlock()
	close(f.done)
}

// fetch reads a value in whichever form the agent's Argo CD has stored it.
func (p *peer) fetch(ctx context.Context, q question) answer {
	plain := q.key.plain(q.target.Local)
	values, err := p.ask(ctx, "MGET", plain, plain+gzipSuffix)
	if err == nil && len(values) != 2 {
		err = fmt.Errorf("agent %s answers %d values where 2 were asked for", p.name, len(values))
	}
	if err != nil {
		return answer{err: err}
	}
	zipped := q.key.zipped
	switch {
	case values[0] == nil && values[1] == nil:
		return answer{}
	case values[0] == nil:
		zipped = true
	case values[1] == nil:
		zipped = false
	default: // the agent's setting has changed: the one that lives longer was written later
		ages, err := p.ages(ctx, plain)
		if err != nil {
			return answer{err: err}
		}
		if ages[0] != ages[1] {
			zipped = ages[1] > ages[0]
		}
	}
	value := values[0]
	if zipped {
		value = values[1]
	}
	var rewrite func([]byte) []byte
	if q.target.Rewrite && p.all.cfg.Rewrite != nil {
		rewrite = func(json []byte) []byte { return p.all.cfg.Rewrite(p.name, q.key.kind, json) }
	}
	value, err = convert(value, zipped, q.key.zipped, p.all.cfg.MaxValue, rewrite)
	if err != nil {
		return answer{err: fmt.Errorf("agent %s: %w", p.name, err)}
	}
	return answer{value: value, found: true}
}

// ages tells how many seconds a key has to live, plain and compressed; -2: it is not there.
func (p *peer) ages(ctx context.Context, plain string) (ages [2]int64, err error) {
	for i, key := range []string{plain, plain + gzipSuffix} {
		reply, err := p.ask(ctx, "TTL", key)
		if err != nil {
			return ages, err
		}
		if ages[i], err = strconv.ParseInt(string(reply[0]), 10, 64); err != nil {
			return ages, fmt.Errorf("agent %s answers to TTL: %w", p.name, err)
		}
	}
	return ages, nil
}

// ttl tells how many seconds a key has to live.
func (a *agents) ttl(q question) (seconds int64, err error) {
	var p *peer
	a.with(q.target.Agent, func(found *peer) { p = found })
	ctx, cancel := context.WithTimeoutCause(a.ctx, a.cfg.Timeout, errTooSlow)
	defer cancel()
	ages, err := p.ages(ctx, q.key.plain(q.target.Local))
	return max(ages[0], ages[1]), err
}
