package redis

import (
	"context"
	"maps"
	"slices"
	"time"
)

// This file notifies clients that can have missed a change: all subscribers of a channel whose subscription was restored,
// or one new subscriber. A notified client reads the tree, and Argo CD closes the stream if there is none. So the agent is
// asked first whether it has the tree.
//
// After a reconnect this concerns every Application that users look at. The number of parallel requests is limited, so
// that other requests to the agent succeed.

const (
	maxNotifiers     = 32
	notifyRetryAfter = time.Second
)

// scheduleNotify notifies the subscribers of a channel, or only one of them. The caller must hold pool.mu.
func (p *agentClient) scheduleNotify(name string, only *subscriber) {
	to, scheduled := p.due[name]
	switch {
	case only == nil:
		p.due[name] = nil
	case !scheduled:
		p.due[name] = map[*subscriber]bool{only: true}
	case to != nil:
		to[only] = true
	}
	if p.notifiers < maxNotifiers && p.notifiers < len(p.due) && p.pool.ctx.Err() == nil {
		p.notifiers++
		p.pool.tasks.Go(p.runNotify)
	}
}

// runNotify notifies subscribers until none are due.
func (p *agentClient) runNotify() {
	for {
		name, to, ok := p.nextDue()
		if !ok {
			return
		}
		exists, err := p.hasTree(name)
		if err != nil {
			p.reschedule(name, to)
			select {
			case <-time.After(notifyRetryAfter):
			case <-p.pool.ctx.Done():
			}
		} else if exists {
			p.sendTo(name, "", to)
		}
	}
}

// nextDue returns a channel whose subscribers are due. If it returns false, the goroutine of the caller must end.
func (p *agentClient) nextDue() (name string, to map[*subscriber]bool, ok bool) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if p.pool.ctx.Err() == nil {
		for name, to = range p.due {
			delete(p.due, name)
			return name, to, true
		}
	}
	p.notifiers--
	return "", nil, false
}

// reschedule restores subscribers that could not be notified, unless the subscription was lost: its next confirmation
// schedules them again.
func (p *agentClient) reschedule(name string, to map[*subscriber]bool) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if ch := p.channels[name]; ch == nil || !ch.confirmed {
		return
	}
	if later, scheduled := p.due[name]; scheduled && (to == nil || later == nil) {
		to = nil
	} else {
		maps.Copy(to, later)
	}
	p.due[name] = to
}

// hasTree asks the agent whether it has the resource tree of the Application to which a channel belongs.
func (p *agentClient) hasTree(channel string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(p.pool.ctx, p.pool.cfg.Timeout, errTimeout)
	defer cancel()
	key, ok := parseKey([]byte(channel))
	if !ok {
		return false, nil
	}
	key.kind = ResourcesTree
	plain := key.plain(key.app)
	count, err := p.request(ctx, 1, "EXISTS", plain, plain+gzipSuffix)
	return err == nil && string(count[0]) != "0", err
}

// sendTo delivers a message to the given subscribers of a channel. If to is nil, it delivers to all, and to clients with a
// matching pattern.
func (p *agentClient) sendTo(name, payload string, to map[*subscriber]bool) {
	p.pool.mu.Lock()
	var subscribers []*subscriber
	if ch := p.channels[name]; ch != nil {
		subscribers = slices.Collect(maps.Keys(ch.subscribers))
	}
	p.pool.mu.Unlock()
	sent := map[string]bool{}
	for _, s := range subscribers {
		if to != nil && !to[s] {
			continue
		}
		s.send(payload)
		if to == nil && !sent[s.channel] {
			sent[s.channel] = true
			p.pool.patterns.send(s.channel, payload)
		}
	}
}
