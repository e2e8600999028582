package issue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// clusterConfig is the part of a cluster Secret's config that the Issuer writes.
type clusterConfig struct {
	TLS clusterTLS `json:"tlsClientConfig"`
}

type clusterTLS struct {
	Cert []byte `json:"certData"`
	Key  []byte `json:"keyData"`
	CA   []byte `json:"caData"`
}

const clusterConfigTimeout = 15 * time.Second

// ClusterConfig returns the config of an agent's cluster Secret: a client certificate for the resource proxy that is
// valid for this agent only. It returns current if that is still valid, and nil if the hub cannot issue.
func (i *Issuer) ClusterConfig(agent string, current []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), clusterConfigTimeout)
	defer cancel()
	a, err := i.manager.Authority(ctx)
	if errors.Is(err, pki.ErrNoAuthority) || err == nil && !a.CanIssue() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var has clusterConfig
	if json.Unmarshal(current, &has) == nil && len(has.TLS.Key) > 0 && bytes.Equal(has.TLS.CA, a.BundlePEM()) && !a.NeedsRenewal(has.TLS.Cert, i.now()) {
		return current, nil
	}
	issued, err := i.manager.ProxyClient(ctx, agent)
	if err != nil {
		return nil, err
	}
	return json.Marshal(clusterConfig{clusterTLS{Cert: issued.Cert, Key: issued.Key, CA: issued.Bundle}})
}

// Changed returns a channel that is closed when the results of ClusterConfig may have changed.
func (i *Issuer) Changed() <-chan struct{} {
	_, changed := i.Trust()
	return changed
}

// ClusterCertificate returns the certificate in the config of a cluster Secret, if it was issued for this agent only. A
// certificate next to a bearer token is shared by all cluster Secrets.
func ClusterCertificate(agent string, config []byte) (fingerprint string, expires time.Time, ok bool) {
	var has clusterConfig
	if json.Unmarshal(config, &has) != nil || rawjson.Text(config, "bearerToken") != "" {
		return "", time.Time{}, false
	}
	certs, err := pki.Certificates(has.TLS.Cert)
	if err != nil || certs[0].Subject.CommonName != agent || !slices.Contains(certs[0].Subject.OrganizationalUnit, pki.ProxyClientUnit) {
		return "", time.Time{}, false
	}
	return identity.Fingerprint(certs[0]), certs[0].NotAfter, true
}
