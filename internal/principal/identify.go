package principal

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// AuthenticateWith lets an authenticator decide who connects.
func AuthenticateWith(a *identity.Authenticator) transport.Authenticate {
	return func(ctx context.Context) (transport.Peer, error) {
		p, err := a.Authenticate(ctx)
		return transport.Peer(p), err
	}
}
