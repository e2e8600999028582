package main

import (
	"fmt"
	"path"

	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// principalShared configures the agents that use the repo-server and Redis of the hub.
type principalShared struct {
	agents    []string
	address   string
	plaintext bool
	ca        string
	client    clientCertificate

	redisMebibytes int
}

func (s *principalShared) declare(f *flags) {
	f.heading("Shared mode")
	f.add("shared-mode-agents", list(&s.agents, "PATTERNS"),
		"Agents that can use the hub's repo-server, for repositories of their projects, and the hub's Redis, for a separate cache. "+
			"Comma-separated names, or patterns with * and ?. In addition, agents with spec.shared.").defaultText("none")
	f.add("shared-redis-max-mebibytes", number(&s.redisMebibytes, "NUMBER", 2048, 1, 1<<20),
		"Size of the values, in MiB, that all of them store in the hub's Redis. One agent stores at most 512 MiB.")
	f.add("shared-repo-server-address", text(&s.address, "HOST:PORT", "argocd-repo-server:8081"),
		"Address of the repo-server that they use. The Redis is that of --redis-server-address.")
	f.add("shared-repo-server-plaintext", boolean(&s.plaintext, false), "Connect to that repo-server without TLS.")
	f.add("shared-repo-server-ca-path", text(&s.ca, "FILE", ""), "PEM file with the trusted CA certificates for that repo-server.").
		defaultText("its certificate is not verified, as in Argo CD")
	f.add("shared-repo-server-client-cert-path", text(&s.client.cert, "FILE", ""),
		"PEM file with the client certificate for that repo-server, if it requires one (its --client-ca-path). Read for each connection.").
		defaultText("no client certificate")
	f.add("shared-repo-server-client-key-path", text(&s.client.key, "FILE", ""), "PEM file with the key of that certificate.")
}

func (s *principalShared) check(f *flags) {
	for _, pattern := range s.agents {
		if _, err := path.Match(pattern, ""); err != nil {
			f.failIf("shared-mode-agents", fmt.Errorf("%q is not a pattern: %w", pattern, err))
		}
	}
	f.failIf("shared-repo-server-address", checkAddress(s.address))
	f.conflicts(s.plaintext, "shared-repo-server-plaintext", "there is no certificate to verify", "shared-repo-server-ca-path", "shared-repo-server-client-cert-path", "shared-repo-server-client-key-path")
	s.client.check(f, "shared-repo-server-client-cert-path", "shared-repo-server-client-key-path")
}

func (s *principalShared) config(hubRedis redis.Endpoint, cfg *principal.Config) (err error) {
	cfg.Shared.Agents, cfg.Shared.RepoServer = s.agents, s.address
	cfg.Shared.RedisLimits.Total = int64(s.redisMebibytes) << 20
	cfg.Shared.RedisLimits.Passing = int64(eighthOfMemory(32<<20, 128<<20))
	cfg.Shared.Redis = hubRedis
	if s.plaintext {
		return nil
	}
	cfg.Shared.RepoServerTLS, err = clientTLS("the repo-server", s.address, s.ca, s.ca == "", s.client) // its certificate is self-signed
	return err
}
