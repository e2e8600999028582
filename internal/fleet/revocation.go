package fleet

import (
	"context"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
)

// revoke adds all certificates of an agent to the blocklist: its own, and those with which Argo CD and users reach its
// cluster.
func (k *Reconciler) revoke(ctx context.Context, rec agentRecord) error {
	revoked, err := k.certificatesOf(ctx, rec)
	if err != nil {
		return err
	}
	if same, err := k.fetchSame(ctx, rec); err != nil || same == nil {
		return err
	}
	return k.cfg.Blocklist.Add(ctx, rec.Name, revoked, time.Now())
}

// certificatesOf returns the certificates of an agent by fingerprint with their expiry. A zero time means unknown.
func (k *Reconciler) certificatesOf(ctx context.Context, rec agentRecord) (map[string]time.Time, error) {
	all := map[string]time.Time{}
	if c := rec.Status.Certificate; c != nil && c.Fingerprint != "" {
		all[c.Fingerprint] = time.Time{}
		if c.Expires != nil {
			all[c.Fingerprint] = c.Expires.Time
		}
	}
	for _, entry := range validIssued(rec.Annotations, time.Now()) {
		fingerprint, expiry, _ := strings.Cut(entry, "/")
		all[fingerprint], _ = time.Parse(time.RFC3339, expiry)
	}
	for fingerprint, expires := range k.cfg.Certificates(rec.Name) {
		if all[fingerprint].IsZero() {
			all[fingerprint] = expires
		}
	}
	for _, name := range k.secretNames(rec.Name) {
		secret, err := k.fetchSecret(ctx, name)
		if err != nil {
			return nil, err
		}
		// The certificate of a Secret that the principal did not create belongs to a user.
		if secret == nil || secret.Label(AgentLabel) != rec.Name || !readSecret(secret).createdByPrincipal() {
			continue
		}
		if fingerprint, expires, ok := issue.ClusterCertificate(rec.Name, secretValue(secret, "config")); ok {
			all[fingerprint] = expires
		}
	}
	return all, nil
}
