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
	pingAfter         = 10 * time.Second // without a message
	silentAfter       = 25 * time.Second // without any reply, the connection is closed
	firstRetry        = 100 * time.Millisecond
	lastRetry         = 5 * time.Second
	channelsPerPacket = 256 // in one SUBSCRIBE
)

// want returns a channel that stays subscribed at least until a time. The caller must hold pool.mu.
func (p *agentClient) want(name string, until time.Time) *channel {
	ch := p.channels[name]
	if ch == nil {
		ch = &channel{seq: p.pool.nextSeq(), subscribers: map[*subscriber]bool{}}
		p.channels[name] = ch
		p.wake()
	}
	if until.After(ch.wantedUntil) {
		ch.wantedUntil = until
	}
	return ch
}

// release removes a channel that is not used. The caller must hold pool.mu.
func (p *agentClient) release(name string, ch *channel, now time.Time) {
	if len(ch.subscribers) == 0 && !now.Before(ch.wantedUntil) {
		delete(p.channels, name)
		delete(p.due, name)
		p.wake()
	}
}

// wake makes the subscription follow the channels. The caller must hold pool.mu.
func (p *agentClient) wake() {
	if !p.running && len(p.channels) > 0 && p.pool.ctx.Err() == nil {
		p.running = true
		p.pool.tasks.Go(p.runSubscription)
	}
	poke(p.changed)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// subscribe adds a client. The client is notified as soon as the subscription is confirmed, because it can have missed a
// change before.
func (a *agentPool) subscribe(s *subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.client(s.agent)
	ch := p.want(s.local, time.Time{})
	ch.subscribers[s] = true
	if ch.confirmed {
		p.scheduleNotify(s.local, s)
	}
}

func (a *agentPool) unsubscribe(s *subscriber) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.clients[s.agent]
	if p == nil {
		return
	}
	if ch := p.channels[s.local]; ch != nil {
		delete(ch.subscribers, s)
		p.release(s.local, ch, time.Now())
	}
}

// invalidate makes cached values of an agent stale: those of one Application, or all if app is empty.
func (a *agentPool) invalidate(agent, app string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.clients[agent]
	if p == nil {
		return
	}
	for name, ch := range p.channels {
		if app == "" || strings.HasPrefix(name, appKey{kind: ManagedResources}.plain(app)) {
			ch.seq = a.nextSeq()
		}
	}
	if app == "" {
		poke(p.retry)
	}
}

// runSubscription maintains the agent's one subscription while a channel is wanted.
func (p *agentClient) runSubscription() {
	ctx, pause := p.pool.ctx, firstRetry
	for {
		p.pool.mu.Lock()
		if len(p.channels) == 0 || ctx.Err() != nil {
			p.running = false
			p.pool.mu.Unlock()
			return
		}
		p.pool.mu.Unlock()
		began := time.Now()
		err := p.subscription(ctx)
		p.subscriptionLost()
		if time.Since(began) > lastRetry {
			pause = firstRetry
		}
		if err == nil {
			continue
		}
		p.pool.cfg.Log.Debug("Subscription at agent ended", "agent", p.name, "error", err)
		timer := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // spreads load
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

// subscription opens the subscription and reads it until it ends. It returns nil if no channel is wanted any longer.
func (p *agentClient) subscription(ctx context.Context) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := p.pool.dial(dialCtx, p.name)
	cancel()
	if err != nil {
		return err
	}
	p.pool.counts.subscriptions.Add(1)
	defer p.pool.counts.subscriptions.Add(-1)
	ctx, stop := context.WithCancel(ctx)
	unused := make(chan bool, 1)
	go func() {
		unused <- p.sendChannels(ctx, conn)
		_ = conn.Close()
	}()
	err = p.readMessages(conn)
	stop()
	if <-unused {
		return nil
	}
	return err
}

// sendChannels subscribes to the wanted channels and pings. It returns true when no channel is wanted.
func (p *agentClient) sendChannels(ctx context.Context, conn net.Conn) (unused bool) {
	ping := time.NewTicker(pingAfter)
	defer ping.Stop()
	to := timeoutWriter{conn, dialTimeout}
	sent := map[string]bool{}
	for {
		p.pool.mu.Lock()
		wanted := make(map[string]bool, len(p.channels))
		for name := range p.channels {
			wanted[name] = true
		}
		p.pool.mu.Unlock()
		if len(wanted) == 0 {
			return true
		}
		if _, err := to.Write(subscriptionChange(sent, wanted)); err != nil {
			return false
		}
		sent = wanted
		select {
		case <-p.changed:
		case <-ping.C:
			if _, err := to.Write(appendCommand(nil, "PING")); err != nil {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// subscriptionChange returns the requests that lead from one set of channels to another.
func subscriptionChange(from, to map[string]bool) (out []byte) {
	for _, step := range []struct {
		command   string
		names, in map[string]bool
	}{{"SUBSCRIBE", to, from}, {"UNSUBSCRIBE", from, to}} {
		names := slices.DeleteFunc(slices.Collect(maps.Keys(step.names)), func(name string) bool { return step.in[name] })
		for some := range slices.Chunk(names, channelsPerPacket) {
			out = appendCommand(out, append([]string{step.command}, some...)...)
		}
	}
	return out
}

// readMessages handles messages until the connection ends.
func (p *agentClient) readMessages(conn net.Conn) error {
	replies := newReplyReader(conn, limits{bulk: maxLine, elements: 16, total: maxLine})
	for {
		_ = conn.SetReadDeadline(time.Now().Add(silentAfter))
		frame, err := replies.next()
		if err != nil {
			return err
		}
		parts, err := decode(frame)
		if err != nil {
			return fmt.Errorf("agent %s: subscribe: %w", p.name, err)
		}
		if len(parts) != 3 {
			continue // reply to PING
		}
		switch name := string(parts[1]); string(parts[0]) {
		case "subscribe":
			p.invalidateChannel(name, true)
		case "message":
			p.pool.counts.messages.Add(1)
			p.invalidateChannel(name, false)
			p.sendTo(name, string(parts[2]), nil)
		}
	}
}

// invalidateChannel makes cached values stale. After a confirmation it also notifies all subscribers.
func (p *agentClient) invalidateChannel(name string, confirmed bool) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	ch := p.channels[name]
	if ch == nil {
		return
	}
	ch.seq = p.pool.nextSeq()
	ch.confirmed = ch.confirmed || confirmed
	if confirmed && len(ch.subscribers) > 0 {
		p.scheduleNotify(name, nil)
	}
}

// subscriptionLost records that changes are not reported until the next confirmation.
func (p *agentClient) subscriptionLost() {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	for _, ch := range p.channels {
		ch.confirmed = false
		ch.seq = p.pool.nextSeq()
	}
	clear(p.due) // the next confirmation schedules them again
}
