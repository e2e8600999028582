package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Probe goes the way of a Dialer as far as the principal's first word, and no
// further: the name, the way there through proxies or in a WebSocket, and TLS with
// both certificates. It opens no session, so that of the agent is not disturbed.
// It is for finding out what stands in the way.
func Probe(ctx context.Context, cfg DialerConfig) error {
	d := NewDialer(cfg)
	if d.cfg.TLS == nil {
		return errors.New("without TLS there is nothing to find out")
	}
	a := &attempt{Dialer: d}
	secure, err := d.cfg.TLS()
	if err != nil {
		return fmt.Errorf("preparing TLS for %s: %w", d.cfg.Address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.OpenTimeout)
	defer cancel()
	connect := a.connect
	if d.cfg.WebSocket {
		connect = a.openWebSocket
	}
	conn, err := connect(ctx, d.cfg.Address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	host, _, err := net.SplitHostPort(d.cfg.Address)
	if err != nil {
		host = d.cfg.Address
	}
	secured, _, err := newClientCredentials(secure, a.failed, d.cfg.verdict()).ClientHandshake(ctx, host, conn)
	if err != nil {
		_ = conn.Close()
		return d.cfg.Explain(err)
	}
	return secured.Close()
}
