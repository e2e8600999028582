package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file tells clients that something may have changed, because they would not have heard of it: all of a channel whose
// subscription stands again, or one that has come to it. They read the tree then, and Argo CD gives up a stream if there
// is none; so they are told only if there is one. If there is not, its making will be told.
//
// After an agent has come back this is about every Application that somebody looks at, at once. Each is asked about until
// there is an answer, but only some at a time: others want answers of the agent as well.

const (
	parallelReminders = 32
	reminderPause     = time.Second // after a question without an answer
)

// remindSoon has the clients of a channel reminded, or only one of them. p.mu is held.
func (p *peer) remindSoon(name string, only *listener) {
	whom, waits := p.due[name]
	switch {
	case only == nil:
		p.due[name] = nil // all
	case !waits:
		p.due[name] = map[*listener]bool{only: true}
	case whom != nil:
		whom[only] = true
	}
	if p.reminders < parallelReminders && p.reminders < len(p.due) && p.all.ctx.Err() == nil {
		p.reminders++
		p.all.tasks.Go(p.remindAll)
	}
}

// remindAll reminds as long as there is somebody to be.
func (p *peer) remindAll() {
	for {
		name, whom, ok := p.nextDue()
		if !ok {
			return
		}
		there, err := p.hasTree(name)
		if err != nil {
			p.remindAgain(name, whom)
			select {
			case <-time.After(reminderPause):
			case <-p.all.ctx.Done():
			}
			continue
		}
		if there {
			p.tellSome(name, "", whom)
		}
	}
}

// nextDue takes a channel whose clients are to be reminded; false: there is none, and who asked has to end.
func (p *peer) nextDue() (name string, whom map[*listener]bool, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all.ctx.Err() == nil {
		for name, whom = range p.due {
			delete(p.due, name)
			return name, whom, true
		}
	}
	p.reminders--
	return "", nil, false
}

// remindAgain puts back what could not be done. What is not subscribed to any more will be, or nobody wants it.
func (p *peer) remindAgain(name string, whom map[*listener]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch := p.channels[name]; ch == nil || !ch.heard {
		return
	}
	if later, waits := p.due[name]; waits && (whom == nil || later == nil) {
		whom = nil
	} else {
		maps.Copy(whom, later)
	}
	p.due[name] = whom
}

// hasTree asks the agent whether it has the tree of an Application, given the channel of its changes.
func (p *peer) hasTree(channel string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(p.all.ctx, p.all.cfg.Timeout, errTooSlow)
	defer cancel()
	key, ok := parseKey([]byte(channel))
	if !ok {
		return false, nil
	}
	key.kind = ResourcesTree
	plain := key.plain(key.app)
	count, err := p.ask(ctx, "EXISTS", plain, plain+gzipSuffix)
	if err == nil && len(count) != 1 {
		err = fmt.Errorf("agent %s answers EXISTS with %d values", p.name, len(count))
	}
	return err == nil && string(count[0]) != "0", err
}

// tellSome tells everybody who listens to a channel, or those of them that are given.
func (p *peer) tellSome(name, payload string, whom map[*listener]bool) {
	p.mu.Lock()
	var listeners []*listener
	if ch := p.channels[name]; ch != nil {
		listeners = slices.Collect(maps.Keys(ch.listeners))
	}
	p.mu.Unlock()
	told := map[string]bool{}
	for _, l := range listeners {
		if whom != nil && !whom[l] {
			continue
		}
		l.tell(payload)
		if whom == nil && !told[l.channel] {
			told[l.channel] = true
			p.all.patterns.tell(l.channel, payload)
		}
	}
}
