package main

import (
	"crypto/tls"
	"log/slog"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// trust decides how agents are recognised, and sets up TLS.
func (s *principalSettings) trust(cfg *principal.Config) error {
	method, err := identity.ParseMethod(s.auth)
	if err != nil {
		return err
	}
	who := &identity.Authenticator{Method: method}
	cfg.Authenticate = principal.AuthenticateWith(who)
	if s.plaintext {
		return nil
	}
	cfg.Revocations = new(identity.Revocations)
	who.Revoked = cfg.Revocations
	cfg.Live.Names = method.AgentFromCertificate
	cfg.Explain = identity.ExplainServer
	if s.spiffe.socket != "" {
		s.issue(cfg, nil, method)
		return s.trustSPIFFE(cfg)
	}
	source, secrets, err := s.source(cfg.Namespace, true, cfg.Log)
	if err != nil {
		return err
	}
	cfg.TLS = identity.ServerTLS(source, cfg.Revocations)
	s.apply(cfg.TLS)
	cfg.Secrets = secrets
	s.issue(cfg, source, method)
	return nil
}

// trust decides how the agent proves who it is, and sets up TLS.
func (s *agentSettings) trust(cfg *agent.Config) error {
	if s.plaintext {
		return nil
	}
	cfg.Explain = identity.ExplainClient
	if s.spiffe.socket != "" {
		return s.trustSPIFFE(cfg)
	}
	source, secrets, err := s.source(cfg.Namespace, !s.insecure, cfg.Log)
	if err != nil {
		return err
	}
	name := strings.Trim(s.serverAddress, "[]")
	cfg.TLS = func() (*tls.Config, error) {
		now, err := identity.ClientTLS(source, name)
		if err != nil {
			return nil, err
		}
		s.apply(now)
		now.InsecureSkipVerify = s.insecure
		return now, nil
	}
	cfg.Secrets = secrets
	s.renewal(cfg)
	return nil
}

// source is where certificates come from: files, or Secrets that assembly
// watches and passes on.
func (s *certificateSettings) source(namespace string, verify bool, log *slog.Logger) (identity.Source, map[string]func(map[string][]byte) error, error) {
	if s.cert == "" {
		source := newSecrets(namespace, s.secret, s.caSecret, verify)
		return source, source.handlers(), nil
	}
	files, err := identity.NewFiles(s.cert, s.key, s.ca, log)
	return files, nil, err
}
