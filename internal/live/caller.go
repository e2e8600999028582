package live

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
)

// caller returns the agent whose cluster a client of the resource proxy may reach: the common name of its certificate. It
// returns "" for the certificate that all cluster Secrets share, even if an agent has that name. Then the token decides.
// It refuses the certificates with which agents connect: their keys are on workload clusters.
func (l *Live) caller(state *tls.ConnectionState) (string, error) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return "", errors.New("a client certificate is required")
	}
	cert := state.PeerCertificates[0]
	if l.cfg.Revocations.Revoked(identity.Fingerprint(cert)) {
		return "", errors.New("the client certificate is revoked")
	}
	if !cert.NotAfter.IsZero() && time.Now().After(cert.NotAfter) { // after the handshake
		return "", fmt.Errorf("the client certificate expired on %s", cert.NotAfter.UTC().Format(time.RFC3339))
	}
	if l.cfg.Access.isShared(cert) {
		return "", nil
	}
	issuedForOne := slices.Contains(cert.Subject.OrganizationalUnit, pki.ProxyClientUnit)
	if issuedForOne && pki.IssuedAt(cert).Before(l.cfg.Revocations.Before(cert.Subject.CommonName)) {
		return "", fmt.Errorf("the client certificate was issued for a deleted agent %s and is revoked", cert.Subject.CommonName)
	}
	if l.cfg.Names != nil && !issuedForOne {
		if own, err := l.cfg.Names(cert); err == nil && l.cfg.Registry.HasAgent(own) {
			return "", fmt.Errorf("the client certificate is that of agent %s itself and is not valid here: get one with `argocd-agentctl kubeconfig %s`, "+
				"or issue one with the organizational unit %s", own, own, pki.ProxyClientUnit)
		}
	}
	return l.known(cert.Subject.CommonName)
}

// What names a caller.
const (
	fromClusterSecret = "cluster-secret" // Argo CD, which does not say which user it acts for
	fromCertificate   = "certificate"
)

// user returns what is known of a client of the resource proxy. Argo CD authenticates with the certificate of a cluster
// Secret for all of its users.
func (l *Live) user(state *tls.ConnectionState) resource.Caller {
	cert := state.PeerCertificates[0] // caller has checked it
	if user, ok := pki.UserOf(cert); ok {
		return resource.Caller{User: user.Name, Groups: user.Groups, From: resource.FromKubeconfig}
	}
	if l.cfg.Access.isShared(cert) || slices.Contains(cert.Subject.OrganizationalUnit, pki.ProxyClientUnit) {
		return resource.Caller{From: fromClusterSecret}
	}
	return resource.Caller{User: cert.Subject.String(), From: fromCertificate}
}

// byToken returns the agent whose cluster Secret has a token.
func (l *Live) byToken(_ *tls.ConnectionState, token string) (string, error) {
	agent, ok := l.tokens.agent(token)
	if !ok {
		return "", errors.New("the client certificate names no agent, and the token is not in a cluster Secret")
	}
	return l.known(agent)
}

func (l *Live) known(agent string) (string, error) {
	if _, known := l.cfg.Registry.Get(agent); !known {
		return "", &resource.UnknownAgentError{Agent: agent}
	}
	return agent, nil
}

// AuthorizeReplica implements forward.Local.
func (l *Live) AuthorizeReplica(state *tls.ConnectionState) (code int, err error) {
	if l.cfg.Access.isShared(state.PeerCertificates[0]) {
		return http.StatusForbidden, errors.New("argocd-server uses the certificate of the principal, so it does not authenticate principal replicas: give argocd-server its own certificate")
	}
	return 0, nil
}

// Authorize implements forward.Local.
func (l *Live) Authorize(agent, target string) (code int, err error) {
	if target != targetAPI && target != targetRedis && target != targetReplicas {
		return http.StatusBadRequest, fmt.Errorf("unknown tunnel target %q", target)
	}
	if _, err := l.known(agent); err != nil {
		return http.StatusForbidden, err
	}
	return 0, nil
}
