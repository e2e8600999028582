package principal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/transport"
)

// clusterAccess is the part of a cluster Secret's config that is ours.
type clusterAccess struct {
	TLS clusterAccessTLS `json:"tlsClientConfig"`
}

type clusterAccessTLS struct {
	Cert []byte `json:"certData"`
	Key  []byte `json:"keyData"`
	CA   []byte `json:"caData"`
}

const accessTimeout = 15 * time.Second

// clusterConfig gives Argo CD a certificate of its own for each agent, to reach
// its cluster with through the resource proxy, and renews it.
func (i *issuer) clusterConfig() ClusterConfig {
	return func(agent string, now []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), accessTimeout)
		defer cancel()
		a, err := i.manager.Authority(ctx)
		if errors.Is(err, pki.ErrNoAuthority) || err == nil && !a.Issues() {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var has clusterAccess
		if json.Unmarshal(now, &has) == nil && len(has.TLS.Key) > 0 && bytes.Equal(has.TLS.CA, a.BundlePEM()) && !a.Due(has.TLS.Cert, i.now()) {
			return now, nil
		}
		issued, err := i.manager.ProxyClient(ctx, agent)
		if err != nil {
			return nil, err
		}
		return json.Marshal(clusterAccess{clusterAccessTLS{Cert: issued.Cert, Key: issued.Key, CA: issued.Bundle}})
	}
}

// enroller is the issuer for connections; nil: there is none.
func (p *principal) enroller() transport.Enroller {
	if p.issuer == nil {
		return nil
	}
	return p.issuer
}
