package principal

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
)

// This file decides whose cluster a caller of the resource proxy may reach.

// caller finds the agent whose cluster somebody may reach: the one that the
// certificate is named after. The one that all cluster Secrets share is named
// after nobody, even if an agent has its name: there the token decides.
func (l *live) caller(state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return "", errors.New("a client certificate is needed")
	}
	cert := state.PeerCertificates[0]
	if l.p.cfg.Revocations.Revoked(identity.Fingerprint(cert)) {
		return "", errors.New("the client certificate is revoked")
	}
	if !cert.NotAfter.IsZero() && time.Now().After(cert.NotAfter) { // connections may be older than that
		return "", fmt.Errorf("the client certificate expired on %s", cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if l.p.cfg.Live.Access.isShared(cert) {
		return "", nil
	}
	if slices.Contains(cert.Subject.OrganizationalUnit, pki.ProxyClientUnit) && pki.IssuedAt(cert).Before(l.p.cfg.Revocations.Before(cert.Subject.CommonName)) {
		return "", fmt.Errorf("the client certificate was issued for an agent %s that was deleted since, and is revoked", cert.Subject.CommonName)
	}
	agent, err := l.known(cert.Subject.CommonName)
	if err == nil && l.p.cfg.Live.Names != nil && !slices.Contains(cert.Subject.OrganizationalUnit, pki.ProxyClientUnit) {
		// Agents may be told by something else than the common name, which then
		// anybody may have chosen.
		if own, err := l.p.cfg.Live.Names(cert); err == nil && own != agent && l.p.registry.hasAgent(own) {
			return "", fmt.Errorf("the client certificate is agent %s's own, and does not open the cluster of %s whatever its common name is", own, agent)
		}
	}
	return agent, err
}

// byToken finds the agent whose cluster Secret has a token, for certificates
// that are shared and name none.
func (l *live) byToken(_ *tls.ConnectionState, token string) (string, error) {
	agent, ok := l.tokens.agent(token)
	if !ok {
		return "", errors.New("the client certificate names no agent, nor does the token: it is not that of a cluster Secret")
	}
	return l.known(agent)
}

func (l *live) known(agent string) (string, error) {
	if _, known := l.p.registry.get(agent); !known {
		return "", &resource.UnknownAgentError{Agent: agent}
	}
	return agent, nil
}
