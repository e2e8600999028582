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

	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

const (
	pingAfter         = 10 * time.Second // without a message
	silentAfter       = 25 * time.Second // without any reply, the connection is closed
	firstRetry        = 100 * time.Millisecond
	lastRetry         = 5 * time.Second
	channelsPerPacket = 256 // in one SUBSCRIBE
	notifyRetryAfter  = time.Second
)

// channel reports the changes of one Application.
type channel struct {
	confirmed   bool   // the agent's Redis confirmed the subscription
	seq         uint64 // changes with every message, and with every gap in which a message can have been lost
	subscribers map[*subscriber]bool
	wantedUntil time.Time // by the cache
}

// subscriber receives the changes of one Application for one client.
type subscriber struct {
	c       *clientConn
	channel string       // the client's name for it
	agent   *agentClient // nil for a channel of the hub
	local   string       // the agent's name for it
	due     bool         // the client can have missed a change
}

// want returns a channel that stays subscribed at least until a time. The caller must hold pool.mu.
func (p *agentClient) want(name string, until time.Time) *channel {
	ch := p.channels[name]
	if ch == nil {
		ch = &channel{seq: p.pool.nextSeq(), subscribers: map[*subscriber]bool{}}
		p.channels[name] = ch
		poke(p.changed)
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
		poke(p.changed)
	}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// subscribe adds a subscription that the hub's Redis has confirmed.
func (a *agentPool) subscribe(c *clientConn, channel string) {
	a.mu.Lock()
	s := c.channels[channel]
	if s == nil && c.channels != nil {
		s = &subscriber{c: c, channel: channel}
		c.channels[channel] = s
	}
	a.mu.Unlock()
	if s != nil {
		a.bind(s)
	}
}

// bind makes a subscriber follow the agent to which its channel belongs now. The client is notified as soon as the
// agent's Redis has confirmed the subscription, because it can have missed a change before.
func (a *agentPool) bind(s *subscriber) {
	key, target, ok := a.cfg.resolve([]byte(s.channel))
	local := ""
	if ok = ok && key.isChannel(); ok {
		local = key.channel(target.Local)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var p *agentClient
	if ok {
		p = a.client(target.Agent)
	}
	if s.c.channels[s.channel] != s || s.agent == p && s.local == local {
		return
	}
	s.unbind()
	if s.agent, s.local = p, local; p != nil {
		ch := p.want(local, time.Time{})
		ch.subscribers[s] = true
		s.due = ch.confirmed
		poke(p.changed)
	}
}

// unbind ends the subscription at the agent. The caller must hold agentPool.mu.
func (s *subscriber) unbind() {
	if s.agent == nil {
		return
	}
	if ch := s.agent.channels[s.local]; ch != nil {
		delete(ch.subscribers, s)
		s.agent.release(s.local, ch, time.Now())
	}
}

// unsubscribe releases subscriptions of a client. If gone, it releases all, and later confirmations are ignored.
func (a *agentPool) unsubscribe(c *clientConn, channel string, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, s := range c.channels {
		if gone || name == channel {
			s.unbind()
			delete(c.channels, name)
		}
	}
	if gone {
		c.channels = nil
	}
}

// rebind follows Applications that now belong to another agent, or to an agent for the first time.
func (a *agentPool) rebind(c *clientConn) {
	a.mu.Lock()
	all := slices.Collect(maps.Values(c.channels))
	a.mu.Unlock()
	for _, s := range all {
		a.bind(s)
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

// runSubscription maintains the agent's one subscription while a channel is wanted, until the agent is forgotten.
func (p *agentClient) runSubscription() {
	pause := backoff.Backoff{Min: firstRetry, Max: lastRetry, Jitter: rand.Float64}
	for p.ctx.Err() == nil {
		p.pool.mu.Lock()
		unused := len(p.channels) == 0
		p.pool.mu.Unlock()
		if unused {
			select {
			case <-p.changed:
			case <-p.ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := p.subscription()
		p.subscriptionLost()
		if time.Since(began) > lastRetry {
			pause.Reset()
		}
		if err == nil {
			continue
		}
		p.pool.cfg.Log.Debug("Subscription at agent ended", "agent", p.name, "error", err)
		select {
		case <-time.After(pause.Next()):
		case <-p.retry:
			pause.Reset()
		case <-p.ctx.Done():
		}
	}
}

// subscription opens the subscription and reads it until it ends. It returns nil if no channel is wanted any longer.
func (p *agentClient) subscription() error {
	dialCtx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	conn, err := p.dial(dialCtx)
	cancel()
	if err != nil {
		return err
	}
	p.pool.counts.subscriptions.Add(1)
	defer p.pool.counts.subscriptions.Add(-1)
	ctx, stop := context.WithCancel(p.ctx)
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

// sendChannels subscribes to the wanted channels, notifies subscribers and pings. It returns true when no channel is
// wanted.
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
		var retry <-chan time.Time
		if err := p.notifyDue(ctx); err != nil {
			retry = time.After(notifyRetryAfter)
		}
		select {
		case <-p.changed:
		case <-retry:
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
	replies := newReplyReader(conn, shortReply)
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
			p.confirmed(name)
		case "message":
			p.published(name)
		}
	}
}

// confirmed records that a channel is subscribed. Its subscribers can have missed a change.
func (p *agentClient) confirmed(name string) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if ch := p.channels[name]; ch != nil {
		ch.confirmed, ch.seq = true, p.pool.nextSeq()
		for s := range ch.subscribers {
			s.due = true
		}
		poke(p.changed)
	}
}

// published makes cached values stale and delivers a message.
func (p *agentClient) published(name string) {
	p.pool.counts.messages.Add(1)
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if ch := p.channels[name]; ch != nil {
		ch.seq = p.pool.nextSeq()
		for s := range ch.subscribers {
			s.c.push(s.channel)
		}
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
}

// notifyDue notifies the subscribers that can have missed a change. After an error, they stay due.
func (p *agentClient) notifyDue(ctx context.Context) error {
	for due := p.takeDue(); len(due) > 0; due = p.takeDue() {
		if err := p.notify(ctx, due); err != nil {
			p.pool.mu.Lock()
			for _, s := range due {
				s.due = true
			}
			p.pool.mu.Unlock()
			return err
		}
	}
	return nil
}

func (p *agentClient) takeDue() (due []*subscriber) {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	for _, ch := range p.channels {
		for s := range ch.subscribers {
			if s.due && ch.confirmed && len(due) < channelsPerPacket {
				due, s.due = append(due, s), false
			}
		}
	}
	return due
}

// notify sends a message to subscribers. They read the tree then, and Argo CD closes the stream if there is none. So the
// agent is asked first whether it has the trees.
func (p *agentClient) notify(ctx context.Context, to []*subscriber) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.pool.cfg.Timeout, errTimeout)
	defer cancel()
	var requests []byte
	for _, s := range to {
		key, _ := parseKey([]byte(s.local))
		key.kind = ResourcesTree
		plain := key.plain(key.app)
		requests = appendCommand(requests, "EXISTS", plain, plain+gzipSuffix)
	}
	m := p.memory()
	defer m.release()
	replies, err := p.exchange(ctx, m, len(to), requests)
	if err != nil {
		return err
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	for i, s := range to {
		count, err := decode(replies[i])
		if err != nil || len(count) != 1 {
			return fmt.Errorf("agent %s: unexpected reply to EXISTS: %w", p.name, err)
		}
		if string(count[0]) != "0" && s.c.channels[s.channel] == s {
			s.c.push(s.channel)
		}
	}
	return nil
}
