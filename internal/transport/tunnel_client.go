package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"

	api "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// TunnelHandler serves a tunnel on an agent, in a goroutine of its own. The
// tunnel, a *Tunnel, is closed when it returns. The context ends as soon as the
// hub has closed the tunnel, or it broke; the handler has to return then.
type TunnelHandler func(ctx context.Context, conn net.Conn)

// tunnelClient opens the tunnels of one connection on the agent, as the hub asks for
// them.
type tunnelClient struct {
	*Dialer
	ctx    context.Context
	client api.TunnelClient
	conn   *Conn
	busy   atomic.Int64
	calls  atomic.Int64 // tunnels to the hub
}

func newPorter(d *Dialer, client *grpc.ClientConn, c *Conn) *tunnelClient {
	return &tunnelClient{
		Dialer: d, conn: c, client: api.NewTunnelClient(client),
		ctx: metadata.AppendToOutgoingContext(c.ctx, d.cfg.Metadata...),
	}
}

// tunnelHeadroom is for spares, and for tunnels that are being refused or have just ended,
// beyond the limit of those in use.
const tunnelHeadroom = 32

// handleRequest takes a wish of the hub. It does not wait.
func (p *tunnelClient) handleRequest(m engine.Open) {
	limits := p.cfg.TunnelLimits
	busy := p.busy.Add(1)
	handler, reason := p.cfg.Tunnels[m.Target], ""
	switch {
	case busy > int64(limits.PerAgent+2*tunnelHeadroom):
		p.busy.Add(-1)
		p.counters.refuse(refusedTunnelLimit)
		return // a hub that asks for this many does not wait for answers
	case busy > int64(limits.PerAgent+tunnelHeadroom):
		reason = fmt.Sprintf("the agent has %d tunnels already", limits.PerAgent+tunnelHeadroom)
		p.counters.refuse(refusedTunnelLimit)
	case handler == nil:
		reason = notServed(m.Target)
		p.counters.refuse(refusedTunnelAgent)
	}
	p.carrying.Go(func() {
		defer p.busy.Add(-1)
		var err error
		if reason != "" {
			err = p.refuse(m, reason)
		} else {
			err = p.serve(m, handler)
		}
		if err != nil && p.ctx.Err() == nil {
			p.quiet.with(p.conn.RemoteAddr, err).Warn("no tunnel", "target", m.Target)
		}
	})
}

// call opens a stream and says what it is for.
func (p *tunnelClient) call(ctx context.Context, m engine.Open, reason string) (grpc.BidiStreamingClient[api.Frame, api.Frame], error) {
	stream, err := p.client.Open(ctx, grpc.UseCompressor(encoding.Identity), grpc.MaxCallRecvMsgSize(maxFrame))
	if err == nil {
		err = stream.SendMsg(firstFrame(m.Token, reason))
	}
	if err != nil {
		return nil, fmt.Errorf("opening a tunnel to %s: %w", m.Target, explainStatus(err))
	}
	return stream, nil
}

// refuse tells the hub why there is no tunnel.
func (p *tunnelClient) refuse(m engine.Open, reason string) error {
	ctx, cancel := context.WithTimeout(p.ctx, p.cfg.TunnelLimits.Open)
	defer cancel()
	stream, err := p.call(ctx, m, reason)
	if err != nil {
		return err
	}
	_ = stream.CloseSend()
	for err == nil { // the hub ends it
		var f frame
		err = stream.RecvMsg(&f)
		f.free()
	}
	return nil
}

// serve is the life of a tunnel on the agent.
func (p *tunnelClient) serve(m engine.Open, handler TunnelHandler) error {
	limits := p.cfg.TunnelLimits
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	late := time.AfterFunc(limits.Open, cancel)
	stream, err := p.call(ctx, m, "")
	if err != nil {
		return err
	}
	late.Stop()

	t := newTunnel(stream, &p.counters.Tunnels)
	t.agent, t.target = p.cfg.Name, m.Target
	t.local, t.remote = tunnelAddr(agentSource(p.cfg.Name)+"/"+m.Target), "hub"
	t.halfClose = func() { _ = stream.CloseSend() }
	t.abort = cancel
	t.openReplacement = func(token string) { p.handleRequest(engine.Open{Token: token, Target: m.Target}) }
	served, over := context.WithCancel(ctx)
	defer over()
	stop := context.AfterFunc(ctx, func() { t.fail(fmt.Errorf("the tunnel broke: %w", context.Cause(ctx))) })
	defer stop()
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel() // before that
	work.Go(func() {
		defer over()
		t.receive()
	})
	work.Go(t.sendAll)
	return p.runHandler(served, t, handler)
}

// runHandler runs the handler once the hub uses the tunnel, and waits for its end.
func (p *tunnelClient) runHandler(ctx context.Context, t *Tunnel, handler TunnelHandler) error {
	limits := p.cfg.TunnelLimits
	p.counters.Tunnels.Spare.Add(1)
	unused := time.NewTimer(limits.Open + 3*limits.StandbyTimeout)
	started := false
	select {
	case <-t.started:
		started = true
	case <-t.over:
	case <-unused.C:
	}
	unused.Stop()
	p.counters.Tunnels.Spare.Add(-1)
	if !started {
		return nil
	}
	p.counters.Tunnels.Open.Add(1)
	defer p.counters.Tunnels.Open.Add(-1)
	p.counters.Tunnels.Opened.Add(1)
	stop := t.watch(limits.Idle)
	defer stop()
	handler(ctx, t)
	_ = t.Close()
	<-t.over // the hub has taken everything, or nothing moves any more
	return nil
}
