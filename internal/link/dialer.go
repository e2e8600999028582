package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"
)

// DialerConfig is what a Dialer needs. Address and Log are required.
type DialerConfig struct {
	Address string // host:port of the principal
	Name    string // of this agent, if it knows it; for people who read events

	// TLS has to find the newest certificates by itself; nil means plaintext, for
	// a mesh.
	TLS *tls.Config

	// HeaderName and HeaderValue go with the call, where no mesh adds them.
	HeaderName  string
	HeaderValue string

	Log *slog.Logger

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

	Compression      bool          // both directions, with gzip
	OpenTimeout      time.Duration // from the start of an attempt to an accepted stream: 20 s
	Queue            int           // bytes that wait for the hub: 8 MiB
	KeepAlive        time.Duration // silence until the agent asks for a sign of life: 30 s, at least 10
	KeepAliveTimeout time.Duration // for that sign: 10 s
	Backoff          Backoff

	Jitter func() float64 // 0 to 1; nil: random

	// What tests replace.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time                           // the clock
	Wait func(context.Context, time.Duration) error // between attempts
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
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	cfg.OpenTimeout = or(cfg.OpenTimeout, 20*time.Second)
	cfg.Queue = or(cfg.Queue, defaultQueue)
	cfg.KeepAlive = or(cfg.KeepAlive, agentKeepAlive)
	cfg.KeepAliveTimeout = or(cfg.KeepAliveTimeout, keepAliveTimeout)
	cfg.Backoff = cfg.Backoff.withDefaults()
	return cfg
}

// Dialer is an agent's end: it keeps one connection to the hub.
type Dialer struct {
	cfg      DialerConfig
	events   Events
	counters Counters
	quiet    *quiet
}

// NewDialer returns a Dialer that is not running yet.
func NewDialer(cfg DialerConfig, events Events) (*Dialer, error) {
	if cfg.Log == nil || events == nil {
		return nil, errors.New("a link dialer needs events and a log")
	}
	if _, _, err := net.SplitHostPort(cfg.Address); err != nil {
		return nil, fmt.Errorf("the principal's address has to be host:port: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Dialer{cfg: cfg, events: events, quiet: newQuiet(cfg.Log, cfg.Now)}, nil
}

// Counters returns the totals, which go on counting.
func (d *Dialer) Counters() *Counters { return &d.counters }

// Run dials, and dials again whenever the connection ends, until the context is
// cancelled. Then it says goodbye and returns nil.
func (d *Dialer) Run(ctx context.Context) error {
	pace := &pacer{Backoff: d.cfg.Backoff, random: d.cfg.Jitter}
	for ctx.Err() == nil {
		begin := d.cfg.Now()
		c, err := d.attempt(ctx)
		if ctx.Err() != nil {
			break
		}
		opened := c != nil && c.established.Load()
		if c != nil {
			begin = c.Since
		}
		pause := pace.next(opened, d.cfg.Now().Sub(begin), retryAfter(err))
		if c == nil {
			d.counters.Failures.Add(1)
			d.quiet.warn(d.cfg.Address, "connecting to the principal failed", err, slog.Duration("next", pause))
			d.cfg.Failed(err, pause)
		}
		if d.cfg.Wait(ctx, pause) != nil {
			break
		}
	}
	return nil
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
