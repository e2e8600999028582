package principal

import (
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// AuthenticateWith adapts an Authenticator to transport.Authenticate.
func AuthenticateWith(a *identity.Authenticator) transport.Authenticate {
	return func(c transport.Credentials) (transport.Peer, error) {
		p, err := a.Authenticate(identity.Client(c))
		return transport.Peer(p), err
	}
}
