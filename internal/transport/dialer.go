package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// DialerConfig is what a Dialer needs. Address, Events and Log are required.
type DialerConfig struct {
	Address string // host:port of the principal
	Name    string // of this agent, if it knows it; for people who read events

	// TLS is asked for each attempt, so that new certificates are used; nil
	// means plaintext, for a mesh.
	TLS func() (*tls.Config, error)

	Events Events
	Log    *slog.Logger
	Trace  *trace.Tracer // nil: nothing is traced

	// Explain makes TLS errors understandable; nil: they stay as they are.
	Explain func(error) error

	// Failed is told of attempts that did not become a session, and when the
	// next one follows; may be nil.
	Failed func(err error, next time.Duration)

	// Proxy finds the proxy for a URL, like that of http.Transport; nil: none.
	// Usually http.ProxyFromEnvironment. Plaintext connections use none.
	Proxy func(*http.Request) (*url.URL, error)

	// ProxyTLS is for proxies that are themselves spoken to by TLS; nil: the
	// system's CAs.
	ProxyTLS *tls.Config

	// WebSocket runs the connection inside one, for ways on which HTTP/2 does not
	// get through. A plaintext connection stays as it is.
	WebSocket bool

	Compress    bool          // both directions, with gzip
	Metadata    []string      // pairs of key and value that go with the call
	OpenTimeout time.Duration // from the start of an attempt to an accepted stream: 20 s
	Queue       int           // bytes that wait for the hub: 8 MiB
	Keepalive   Keepalive
	Backoff     Backoff

	// Tunnels serve what the hub connects to, by target. The hub's wish for any
	// other is refused.
	Tunnels      map[string]TunnelHandler
	TunnelLimits TunnelLimits

	// RenewCertificate is run with each session, in a goroutine of its own, to keep up the
	// agent's certificate; may be nil. It has to return when its context ends.
	RenewCertificate func(context.Context, *CertificateClient) error

	// What tests replace.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Random func() float64                             // 0 to 1
	Now    func() time.Time                           // the clock
	Wait   func(context.Context, time.Duration) error // between attempts
}

func (cfg DialerConfig) withDefaults() DialerConfig {
	if cfg.Explain == nil {
		cfg.Explain = func(err error) error { return err }
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error, time.Duration) {}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{KeepAlive: -1}).DialContext // the protocol has its own
	}
	if cfg.Random == nil {
		cfg.Random = rand.Float64
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	cfg.OpenTimeout = or(cfg.OpenTimeout, 20*time.Second)
	cfg.Queue = or(cfg.Queue, defaultQueue)
	cfg.Keepalive = cfg.Keepalive.withDefaults(agentInterval)
	cfg.Backoff = cfg.Backoff.withDefaults()
	cfg.TunnelLimits = cfg.TunnelLimits.withDefaults()
	return cfg
}

// Dialer is an agent's end: it keeps one connection to the hub.
type Dialer struct {
	cfg      DialerConfig
	counters Counters
	quiet    *dedupLogger
	tracing  atomic.Int64   // deliveries that are traced
	carrying sync.WaitGroup // goroutines of tunnels

	mu     sync.Mutex
	porter *tunnelClient // of the connection that is open; nil: none
}

// NewDialer returns a Dialer that is not running yet.
func NewDialer(cfg DialerConfig) *Dialer {
	cfg = cfg.withDefaults()
	return &Dialer{cfg: cfg, quiet: newQuiet(cfg.Log, cfg.Now)}
}

// Counters returns the totals, which go on counting.
func (d *Dialer) Counters() *Counters { return &d.counters }

// Run dials, and dials again whenever the connection ends, until the context is
// cancelled. Then it says goodbye and returns nil.
func (d *Dialer) Run(ctx context.Context) error {
	pace := &backoffState{Backoff: d.cfg.Backoff, random: d.cfg.Random}
	for again := true; again && ctx.Err() == nil; {
		again = d.once(ctx, pace)
	}
	d.carrying.Wait()
	return nil
}

// once makes one attempt and the pause that has to follow it. It returns false
// when there shall be no other.
func (d *Dialer) once(ctx context.Context, pace *backoffState) bool {
	c, err := d.attempt(ctx)
	if ctx.Err() != nil {
		return false
	}
	var pause time.Duration
	if c != nil {
		pause = pace.next(c.established.Load(), d.cfg.Now().Sub(c.Since), retryAfter(err))
	} else {
		pause = pace.next(false, 0, retryAfter(err))
		d.counters.Failures.Add(1)
		d.quiet.with(d.cfg.Address, err).WarnContext(ctx, "connecting to the principal failed", "next", pause)
		d.cfg.Failed(err, pause)
	}
	return d.cfg.Wait(ctx, pause) == nil
}

// retryAfter is the pause that the hub asked for.
func retryAfter(err error) time.Duration {
	var bye *ByeError
	var refused *RefusedError
	switch {
	case errors.As(err, &bye):
		return bye.RetryAfter
	case errors.As(err, &refused):
		return refused.RetryAfter
	}
	return 0
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
