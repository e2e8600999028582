package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
)

// Peer is the authenticated peer of a connection.
type Peer struct {
	Agent       string
	Fingerprint string    // of its certificate; empty if a mesh authenticates it
	NotAfter    time.Time // of its certificate; zero if a mesh authenticates it
}

// Client is what a transport knows about a client.
type Client struct {
	TLS        *tls.ConnectionState // nil on a plaintext connection
	RemoteAddr net.Addr
	Header     func(name string) []string // unverified
}

// Authenticator names the agent that opens a stream.
type Authenticator struct {
	Method *Method

	// Revoked is checked again when a stream opens, because a connection may be older than the revocation. May be nil.
	Revoked *Revocations

	// Trusted lists the source addresses from which a header is trusted, those of gateways. If empty, the loopback
	// addresses of a sidecar.
	Trusted []netip.Prefix

	Now func() time.Time // if nil, time.Now
}

func (a *Authenticator) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

// Authenticate returns the agent that the transport has verified.
func (a *Authenticator) Authenticate(c Client) (Peer, error) {
	if a.Method.Plaintext() {
		if c.TLS != nil {
			return Peer{}, errors.New("authentication by header needs a plaintext port behind a mesh, but this connection uses TLS")
		}
		return a.byHeader(c)
	}
	if c.TLS == nil || len(c.TLS.VerifiedChains) == 0 || len(c.TLS.VerifiedChains[0]) == 0 {
		return Peer{}, errors.New("connection has no verified client certificate")
	}
	leaf := c.TLS.VerifiedChains[0][0]
	id := Fingerprint(leaf)
	if a.Revoked.Revoked(id) {
		return Peer{}, &RevokedError{Fingerprint: id, Subject: clip(leaf.Subject.String())}
	}
	if a.now().After(leaf.NotAfter) { // after the handshake
		return Peer{}, fmt.Errorf("the certificate of %q expired on %s: connect with a renewed one", clip(leaf.Subject.String()), formatTime(leaf.NotAfter))
	}
	if slices.Contains(leaf.Subject.OrganizationalUnit, pki.ProxyClientUnit) {
		return Peer{}, fmt.Errorf("the certificate of %q is a resource proxy client certificate of Argo CD, not the agent's own", clip(leaf.Subject.String()))
	}
	name, err := a.Method.AgentFromCertificate(leaf)
	if err != nil {
		return Peer{}, err
	}
	if deleted := a.Revoked.Before(name); pki.IssuedAt(leaf).Before(deleted) {
		return Peer{}, fmt.Errorf("the certificate of %q was issued before agent %s was deleted on the hub and is revoked: join again or get another certificate", clip(leaf.Subject.String()), name)
	}
	return Peer{Agent: name, Fingerprint: id, NotAfter: leaf.NotAfter}, nil
}

func (a *Authenticator) byHeader(c Client) (Peer, error) {
	if !a.trusts(c.RemoteAddr) {
		return Peer{}, fmt.Errorf("a header from %s is not trusted: the mesh's sidecar must run in the pod of the principal, or --auth-header-sources must list its gateway", c.RemoteAddr)
	}
	name, err := a.Method.agentFromHeader(c.Header(a.Method.header))
	if err != nil {
		return Peer{}, err
	}
	return Peer{Agent: name}, nil
}

func (a *Authenticator) trusts(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return false
	}
	ip := at.Addr().Unmap()
	if len(a.Trusted) == 0 {
		return ip.IsLoopback()
	}
	return slices.ContainsFunc(a.Trusted, func(prefix netip.Prefix) bool { return prefix.Contains(ip) })
}
