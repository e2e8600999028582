package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path"

	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// principalShared are what a user can say about clusters that use the hub's
// repo-server and Redis.
type principalShared struct {
	agents    []string
	address   string
	plaintext bool
	ca        string
}

func (s *principalShared) declare(f *flags) {
	f.heading("Shared mode: clusters without a repo-server and Redis of their own")
	f.add("shared-mode-agents", list(&s.agents, "PATTERNS"),
		"Agents that may use the hub's repo-server, for repositories of projects that are placed on them, and its Redis, for a cache that is theirs alone: names, or patterns with * and ?, separated by commas. An Agent with spec.shared may do so anyway.")
	f.defaultText("shared-mode-agents", "none")
	f.add("shared-repo-server-address", text(&s.address, "HOST:PORT", "argocd-repo-server:8081"),
		"The repo-server that they use. The Redis is that of --redis-server-address.")
	f.add("shared-repo-server-plaintext", onOff(&s.plaintext, false),
		"That repo-server has no TLS.")
	f.add("shared-repo-server-ca-path", text(&s.ca, "FILE", ""),
		"Certificates of the authorities that vouch for that repo-server, as a PEM file.")
	f.defaultText("shared-repo-server-ca-path", "its certificate is not verified, as Argo CD has it by default")
}

func (s *principalShared) check(f *flags, bad *validationErrors) {
	for _, pattern := range s.agents {
		if _, err := path.Match(pattern, ""); err != nil {
			bad.add("%s: %q is not a pattern: %w", f.name("shared-mode-agents"), pattern, err)
		}
	}
	checkAddress(f, bad, "shared-repo-server-address", s.address)
	if s.plaintext && s.ca != "" {
		bad.add("%s contradicts %s: there is no certificate to verify; remove one or the other", f.name("shared-repo-server-ca-path"), f.name("shared-repo-server-plaintext"))
	}
}

func (s *principalShared) config(redis *redisSettings, cfg *principal.Config) (err error) {
	cfg.Shared.Agents, cfg.Shared.RepoServer = s.agents, s.address
	if cfg.Shared.Redis, err = redis.endpoint(); err != nil || s.plaintext {
		return err
	}
	host, _, err := net.SplitHostPort(s.address)
	if err != nil {
		return fmt.Errorf("read the repo-server's address: %w", err)
	}
	cfg.Shared.RepoServerTLS = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: s.ca == ""} //nolint:gosec // as Argo CD does: its certificate is its own
	if s.ca == "" {
		return nil
	}
	pem, err := os.ReadFile(s.ca)
	if err != nil {
		return fmt.Errorf("read the authorities of the repo-server: %w", err)
	}
	cfg.Shared.RepoServerTLS.RootCAs = x509.NewCertPool()
	if !cfg.Shared.RepoServerTLS.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("read the authorities of the repo-server: there is no certificate in %s", s.ca)
	}
	return nil
}
