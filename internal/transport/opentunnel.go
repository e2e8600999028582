package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// OpenTunnel connects to a target of an agent. The context is for opening
// alone: what is open lasts until it is closed, the agent's session ends, or
// nothing goes through it for a long time. The agent connects to the target when
// OpenTunnel has returned, and never if it fails.
//
// A *NotConnectedError says that the agent has no session here, a *TunnelError
// that the agent refuses, and why.
func (s *Server) OpenTunnel(ctx context.Context, agent, target string) (net.Conn, error) {
	c, b, since := s.current(agent)
	if c == nil {
		s.counters.refuse(refusedTunnelAway)
		return nil, &NotConnectedError{Agent: agent, Since: since}
	}
	if err := b.serves(target); err != nil {
		return nil, err
	}
	if err := b.reserve(target); err != nil {
		return nil, fmt.Errorf("tunnel to %s of agent %s: %w", target, agent, err)
	}
	t, err := b.open(ctx, target)
	if err != nil {
		return nil, err
	}
	s.counters.Tunnels.Opened.Add(1)
	return t, nil
}

// open is for one who has reserved a tunnel. If it fails, nothing is left.
func (b *tunnelPool) open(ctx context.Context, target string) (*Tunnel, error) {
	t, token, w, ahead := b.begin(target)
	var err error
	if t != nil {
		t.markActive()
		if len(ahead) > 0 { // does not wait behind what Sync has to say
			t.next, ahead = ahead[0], ahead[1:]
		}
		close(t.taken)
	} else {
		err = b.ask(token, target)
	}
	for _, next := range ahead {
		_ = b.ask(next, target) // if that fails, so does everything else
	}
	if t != nil {
		return t, nil
	}
	if err != nil {
		b.unreserve(target)
		return nil, b.explain(target, err)
	}
	return b.await(ctx, target, token, w)
}

// await waits for the agent's stream.
func (b *tunnelPool) await(ctx context.Context, target, token string, w *tunnelRequest) (*Tunnel, error) {
	timer := time.NewTimer(b.limits.Open)
	defer timer.Stop()
	var got tunnelResult
	select {
	case got = <-w.answer:
	case <-ctx.Done():
		got.err = fmt.Errorf("tunnel to %s of agent %s: %w", target, b.conn.Agent, context.Cause(ctx))
	case <-timer.C:
		got.err = b.explain(target, ErrTunnelTimeout)
	case <-b.conn.closing:
		got.err = b.explain(target, ErrClosed)
	}
	if got.tunnel != nil {
		got.tunnel.markActive()
		close(got.tunnel.taken)
		return got.tunnel, nil
	}
	if told := new(TunnelError); errors.As(got.err, &told) {
		b.counters.refuse(refusedTunnelAgent)
		b.unreserve(target)
		return nil, got.err
	}
	if b.withdraw(token) {
		b.unreserve(target)
	} else if late := <-w.answer; late.tunnel != nil { // it is there, and does not wait
		_ = late.tunnel.Close() // whose handler counts it
	} else {
		b.unreserve(target)
	}
	return nil, got.err
}

// explain counts why there is no tunnel, and says it.
func (b *tunnelPool) explain(target string, err error) error {
	if errors.Is(err, ErrClosed) {
		b.counters.refuse(refusedTunnelAway)
		return &NotConnectedError{Agent: b.conn.Agent, Since: time.Now()}
	}
	b.counters.refuse(refusedTunnelTimeout)
	return fmt.Errorf("tunnel to %s of agent %s: %w", target, b.conn.Agent, err)
}

// current returns an agent's session: of those that were welcomed and are not
// closing the latest. If there is none it tells since when, if that is known.
func (s *Server) current(agent string) (c *Conn, b *tunnelPool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.gone[agent]
	for _, candidate := range s.byAgent[agent] {
		when := candidate.welcomed.Load()
		if when == 0 || candidate.tunnels == nil {
			continue
		}
		select {
		case <-candidate.closing:
			since = time.Now() // it is leaving
			continue
		default:
		}
		if c == nil || when > c.welcomed.Load() {
			c = candidate
		}
	}
	if c == nil {
		return nil, nil, since
	}
	return c, c.tunnels, time.Time{}
}

// part takes a connection out of its agent's. Under mu.
func (s *Server) part(c *Conn) {
	left := slices.DeleteFunc(s.byAgent[c.Agent], func(other *Conn) bool { return other == c })
	if len(left) == 0 {
		delete(s.byAgent, c.Agent)
	} else {
		s.byAgent[c.Agent] = left
	}
	if c.welcomed.Load() == 0 {
		return
	}
	for agent := range s.gone {
		if len(s.gone) < s.cfg.Limits.Conns {
			break
		}
		delete(s.gone, agent) // any: as many as can be connected are remembered
	}
	s.gone[c.Agent] = time.Now()
}
