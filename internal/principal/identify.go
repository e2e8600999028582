package principal

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/link"
)

// By lets an authenticator decide who connects.
func By(a *identity.Authenticator) link.Authenticate {
	return func(ctx context.Context) (link.Peer, error) {
		p, err := a.Authenticate(ctx)
		return link.Peer(p), err
	}
}
