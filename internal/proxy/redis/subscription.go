package redis

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"
)

const (
	pingAfter   = 10 * time.Second // without a message the agent's Redis is asked for a sign of life
	silentAfter = 25 * time.Second // without any the connection is given up
	firstRetry  = 100 * time.Millisecond
	lastRetry   = 5 * time.Second
	atOnce      = 256 // names in one SUBSCRIBE
)

// want returns a channel and keeps it until a time. p.mu is held.
func (p *peer) want(name string, until time.Time) *channel {
	ch := p.channels[name]
	if ch == nil {
		ch = &channel{seq: p.all.turn(), listeners: map[*listener]bool{}}
		p.channels[name] = ch
		p.wake()
	}
	if until.After(ch.usedUntil) {
		ch.usedUntil = until
	}
	return ch
}

// release forgets a channel that nobody needs. p.mu is held.
func (p *peer) release(name string, ch *channel, now time.Time) {
	if len(ch.listeners) == 0 && !now.Before(ch.usedUntil) {
		delete(p.channels, name)
		delete(p.due, name)
		p.wake()
	}
}

// wake makes the subscription follow the wanted channels. p.mu is held.
func (p *peer) wake() {
	if !p.running && len(p.channels) > 0 && p.all.ctx.Err() == nil {
		p.running = true
		p.all.tasks.Go(p.keep)
	}
	poke(p.changed)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listen adds a client. It hears at once if the subscription stands, because it may have missed something before, and else
// when the subscription is confirmed.
func (a *agents) listen(l *listener) {
	a.with(l.agent, func(p *peer) {
		ch := p.want(l.local, time.Time{})
		ch.listeners[l] = true
		if ch.heard {
			p.remindSoon(l.local, l)
		}
	})
}

func (a *agents) unlisten(l *listener) {
	a.with(l.agent, func(p *peer) {
		if ch := p.channels[l.local]; ch != nil {
			delete(ch.listeners, l)
			p.release(l.local, ch, time.Now())
		}
	})
}

// invalidate makes the next question about an Application go to the agent.
func (a *agents) invalidate(agent, local string) {
	p := a.find(agent)
	if p == nil {
		return
	}
	prefix := appKey{kind: ManagedResources}.plain(local)
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, ch := range p.channels {
		if strings.HasPrefix(name, prefix) {
			ch.seq = a.turn()
		}
	}
}

// keep holds the one subscription of an agent as long as something is wanted, through every kind of interruption.
func (p *peer) keep() {
	ctx, pause := p.all.ctx, firstRetry
	for {
		p.mu.Lock()
		if len(p.channels) == 0 || ctx.Err() != nil {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		began := time.Now()
		err := p.subscribe(ctx)
		p.lost()
		if time.Since(began) > lastRetry {
			pause = firstRetry
		}
		if err == nil {
			continue // nothing was wanted any more
		}
		p.all.cfg.Log.Debug("Subscription at an agent ended", "agent", p.name, "error", err)
		timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // spreads load, keeps no secret
		select {
		case <-timer.C:
		case <-p.retry:
			pause = firstRetry
		case <-ctx.Done():
		}
		timer.Stop()
		pause = min(2*pause, lastRetry)
	}
}

// subscribe opens a subscription and reads it until it ends; nil: because nothing is wanted.
func (p *peer) subscribe(ctx context.Context) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := p.all.dial(dialCtx, p.name)
	cancel()
	if err != nil {
		return err
	}
	p.all.counts.subscriptions.Add(1)
	defer p.all.counts.subscriptions.Add(-1)
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- p.follow(ctx, conn)
		_ = conn.Close()
	}()
	err = p.hear(conn)
	stop()
	if unwanted := <-ended; unwanted == nil && ctx.Err() != nil && p.unwanted() {
		return nil
	}
	return err
}

func (p *peer) unwanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.channels) == 0
}

// follow tells the agent's Redis what is wanted, and that we are there. It returns when nothing is.
func (p *peer) follow(ctx context.Context, conn net.Conn) error {
	ping := time.NewTicker(pingAfter)
	defer ping.Stop()
	sent := map[string]bool{}
	for {
		p.mu.Lock()
		wanted := slices.Collect(maps.Keys(p.channels))
		p.mu.Unlock()
		if len(wanted) == 0 {
			return nil
		}
		out := difference(sent, wanted)
		if len(out) > 0 {
			_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
			if _, err := conn.Write(out); err != nil {
				return err
			}
		}
		select {
		case <-p.changed:
		case <-ping.C:
			_ = conn.SetWriteDeadline(time.Now().Add(dialTimeout))
			if _, err := conn.Write(appendCommand(nil, "PING")); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// difference writes what leads from the subscriptions that were sent to those that are wanted, and notes them as sent.
func difference(sent map[string]bool, wanted []string) []byte {
	var add, remove []string
	for _, name := range wanted {
		if !sent[name] {
			add = append(add, name)
		}
	}
	if len(sent)+len(add) > len(wanted) {
		for name := range sent {
			if !slices.Contains(wanted, name) {
				remove = append(remove, name)
				delete(sent, name)
			}
		}
	}
	for _, name := range add {
		sent[name] = true
	}
	var out []byte
	for names := range slices.Chunk(add, atOnce) {
		out = appendCommand(out, append([]string{"SUBSCRIBE"}, names...)...)
	}
	for names := range slices.Chunk(remove, atOnce) {
		out = appendCommand(out, append([]string{"UNSUBSCRIBE"}, names...)...)
	}
	return out
}

// hear reads messages until the connection ends.
func (p *peer) hear(conn net.Conn) error {
	replies := newReader(conn, limits{bulk: maxLine, elements: 16, total: maxLine})
	for {
		_ = conn.SetReadDeadline(time.Now().Add(silentAfter))
		frame, err := replies.next()
		if err != nil {
			return err
		}
		parts, err := bulks(frame)
		if err != nil {
			return fmt.Errorf("agent %s refuses a subscription: %w", p.name, err)
		}
		if len(parts) != 3 {
			continue // a sign of life
		}
		switch string(parts[0]) {
		case "subscribe":
			p.happened(string(parts[1]), true)
		case "message":
			p.all.counts.messages.Add(1)
			if name := string(parts[1]); p.happened(name, false) {
				p.tellSome(name, string(parts[2]), nil)
			}
		}
	}
}

// happened makes cached values old. It reports whether somebody listens; to a subscription that was confirmed just now,
// they are reminded.
func (p *peer) happened(name string, confirmed bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch := p.channels[name]
	if ch == nil {
		return false
	}
	ch.seq = p.all.turn()
	ch.heard = ch.heard || confirmed
	if confirmed && len(ch.listeners) > 0 {
		p.remindSoon(name, nil)
	}
	return len(ch.listeners) > 0
}

// lost notes that changes may go unheard from now on.
func (p *peer) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ch := range p.channels {
		ch.heard = false
		ch.seq = p.all.turn()
	}
	clear(p.due) // each comes again with the next subscription
}

// outdate makes everything that is cached old.
func (p *peer) outdate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ch := range p.channels {
		ch.seq = p.all.turn()
	}
}
