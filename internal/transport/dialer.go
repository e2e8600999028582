package transport

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/trace"
	"github.com/argocd-agent/argocd-agent/internal/transport/enroll"
	"github.com/argocd-agent/argocd-agent/internal/transport/route"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// DialerConfig configures a Dialer. Connectors, Events and Log are required.
type DialerConfig struct {
	Connectors []Connector // one for each address of the hub, the preferred one first
	Name       string      // of this agent, if known; only shown in events and addresses
	Events     Events
	Log        *slog.Logger
	Trace      *trace.Tracer // if nil, nothing is traced

	// Failed is called for each attempt without a session, with the pause before the next attempt. It may be nil.
	Failed func(address string, err error, next time.Duration)

	Queue int // bytes that wait for the hub: 8 MiB

	// Tunnels serve the targets that the hub may connect to. Requests for other targets are refused.
	Tunnels      map[string]tunnel.Handler
	TunnelLimits tunnel.Limits

	// RenewCertificate runs during each session that can renew certificates, in a goroutine of its own. It must return
	// when its context ends. If it returns enroll.ErrReconnect, the session ends and the next one begins. It may be nil.
	RenewCertificate func(context.Context, enroll.Client) error

	// Tests replace these.
	Random func() float64                             // 0 to 1
	Now    func() time.Time                           // the clock
	Wait   func(context.Context, time.Duration) error // between attempts
}

func (cfg DialerConfig) withDefaults() DialerConfig {
	if cfg.Failed == nil {
		cfg.Failed = func(string, error, time.Duration) {}
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = func(ctx context.Context, pause time.Duration) error {
			backoff.Sleep(ctx, pause)
			return ctx.Err()
		}
	}
	cfg.Queue = cmp.Or(cfg.Queue, defaultQueue)
	cfg.TunnelLimits = cfg.TunnelLimits.WithDefaults()
	return cfg
}

// Dialer keeps an agent connected to the hub.
type Dialer struct {
	cfg      DialerConfig
	route    *route.Route
	tunnels  tunnel.Config
	counters Counters
	dedupLog *DedupLogger
	tracing  atomic.Int64   // traced deliveries
	running  sync.WaitGroup // goroutines of tunnels and of RenewCertificate

	mu     sync.Mutex
	client *tunnel.Client // of the open session; nil if there is none
}

// NewDialer returns a Dialer that does not run yet.
func NewDialer(cfg DialerConfig) *Dialer {
	cfg = cfg.withDefaults()
	d := &Dialer{cfg: cfg, route: route.New(len(cfg.Connectors), cfg.Random), dedupLog: NewDedupLogger(cfg.Log, cfg.Now)}
	d.tunnels = tunnel.Config{Limits: cfg.TunnelLimits, Counters: &d.counters.Tunnels, Refuse: d.counters.Refuse, Log: d.dedupLog.With, Running: &d.running}
	return d
}

// Counters returns the totals.
func (d *Dialer) Counters() *Counters { return &d.counters }

// Run dials, and dials again whenever the session ends, until the context is cancelled. Then it sends a Bye and returns
// nil.
func (d *Dialer) Run(ctx context.Context) error {
	for again := true; again && ctx.Err() == nil; {
		again = d.once(ctx)
	}
	d.running.Wait()
	return nil
}

// once makes one attempt and waits for the pause after it. It returns false if there must be no other attempt.
func (d *Dialer) once(ctx context.Context) bool {
	connector := d.cfg.Connectors[d.route.Current()]
	c, err := d.attempt(ctx, connector)
	if ctx.Err() != nil {
		return false
	}
	var pause time.Duration
	if c != nil {
		pause = d.route.Next(c.established.Load(), d.cfg.Now().Sub(c.Since), endOf(err))
	} else {
		pause = d.route.Next(false, 0, endOf(err))
		d.counters.Failures.Add(1)
		d.dedupLog.With(connector.Address(), err).WarnContext(ctx, "Failed to connect to principal", "next", pause)
		d.cfg.Failed(connector.Address(), err, pause)
	}
	return d.cfg.Wait(ctx, pause) == nil
}

// attempt opens a session and runs it until it ends. It returns the connection, nil if there was none, and why it
// ended.
func (d *Dialer) attempt(ctx context.Context, connector Connector) (*Conn, error) {
	steps := d.cfg.Trace.Steps(ctx, trace.KindClient, "connect to the principal", "dial", d.cfg.Now())
	steps.Root().SetString(trace.Server, connector.Address())
	session, err := connector.Connect(ctx, &d.counters, steps)
	if err != nil {
		steps.Fail(err.Error())
		return nil, err
	}
	defer session.Close()
	c := newConn(session, agentSource(d.cfg.Name), &d.counters.Traffic, d.cfg.Queue, d.cfg.Now())
	c.Agent, c.Address, c.Steps, c.deliveries = d.cfg.Name, connector.Address(), steps, newDeliveries(d.cfg.Trace, "", &d.tracing)
	client := tunnel.NewClient(d.tunnels, d.cfg.Tunnels, tunnel.Session{
		Context: c.ctx, Agent: d.cfg.Name, Source: c.source, Remote: c.RemoteAddr, Open: session.OpenTunnel,
	})
	c.handleOpen, c.offer = func(m engine.Open) { client.HandleRequest(m.Token, m.Target) }, tunnel.Offer(d.cfg.Tunnels)
	d.setClient(client)
	defer d.setClient(nil)
	stop := context.AfterFunc(ctx, func() { c.Close(engine.ShuttingDown, "the agent is shutting down") })
	defer stop()
	d.counters.Connects.Add(1)
	d.runCertificateRenewal(c)
	var returning sync.WaitGroup
	if d.route.MayReturn() {
		returning.Go(func() { d.returnToFirst(c) })
	}
	c.run(d.cfg.Events)
	returning.Wait()
	d.counters.Disconnects.Add(1)
	c.stepsEnd()
	return c, c.Cause()
}

func (d *Dialer) runCertificateRenewal(c *Conn) {
	client, ok := c.session.(enroll.Client)
	if !ok || d.cfg.RenewCertificate == nil {
		return
	}
	d.running.Go(func() {
		err := d.cfg.RenewCertificate(c.ctx, client)
		if errors.Is(err, enroll.ErrReconnect) {
			c.Close(engine.ShuttingDown, err.Error())
		} else if err != nil && c.ctx.Err() == nil {
			d.dedupLog.With(c.RemoteAddr, err).Warn("Failed to renew certificate")
		}
	})
}

func (d *Dialer) setClient(c *tunnel.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.client = c
}

// OpenTunnel connects to a target of the hub. See tunnel.Client.Connect.
func (d *Dialer) OpenTunnel(ctx context.Context, target string) (net.Conn, error) {
	d.mu.Lock()
	client := d.client
	if client == nil {
		d.mu.Unlock()
		return nil, tunnel.ErrNotConnected
	}
	d.running.Add(1) // while client is set: Run waits after it was reset
	d.mu.Unlock()
	defer d.running.Done()
	return client.Connect(ctx, target)
}
