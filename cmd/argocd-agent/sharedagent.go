package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
)

// agentShared are what a user can say about a workload cluster that uses the
// hub's repo-server and Redis.
type agentShared struct {
	repoServer, redis, password, cert, key string
}

func (s *agentShared) declare(f *flags) {
	f.heading("Shared mode: a cluster without a repo-server and Redis of its own")
	f.add("shared-repo-server-listen", text(&s.repoServer, "HOST:PORT", ""),
		"Listen here for Argo CD's controllers (their --repo-server), and carry what they ask to the hub's repo-server. The hub has to allow it: spec.shared of the Agent, or the principal's --shared-mode-agents. Whoever reaches the address can use it: let that be the controllers alone.")
	f.defaultText("shared-repo-server-listen", "off")
	f.add("shared-redis-listen", text(&s.redis, "HOST:PORT", ""),
		"Listen here for Argo CD's controllers (their --redis), and keep what they cache in the hub's Redis, apart from that of all others. It takes the place of --redis-addr.")
	f.defaultText("shared-redis-listen", "off")
	f.add("shared-redis-password", text(&s.password, "PASSWORD", ""),
		"Password that they have to give there (their REDIS_PASSWORD); better given in the environment.")
	f.defaultText("shared-redis-password", "none")
	f.add("shared-tls-cert", text(&s.cert, "FILE", ""),
		"Certificate for both, as a PEM file, for controllers that are set to verify it. Those that want no TLS at all are served too.")
	f.defaultText("shared-tls-cert", "one that nobody vouches for, as Argo CD's own repo-server has it")
	f.add("shared-tls-key", text(&s.key, "FILE", ""), "Key of that certificate, as a PEM file.")
}

func (s *agentShared) check(f *flags, bad *validationErrors) {
	for name, address := range map[string]string{"shared-repo-server-listen": s.repoServer, "shared-redis-listen": s.redis} {
		if address != "" {
			checkListen(f, bad, name, address)
		}
	}
	if s.redis == "" && f.changed("shared-redis-password") {
		bad.add("%s without --shared-redis-listen has no effect: add the one or remove the other", f.name("shared-redis-password"))
	}
	if s.repoServer == "" && s.redis == "" && f.anyGiven("shared-tls-cert", "shared-tls-key") {
		bad.add("%s without --shared-repo-server-listen or --shared-redis-listen has no effect: add one or remove it", f.names("shared-tls-cert", "shared-tls-key"))
	}
	if (s.cert == "") != (s.key == "") {
		bad.add("--shared-tls-cert and --shared-tls-key belong together: give both, or neither")
	}
	if own := f.names("redis-addr", "redis-username", "redis-password", "redis-creds-dir-path", "redis-tls-enabled"); s.redis != "" && own != "" {
		bad.add("%s contradicts %s: the cluster has a Redis of its own, or uses the hub's; remove one or the other", own, f.name("shared-redis-listen"))
	}
}

// checkListen checks an address to listen on.
func checkListen(f *flags, bad *validationErrors, name, address string) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		bad.add("%s %q: write it as HOST:PORT, or :PORT for all addresses of this host: %w", f.name(name), address, err)
	}
}

// config opens what is listened on. Live access finds the cluster's cache where
// the controllers put it.
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
		own := redis.Endpoint{Address: itself(cfg.Shared.Redis.Addr())}
		if s.password != "" {
			own.Credentials = redis.Fixed("", s.password)
		}
		cfg.Live.Redis = &own
	}
	return nil
}

// itself is where this process reaches what it listens on.
func itself(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return address.String()
	}
	return net.JoinHostPort("localhost", itoa(tcp.Port))
}
