package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// config turns settings that have been checked into those of the assembly, and
// opens what it listens on. The function that is returned closes it.
func (s *principalSettings) config(ctx context.Context, log *slog.Logger) (principal.Config, func(), error) {
	cfg := principal.Config{
		Version:                   thisBuild().Version,
		Mapping:                   mapping(s.byDestination),
		AllowedNamespaces:         s.allowedNamespaces,
		ShareUnscopedRepositories: s.shareRepositories,
		SyncRepositoryTrust:       s.syncTrust,
		RequireRegistration:       s.required || !s.live.selfRegister,
		NamespaceCreate:           principal.NamespaceCreate{Enable: s.namespaceCreate, Pattern: s.namespacePattern, Labels: s.namespaceLabels},
		ResourceProxy:             s.live.address,
		KeepaliveMinInterval:      s.keepAliveLeast,
		WebSocket:                 s.webSocket,
		Log:                       log,
		Jitter:                    jitter,
	}
	var open listeners
	err := func() (err error) {
		if cfg.LabelSelector, err = selector(s.selector); err != nil {
			return err
		}
		if cfg.Cluster, cfg.Namespace, err = s.connect(cfg.Version); err != nil {
			return err
		}
		if err := s.trust(&cfg); err != nil {
			return err
		}
		if cfg.Listener, err = open.open(ctx, "agents", s.listenAddress()); err != nil {
			return err
		}
		if err := s.live.config(ctx, s.listenHost, &open, &cfg); err != nil {
			return err
		}
		s.replica.config(s.live.resourcePort, &cfg)
		if err := s.shared.config(&s.live.redis, &cfg); err != nil {
			return err
		}
		if cfg.MetricsListener, err = open.openPort(ctx, "requests for metrics", s.metrics); err != nil {
			return err
		}
		cfg.HealthListener, err = open.openPort(ctx, "probes", s.healthz)
		return err
	}()
	if err != nil {
		open.close()
		return principal.Config{}, nil, err
	}
	return cfg, open.close, nil
}

// config is the agent's.
func (s *agentSettings) config(ctx context.Context, log *slog.Logger) (agent.Config, func(), error) {
	cfg := agent.Config{
		Version:           thisBuild().Version,
		Mode:              s.mode,
		Mapping:           mapping(s.byDestination),
		AllowedNamespaces: s.allowedNamespaces,
		CreateNamespaces:  s.createNamespaces,
		OnRecreate:        s.recreated,
		SyncTimeout:       s.syncTimeout,
		Server:            s.server(),
		Proxy:             http.ProxyFromEnvironment,
		HeaderName:        s.creds.name,
		HeaderValue:       s.creds.text,
		KeepAlive:         s.keepAlive,
		Heartbeat:         s.heartbeat,
		Compression:       s.compress,
		WebSocket:         s.webSocket,
		Log:               log,
		Jitter:            jitter,
	}
	cfg.Policy.AdoptNever = s.adoption == adoptNever
	cfg.Policy.Recreate = s.mismatch == mismatchRecreate
	var open listeners
	err := func() (err error) {
		if cfg.LabelSelector, err = selector(s.selector); err != nil {
			return err
		}
		if cfg.Cluster, cfg.Namespace, err = s.connect(cfg.Version); err != nil {
			return err
		}
		if err := s.trust(&cfg); err != nil {
			return err
		}
		if err := s.live.config(&cfg); err != nil {
			return err
		}
		if err := s.shared.config(ctx, &open, &cfg); err != nil {
			return err
		}
		if cfg.MetricsListener, err = open.openPort(ctx, "requests for metrics", s.metrics); err != nil {
			return err
		}
		cfg.HealthListener, err = open.openPort(ctx, "probes", s.healthz)
		return err
	}()
	if err != nil {
		open.close()
		return agent.Config{}, nil, err
	}
	return cfg, open.close, nil
}

// selector is nil, as assemblies expect, where there is nothing to select.
func selector(s string) (kind.Selector, error) {
	parsed, err := kind.ParseSelector(s)
	if err != nil {
		return nil, fmt.Errorf("read the label selector: %w", err)
	}
	if len(parsed) == 0 {
		return nil, nil
	}
	return parsed, nil
}

// mapping is the setting's name in the product.
func mapping(byDestination bool) kind.Mapping {
	if byDestination {
		return kind.ByDestination
	}
	return kind.ByNamespace
}

// jitter spreads retries; nobody gains anything by guessing it.
func jitter() float64 {
	return rand.Float64() //nolint:gosec // not a secret
}
