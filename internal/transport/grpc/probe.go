package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Probe connects as an agent does, up to the first byte of the principal: name resolution, proxies, WebSocket, and TLS
// with both certificates. It opens no session, so that it does not disturb the agent's.
func Probe(ctx context.Context, cfg ClientConfig) error {
	a := newAttempt(cfg.withDefaults(), nil)
	if a.cfg.TLS == nil {
		return errors.New("a plaintext connection cannot be probed")
	}
	cfgTLS, err := a.cfg.TLS()
	if err != nil {
		return fmt.Errorf("prepare TLS for %s: %w", a.cfg.Address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.OpenTimeout)
	defer cancel()
	conn, err := a.connectOrUpgrade(ctx, a.cfg.Address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	host, _, err := net.SplitHostPort(a.cfg.Address)
	if err != nil {
		host = a.cfg.Address
	}
	secured, _, err := newClientCredentials(cfgTLS, a.failed, a.cfg.firstByteTimeout()).ClientHandshake(ctx, host, conn)
	if err != nil {
		_ = conn.Close()
		return a.cfg.Explain(err)
	}
	return secured.Close()
}
