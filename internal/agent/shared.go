package agent

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	proxy "github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// Shared is where Argo CD's controllers on this cluster find the hub's
// repo-server and Redis, instead of their own. The hub has to allow it.
type Shared struct {
	RepoServer net.Listener // nil: off
	Redis      net.Listener // nil: off
	Password   string       // that clients of Redis have to give; empty: none
	TLS        *tls.Config  // for clients that want it
}

// sharedRuns lists what has to run.
func (a *agent) sharedRuns() map[string]func(context.Context) error {
	out := map[string]func(context.Context) error{}
	cfg := a.cfg.Shared
	if cfg.RepoServer != nil {
		door := &proxy.Forwarder{Open: a.callHub("repo-server"), TLS: cfg.TLS, Log: a.log.With("for", "repo-server")}
		out["the hub's repo-server"] = func(ctx context.Context) error { return door.Run(ctx, cfg.RepoServer) }
	}
	if cfg.Redis != nil {
		door := &proxy.Forwarder{Open: a.callHub("hub-redis"), TLS: cfg.TLS, Sorry: redis.Sorry, Most: 128, Log: a.log.With("for", "Redis")}
		if cfg.Password != "" {
			door.Greet = func(conn net.Conn) (net.Conn, error) { return redis.Gate(conn, cfg.Password) }
		}
		out["the hub's Redis"] = func(ctx context.Context) error { return door.Run(ctx, cfg.Redis) }
	}
	return out
}

// callHub opens tunnels to a target of the hub.
func (a *agent) callHub(target string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		dialer := a.dialer.Load()
		if dialer == nil {
			return nil, transport.ErrNotConnected
		}
		return dialer.OpenTunnel(ctx, target)
	}
}
