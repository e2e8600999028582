package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// agentValue is the result of a lookup.
type agentValue struct {
	value []byte
	found bool
	err   error
}

// agentLookup names a key of an agent as the hub requests it.
type agentLookup struct {
	target Target
	key    appKey
}

// id names the value in the cache.
func (l agentLookup) id() string {
	id := l.target.Agent + "\n" + l.key.plain(l.target.Local)
	if l.key.zipped {
		id += gzipSuffix
	}
	return id
}

// cacheable reports whether a message announces every change: Argo CD publishes it after it writes the tree, but before
// it writes the managed resources.
func (l agentLookup) cacheable() bool { return l.key.kind == ResourcesTree }

// inflightRead is a request to an agent without a reply yet.
type inflightRead struct {
	generation uint64 // of the cache
	seq        uint64
	confirmed  bool
	done       chan struct{}
	result     agentValue
}

// pendingRead is a value that is read, or was cached.
type pendingRead struct {
	inflight *inflightRead // nil if cached is fresh
	cached   entry
	known    bool // there is a cached value
}

var errTimeout = errors.New("no reply in time")

// read returns the cached value if it is fresh. Otherwise it requests the value from the agent on another goroutine.
func (a *agentPool) read(l agentLookup) pendingRead {
	id, now := l.id(), time.Now()
	r := inflightRead{generation: a.cache.generation(), done: make(chan struct{})}
	pending := pendingRead{}
	pending.cached, pending.known = a.cache.get(id)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.client(l.target.Agent)
	if l.cacheable() {
		ch := p.want(l.key.channel(l.target.Local), now.Add(a.cfg.CacheIdle))
		r.seq, r.confirmed = ch.seq, ch.confirmed
		fresh := func(seq uint64, confirmed bool) bool { return confirmed && ch.confirmed && seq == ch.seq }
		if last := pending.cached; pending.known && fresh(last.seq, last.confirmed) && now.Sub(last.at) < a.cfg.CacheMaxAge {
			a.counts.hits.Add(1)
			return pending
		}
		// A read that started before the last change can return the old value, so it is not shared.
		if shared := p.reads[id]; shared != nil && fresh(shared.seq, shared.confirmed) {
			pending.inflight = shared
			return pending
		}
	}
	pending.inflight = &r
	p.reads[id] = &r
	a.tasks.Go(func() { p.fetchAndCache(l, id, &r) })
	return pending
}

// wait returns the value of a read. If the agent does not reply, it returns the last known value.
func (a *agentPool) wait(agent string, p pendingRead) agentValue {
	cached := agentValue{value: p.cached.value, found: true}
	if p.inflight == nil {
		return cached
	}
	limit := a.cfg.Timeout
	if p.known {
		limit = a.cfg.StaleAfter
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	result := agentValue{err: fmt.Errorf("agent %s does not respond: %w", agent, errTimeout)}
	select {
	case <-p.inflight.done:
		result = p.inflight.result
	case <-timer.C:
	}
	if result.err != nil && p.known {
		a.counts.stale.Add(1)
		return cached
	}
	return result
}

// fetchAndCache reads a value from the agent and caches it, even if no caller waits for it any longer.
func (p *agentClient) fetchAndCache(l agentLookup, id string, r *inflightRead) {
	at := time.Now()
	ctx, cancel := context.WithTimeoutCause(p.pool.ctx, p.pool.cfg.Timeout, errTimeout)
	r.result = p.fetch(ctx, l)
	cancel()
	switch {
	case r.result.err != nil:
	case r.result.found:
		p.pool.cache.put(entry{id: id, value: r.result.value, seq: r.seq, confirmed: r.confirmed, at: at}, r.generation)
	default:
		p.pool.cache.remove(id, at)
	}
	p.pool.mu.Lock()
	if p.reads[id] == r {
		delete(p.reads, id)
	}
	p.pool.mu.Unlock()
	close(r.done)
}

// fetch reads a value in the form in which the agent's Argo CD stored it, and converts it.
func (p *agentClient) fetch(ctx context.Context, l agentLookup) agentValue {
	plain := l.key.plain(l.target.Local)
	values, err := p.request(ctx, 2, "MGET", plain, plain+gzipSuffix)
	if err != nil {
		return agentValue{err: err}
	}
	stored := 0
	switch {
	case values[0] == nil && values[1] == nil:
		return agentValue{}
	case values[0] == nil:
		stored = 1
	case values[1] != nil: // the agent's setting changed. The value that expires later was written later.
		ttls, err := p.ttls(ctx, plain)
		if err != nil {
			return agentValue{err: err}
		}
		if ttls[1] > ttls[0] || ttls[1] == ttls[0] && l.key.zipped {
			stored = 1
		}
	}
	var rewrite func([]byte) []byte
	if l.target.Rewrite && p.pool.cfg.Rewrite != nil {
		rewrite = func(json []byte) []byte { return p.pool.cfg.Rewrite(p.name, l.key.kind, json) }
	}
	value, err := convert(values[stored], stored == 1, l.key.zipped, p.pool.cfg.MaxValue, rewrite)
	if err != nil {
		return agentValue{err: fmt.Errorf("agent %s: %w", p.name, err)}
	}
	return agentValue{value: value, found: true}
}

// ttls returns the seconds until the plain and the compressed key expire, -2 for a key that does not exist.
func (p *agentClient) ttls(ctx context.Context, plain string) (ttls [2]int, err error) {
	for i, key := range []string{plain, plain + gzipSuffix} {
		reply, err := p.request(ctx, 1, "TTL", key)
		if err != nil {
			return ttls, err
		}
		if ttls[i], err = strconv.Atoi(string(reply[0])); err != nil {
			return ttls, fmt.Errorf("agent %s: read TTL: %w", p.name, err)
		}
	}
	return ttls, nil
}

// ttlReply returns the reply to TTL or PTTL.
func (a *agentPool) ttlReply(l agentLookup, milliseconds bool) []byte {
	a.mu.Lock()
	p := a.client(l.target.Agent)
	a.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(a.ctx, a.cfg.Timeout, errTimeout)
	defer cancel()
	ttls, err := p.ttls(ctx, l.key.plain(l.target.Local))
	if err != nil {
		return errorReply("ERR " + err.Error())
	}
	longest := max(ttls[0], ttls[1])
	if milliseconds && longest > 0 {
		longest *= 1000
	}
	return appendHeader(nil, ':', longest)
}
