package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Open connects to a target of the agent. The context only limits the opening. The agent connects to the target after
// Open has returned, and never if Open fails.
func (p *Pool) Open(ctx context.Context, target string) (net.Conn, error) {
	if err := p.checkServed(target); err != nil {
		return nil, err
	}
	// One target cannot use all tunnels: a user who follows many logs must not block resource trees.
	limit := p.cfg.Limits.PerAgent
	if refused := p.reserve(p.used, target, limit-limit/8, limit); refused != "" {
		p.cfg.Refuse(refused)
		return nil, fmt.Errorf("tunnel to %s of agent %s: %w", target, p.peer.Agent, ErrTooManyTunnels)
	}
	t, err := p.open(ctx, target)
	if err != nil {
		return nil, err
	}
	p.cfg.Counters.Opened.Add(1)
	return t, nil
}

// open opens a reserved tunnel. If it fails, the reservation is undone.
func (p *Pool) open(ctx context.Context, target string) (*Tunnel, error) {
	t, token, r, ahead := p.takeStandby(target)
	var err error
	if t != nil {
		t.markActive()
		if len(ahead) > 0 { // does not wait behind the messages of the session
			t.next, ahead = ahead[0], ahead[1:]
		}
		close(t.inUse)
	} else {
		err = p.sendRequest(token, target)
	}
	for _, next := range ahead {
		_ = p.sendRequest(next, target) // if that fails, so does everything else
	}
	if t != nil {
		return t, nil
	}
	if err != nil {
		p.unreserve(p.used, target)
		return nil, p.explain(target, err)
	}
	return p.await(ctx, target, token, r)
}

// await waits for the agent's stream.
func (p *Pool) await(ctx context.Context, target, token string, r *request) (*Tunnel, error) {
	timer := time.NewTimer(p.cfg.Limits.Open)
	defer timer.Stop()
	var got result
	select {
	case got = <-r.result:
	case <-ctx.Done():
		got.err = fmt.Errorf("tunnel to %s of agent %s: %w", target, p.peer.Agent, context.Cause(ctx))
	case <-timer.C:
		got.err = p.explain(target, ErrTimeout)
	case <-p.peer.Closing:
		got.err = p.explain(target, ErrNotConnected)
	}
	if got.tunnel != nil {
		got.tunnel.markActive()
		close(got.tunnel.inUse)
		return got.tunnel, nil
	}
	if refused := new(AgentError); errors.As(got.err, &refused) {
		p.cfg.Refuse(agentRefused)
		p.unreserve(p.used, target)
		return nil, got.err
	}
	if p.cancelRequest(token) {
		p.unreserve(p.used, target)
	} else if late := <-r.result; late.tunnel != nil { // the result is there already
		_ = late.tunnel.Close() // Serve releases it
	} else {
		p.unreserve(p.used, target)
	}
	return nil, got.err
}

// explain counts and describes why there is no tunnel.
func (p *Pool) explain(target string, err error) error {
	if errors.Is(err, ErrNotConnected) {
		p.cfg.Refuse(NotConnected)
		return &NotConnectedError{Agent: p.peer.Agent, Since: time.Now()}
	}
	p.cfg.Refuse(timedOut)
	return fmt.Errorf("tunnel to %s of agent %s: %w", target, p.peer.Agent, err)
}
