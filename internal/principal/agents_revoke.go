package principal

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// revoke puts the certificates that an agent has last been seen with, and those
// that Argo CD and people reach its cluster with, on the list of those that are
// not accepted any more.
func (k *agentReconciler) revoke(ctx context.Context, rec agentRecord) error {
	revoked, err := k.certificatesOf(ctx, rec)
	if err != nil {
		return err
	}
	if its, err := k.sameAgentExists(ctx, rec); err != nil || !its {
		return err
	}
	return k.blocklists.Add(ctx, rec.Name, revoked, time.Now())
}

// certificatesOf lists by fingerprint when the certificates expire that are an
// agent's; zero: that is not known.
func (k *agentReconciler) certificatesOf(ctx context.Context, rec agentRecord) (map[string]time.Time, error) {
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
	for fingerprint, expires := range k.certificates(rec.Name) {
		if all[fingerprint].IsZero() {
			all[fingerprint] = expires
		}
	}
	for _, name := range k.secretNames(rec.Name) {
		there, err := k.client.Get(ctx, kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: name})
		if err != nil {
			return nil, fmt.Errorf("read Secret %s: %w", name, err)
		}
		// That of somebody else's Secret is theirs, and the Secret stays.
		if there == nil || there.Label(agentLabel) != rec.Name || !readSecret(there).createdByPrincipal() {
			continue
		}
		if fingerprint, expires, ok := issue.ClusterCertificate(rec.Name, secretValue(there, "config")); ok {
			all[fingerprint] = expires
		}
	}
	return all, nil
}
