package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
)

// agentShared configures a workload cluster that uses the repo-server and Redis of the hub.
type agentShared struct {
	repoServer, redis, password, cert, key string
}

func (s *agentShared) declare(f *flags) {
	f.heading("Shared mode")
	f.add("shared-repo-server-listen", text(&s.repoServer, "HOST:PORT", ""),
		"Address that serves the hub's repo-server to Argo CD's controllers (their --repo-server). The hub must permit it with "+
			"spec.shared of the Agent or --shared-mode-agents of the principal. Every client that reaches the address can use it: "+
			"restrict it to the controllers.").defaultText("off")
	f.add("shared-redis-listen", text(&s.redis, "HOST:PORT", ""),
		"Address that serves the hub's Redis to Argo CD's controllers (their --redis). The cache of each agent is separate. "+
			"Replaces --redis-addr.").defaultText("off")
	f.add("shared-redis-password", text(&s.password, "PASSWORD", ""),
		"Password for clients of that address (their REDIS_PASSWORD). Prefer the environment variable.").defaultText("none")
	f.add("shared-tls-cert", text(&s.cert, "FILE", ""),
		"PEM file with the certificate for both addresses, for controllers that verify it. Clients without TLS are served, too.").
		defaultText("a self-signed certificate, as Argo CD's repo-server has")
	f.add("shared-tls-key", text(&s.key, "FILE", ""), "PEM file with the key of that certificate.")
}

func (s *agentShared) check(f *flags) {
	for name, address := range map[string]string{"shared-repo-server-listen": s.repoServer, "shared-redis-listen": s.redis} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			f.failIf(name, errors.New("must be HOST:PORT, or :PORT for all addresses of this host"))
		}
	}
	f.requires(s.redis != "", "--shared-redis-listen", "shared-redis-password")
	f.requires(s.repoServer != "" || s.redis != "", "--shared-repo-server-listen or --shared-redis-listen", "shared-tls-cert", "shared-tls-key")
	if (s.cert == "") != (s.key == "") {
		f.fail("--shared-tls-cert and --shared-tls-key belong together: set both or neither")
	}
	f.conflicts(s.redis != "", "shared-redis-listen", "a cluster uses its own Redis or that of the hub", append(redisFlags, "redis-tls-enabled")...)
}

// config opens the listeners and completes cfg. Live access reads the cache where the controllers write it.
func (s *agentShared) config(ctx context.Context, open *listeners, cfg *agent.Config) (err error) {
	if s.repoServer == "" && s.redis == "" {
		return nil
	}
	cfg.Shared.Password = s.password
	if s.cert == "" {
		cfg.Shared.TLS, err = sharedmode.SelfSignedConfig("argocd-agent")
	} else {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(s.cert, s.key); err != nil {
			err = fmt.Errorf("read the certificate for Argo CD's controllers: %w", err)
		}
		cfg.Shared.TLS = sharedmode.Config(pair)
	}
	if err != nil {
		return err
	}
	if s.repoServer != "" {
		if cfg.Shared.RepoServer, err = open.open(ctx, "clients of the repo-server", s.repoServer); err != nil {
			return err
		}
	}
	if s.redis == "" {
		return nil
	}
	if cfg.Shared.Redis, err = open.open(ctx, "clients of Redis", s.redis); err != nil {
		return err
	}
	if cfg.Live.Redis != nil {
		own := redis.Endpoint{Address: localAddress(cfg.Shared.Redis.Addr())}
		if s.password != "" {
			own.Credentials = redis.Fixed("", s.password)
		}
		cfg.Live.Redis = &own
	}
	return nil
}

// localAddress returns the address at which this process reaches its own listener.
func localAddress(address net.Addr) string {
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return hostPort("localhost", tcp.Port)
	}
	return address.String()
}
