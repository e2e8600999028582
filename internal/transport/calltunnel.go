package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// ErrNotConnected is returned for a tunnel to the hub while there is no
// connection.
var ErrNotConnected = errors.New("the agent is not connected to the hub")

// setTunnelClient makes a porter the one who opens tunnels; nil: nobody can.
func (d *Dialer) setTunnelClient(p *tunnelClient) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.porter = p
}

// OpenTunnel connects to a target of the hub, which has to allow it. The context
// is for opening alone: what is open lasts until it is closed, the session ends,
// or nothing goes through it for a long time.
func (d *Dialer) OpenTunnel(ctx context.Context, target string) (net.Conn, error) {
	d.mu.Lock()
	p := d.porter
	if p == nil {
		d.mu.Unlock()
		return nil, ErrNotConnected
	}
	d.carrying.Add(1) // under the lock: Run waits for it only when there is no porter any more
	d.mu.Unlock()
	defer d.carrying.Done()
	t, err := p.connect(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("tunnel to %s of the hub: %w", target, err)
	}
	return t, nil
}

// connect opens a tunnel and waits until the hub uses it.
func (p *tunnelClient) connect(ctx context.Context, target string) (*Tunnel, error) {
	limits := p.cfg.TunnelLimits
	if p.calls.Add(1) > int64(limits.PerAgent) {
		p.calls.Add(-1)
		p.counters.refuse(refusedTunnelLimit)
		return nil, ErrTooManyTunnels
	}
	life, cancel := context.WithCancel(p.ctx)
	given := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(limits.Open, cancel)
	t, err := p.dial(life, cancel, target)
	if err == nil {
		select {
		case <-t.started:
		case <-t.over:
			err = t.Cause()
		case <-life.Done():
			err = errors.New("the hub did not answer in time")
		}
	}
	late.Stop()
	if !given() && err == nil { // it fired: cancel has been called, or is about to be
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		if t == nil {
			p.calls.Add(-1)
		}
		return nil, err
	}
	p.counters.Tunnels.Opened.Add(1)
	return t, nil
}

// dial opens the stream, and has the tunnel work until it is over.
func (p *tunnelClient) dial(life context.Context, cancel context.CancelFunc, target string) (*Tunnel, error) {
	stream, err := p.client.Open(life, grpc.UseCompressor(encoding.Identity), grpc.MaxCallRecvMsgSize(maxFrame))
	if err == nil {
		err = stream.SendMsg(targetFrame(target))
	}
	if err != nil {
		return nil, explainStatus(err)
	}
	t := newTunnel(stream, &p.counters.Tunnels)
	t.agent, t.target = p.cfg.Name, target
	t.local, t.remote = tunnelAddr(agentSource(p.cfg.Name)), tunnelAddr("hub/"+target)
	t.halfClose = func() { _ = stream.CloseSend() }
	t.abort = cancel
	stop := context.AfterFunc(life, func() { t.fail(fmt.Errorf("the tunnel broke: %w", context.Cause(life))) })
	p.counters.Tunnels.Open.Add(1)
	p.carrying.Go(t.sendAll)
	p.carrying.Go(func() {
		unwatch := t.watch(p.cfg.TunnelLimits.Idle)
		t.receive()
		unwatch()
		stop()
		<-t.flushed // sendAll ends with it
		cancel()
		p.counters.Tunnels.Open.Add(-1)
		p.calls.Add(-1)
	})
	return t, nil
}
