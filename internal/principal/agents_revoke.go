package principal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
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
	return k.blocklists.add(ctx, rec.Name, revoked, time.Now())
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
		if fingerprint, expires, ok := accessCertificate(rec.Name, secretValue(there, "config")); ok {
			all[fingerprint] = expires
		}
	}
	return all, nil
}

// accessCertificate finds in the config of a cluster Secret the certificate that was issued
// for this agent alone. One that comes with a token is shared by all.
func accessCertificate(agent string, config []byte) (fingerprint string, expires time.Time, ok bool) {
	var has clusterAccess
	if json.Unmarshal(config, &has) != nil || rawjson.Text(config, "bearerToken") != "" {
		return "", time.Time{}, false
	}
	certs, err := pki.Certificates(has.TLS.Cert)
	if err != nil || certs[0].Subject.CommonName != agent || !slices.Contains(certs[0].Subject.OrganizationalUnit, pki.ProxyClientUnit) {
		return "", time.Time{}, false
	}
	return identity.Fingerprint(certs[0]), certs[0].NotAfter, true
}

// What an entry of ours says: these words, and when the certificate expires.
const (
	entryPrefix  = "agent "
	entryDeleted = " was deleted on "
	entryExpires = "; the certificate expires on "
)

// entryGrace is how long an entry is kept after that, for clocks that are wrong.
const entryGrace = 24 * time.Hour

// blocklistPatch is what has to change in the list when an agent was deleted; nil:
// the entry goes.
func blocklistPatch(listed map[string]string, agent string, revoked map[string]time.Time, now time.Time) map[string]any {
	data := expired(listed, now)
	for fingerprint, expires := range revoked {
		if _, there := listed[fingerprint]; there {
			continue
		}
		note := fmt.Sprintf(entryPrefix+"%s"+entryDeleted+"%s", agent, now.UTC().Format(time.RFC3339))
		if !expires.IsZero() {
			note += entryExpires + expires.UTC().Format(time.RFC3339)
		}
		data[fingerprint] = note
	}
	data[deletedAgentPrefix+agent] = fmt.Sprintf(entryPrefix+"%s"+entryDeleted+"%s"+entryExpires+"%s", agent,
		now.UTC().Format(time.RFC3339), now.Add(pki.ProxyClientLife).UTC().Format(time.RFC3339))
	return data
}

// expired is what goes from a list because the certificate that it means has
// expired: a list has a size that it cannot grow beyond.
func expired(listed map[string]string, now time.Time) map[string]any {
	data := map[string]any{}
	for fingerprint, note := range listed {
		if entryExpired(note, now) {
			data[fingerprint] = nil
		}
	}
	return data
}

// deletedAgentPrefix begins the entry for all certificates by which Argo CD and people
// reach an agent's cluster, and which were issued before it was deleted: nobody
// has a list of them, and they must not open the cluster of a next agent that has
// the name.
const deletedAgentPrefix = "proxy-clients."

// deletedAgents takes such entries out of the list, and tells until when
// certificates were issued for an agent that is no more. Those of the last minutes
// before its end are let pass, because clocks may differ: what Argo CD had then
// has an entry of its own.
func deletedAgents(listed map[string]string) (map[string]time.Time, error) {
	ended := map[string]time.Time{}
	var broken []error
	for key, note := range listed {
		agent, ok := strings.CutPrefix(key, deletedAgentPrefix)
		if !ok {
			continue
		}
		delete(listed, key)
		at := deletedAt(note)
		if at.IsZero() {
			broken = append(broken, fmt.Errorf("the entry %s does not say when the agent was deleted, so what was issued before that is NOT revoked", key))
			continue
		}
		ended[agent] = at.Add(-maxSkew)
	}
	return ended, errors.Join(broken...)
}

// deletedAt is when an entry of ours says that its agent was deleted; zero: it does
// not.
func deletedAt(note string) time.Time {
	_, rest, _ := strings.Cut(note, entryDeleted)
	when, _, _ := strings.Cut(rest, entryExpires)
	at, _ := time.Parse(time.RFC3339, when)
	return at
}

func entryExpired(note string, now time.Time) bool {
	words, expiry, ours := strings.Cut(note, entryExpires)
	if !ours || !strings.HasPrefix(words, entryPrefix) {
		return false
	}
	expires, err := time.Parse(time.RFC3339, expiry)
	return err == nil && now.After(expires.Add(entryGrace))
}
