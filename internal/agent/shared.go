package agent

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	proxy "github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
	"github.com/argocd-agent/argocd-agent/internal/transport/tunnel"
)

// Shared configures shared mode: Argo CD's controllers on this cluster use the hub's repo-server and Redis. The hub has
// to allow it.
type Shared struct {
	RepoServer net.Listener // may be nil
	Redis      net.Listener // may be nil
	Password   string       // of Redis; may be empty
	TLS        *tls.Config  // for clients that use TLS
}

func (a *agent) sharedRuns() map[string]func(context.Context) error {
	out := map[string]func(context.Context) error{}
	cfg := a.cfg.Shared
	if cfg.RepoServer != nil {
		forwarder := &proxy.Forwarder{Open: a.openHubTunnel("repo-server"), TLS: cfg.TLS, MaxConns: 64, Log: a.log.With("for", "repo-server")}
		out["the hub's repo-server"] = func(ctx context.Context) error { return forwarder.Run(ctx, cfg.RepoServer) }
	}
	if cfg.Redis != nil {
		forwarder := &proxy.Forwarder{Open: a.openHubTunnel("hub-redis"), TLS: cfg.TLS, WriteError: redis.WriteError, MaxConns: 128, Log: a.log.With("for", "Redis")}
		if cfg.Password != "" {
			forwarder.Authenticate = func(conn net.Conn) (net.Conn, error) { return redis.RequirePassword(conn, cfg.Password) }
		}
		out["the hub's Redis"] = func(ctx context.Context) error { return forwarder.Run(ctx, cfg.Redis) }
	}
	return out
}

func (a *agent) openHubTunnel(target string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		dialer := a.dialer.Load()
		if dialer == nil {
			return nil, tunnel.ErrNotConnected
		}
		return dialer.OpenTunnel(ctx, target)
	}
}
