package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

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
	seq   uint64
	done  chan struct{}
	value []byte // nil if there is none
	err   error
}

var errTimeout = errors.New("no reply in time")

// get returns the cached value if it is fresh. Otherwise it requests the value from the agent. If the agent does not reply
// in time, it returns the last known value. It returns nil if there is no value.
func (a *agentPool) get(l agentLookup) ([]byte, error) {
	read, cached, known := a.read(l)
	if read == nil {
		return cached.value, nil
	}
	limit := a.cfg.Timeout
	if known {
		limit = a.cfg.StaleAfter
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	value, err := []byte(nil), fmt.Errorf("agent %s does not respond: %w", l.target.Agent, errTimeout)
	select {
	case <-read.done:
		value, err = read.value, read.err
	case <-timer.C:
	}
	if err != nil && known {
		a.counts.stale.Add(1)
		return cached.value, nil
	}
	return value, err
}

// read returns the cached value, and the request to the agent unless the value is fresh.
func (a *agentPool) read(l agentLookup) (read *inflightRead, cached entry, known bool) {
	id, now := l.id(), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	cached, known = a.cache.get(id)
	p := a.client(l.target.Agent)
	read = &inflightRead{done: make(chan struct{})}
	if l.cacheable() {
		ch := p.want(l.key.channel(l.target.Local), now.Add(a.cfg.CacheIdle))
		if ch.confirmed && known && cached.seq == ch.seq && now.Sub(cached.at) < cacheMaxAge {
			a.counts.hits.Add(1)
			return nil, cached, known
		}
		// A read that started before the last change can return the old value, so it is not shared.
		if shared := p.reads[id]; shared != nil && ch.confirmed && shared.seq == ch.seq {
			return shared, cached, known
		}
		read.seq = ch.seq
	}
	if p.reading >= maxAgentReads {
		read.err = fmt.Errorf("agent %s does not respond: %d requests wait for it", p.name, p.reading)
		close(read.done)
		return read, cached, known
	}
	p.reading++
	p.reads[id] = read
	a.tasks.Go(func() { p.fetchAndCache(l, id, read) })
	return read, cached, known
}

// fetchAndCache reads a value from the agent and caches it, even if no caller waits for it any longer.
func (p *agentClient) fetchAndCache(l agentLookup, id string, r *inflightRead) {
	at := time.Now()
	ctx, cancel := context.WithTimeoutCause(p.ctx, p.pool.cfg.Timeout, errTimeout)
	r.value, r.err = p.fetch(ctx, l)
	// After a start there is no last known value, and Argo CD ends the streams of its users after an error.
	for notYetConnected(r.err) && time.Since(p.pool.began) < startPeriod && backoff.Sleep(ctx, firstRetry) {
		r.value, r.err = p.fetch(ctx, l)
	}
	cancel()
	p.pool.mu.Lock()
	if r.err == nil && p.ctx.Err() == nil { // otherwise it can be the value of a forgotten agent
		p.pool.cache.put(entry{id: id, value: r.value, seq: r.seq, at: at})
	}
	if p.reading--; p.reads[id] == r {
		delete(p.reads, id)
	}
	p.pool.mu.Unlock()
	close(r.done)
}

// notYetConnected reports whether a DialFunc failed because the agent has not connected since the principal started.
func notYetConnected(err error) bool {
	var e interface{ NotYetConnected() bool }
	return errors.As(err, &e) && e.NotYetConnected()
}

// fetch reads a value in the form in which the agent's Argo CD stored it, and converts it.
func (p *agentClient) fetch(ctx context.Context, l agentLookup) ([]byte, error) {
	plain := l.key.plain(l.target.Local)
	m := p.memory()
	defer m.release()
	values, err := p.request(ctx, m, 2, "MGET", plain, plain+gzipSuffix)
	if err != nil {
		return nil, err
	}
	stored := 0
	switch {
	case values[0] == nil && values[1] == nil:
		return nil, nil
	case values[0] == nil:
		stored = 1
	case values[1] != nil: // the agent's setting changed
		if stored, err = p.newer(ctx, m, plain, l.key.zipped); err != nil {
			return nil, err
		}
	}
	var rewrite func([]byte) ([]byte, error)
	if (l.target.Rewrite || l.key.kind == ManagedResources && l.key.app != l.target.Local) && p.pool.cfg.Rewrite != nil {
		rewrite = func(json []byte) ([]byte, error) {
			return p.pool.cfg.Rewrite(l.target, l.key.kind, l.key.app, json, maxValue)
		}
	}
	value, err := convert(values[stored], stored == 1, l.key.zipped, maxValue, rewrite, func(n int) error { return m.reserve(ctx, n) })
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", p.name, err)
	}
	return value, nil
}

// newer returns 0 if the plain value was written later, and 1 if it was the compressed one: the value that expires later.
func (p *agentClient) newer(ctx context.Context, m *memory, plain string, zipped bool) (int, error) {
	var ttls [2]int
	for i, key := range []string{plain, plain + gzipSuffix} {
		reply, err := p.request(ctx, m, 1, "TTL", key)
		if err != nil {
			return 0, err
		}
		if ttls[i], err = strconv.Atoi(string(reply[0])); err != nil {
			return 0, fmt.Errorf("agent %s: read TTL: %w", p.name, err)
		}
	}
	if ttls[1] > ttls[0] || ttls[1] == ttls[0] && zipped {
		return 1, nil
	}
	return 0, nil
}
