package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/issue"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

var crdResource = kind.Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}

// finalize revokes the certificates of a terminating Agent, removes what was derived from it, and removes its finalizer.
// The connections of the agent were closed when the watch showed the deletion. Applications and namespaces stay, because
// their deletion would delete workloads.
func (k *Reconciler) finalize(ctx context.Context, seen agentRecord) error {
	rec, due, err := k.currentTerminating(ctx, seen)
	if err != nil || !due {
		return err
	}
	uninstall, err := k.crdTerminating(ctx)
	if err != nil {
		return err
	}
	if uninstall {
		// The CRD is being deleted, not this agent. A new installation continues from the cluster Secrets.
		k.log.WarnContext(ctx, "CRD of Agents is being deleted, keeping certificates and cluster Secret", "agent", rec.Name)
		if err := k.backupSpecToSecret(ctx, rec); err != nil {
			return err
		}
	} else {
		// Tokens first: with a token, the agent could join again.
		if err := k.deleteJoinTokens(ctx, rec.Name); err != nil {
			return err
		}
		if err := k.revoke(ctx, rec); err != nil {
			return err
		}
		if err := k.removeSecrets(ctx, rec); err != nil {
			return err
		}
	}
	i := slices.Index(rec.Finalizers, v1alpha1.Finalizer)
	path := fmt.Sprintf("/metadata/finalizers/%d", i)
	_, err = k.cfg.Client.JSONPatch(ctx, k.registry.ref(rec.Name),
		kube.PatchOperation{Op: "test", Path: "/metadata/resourceVersion", Value: rec.ResourceVersion},
		kube.PatchOperation{Op: "test", Path: path, Value: v1alpha1.Finalizer}, kube.PatchOperation{Op: "remove", Path: path})
	if err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("remove the finalizer of Agent %s: %w", rec.Name, err)
	}
	k.log.InfoContext(ctx, "Deleted agent", "agent", rec.Name)
	if !uninstall {
		k.cfg.Deleted(rec.Agent)
	}
	return nil
}

// currentTerminating reads a terminating Agent and reports whether it must still be finalized. The version in the registry
// can be stale: another replica may have finalized it, and a new Agent may have its name. The tokens, certificates and
// Secret of the new Agent must not be removed.
func (k *Reconciler) currentTerminating(ctx context.Context, seen agentRecord) (rec agentRecord, due bool, err error) {
	if !hasFinalizer(seen) {
		return seen, false, nil
	}
	o, err := k.registry.fetch(ctx, seen.Name)
	if err != nil {
		return seen, false, err
	}
	if o == nil {
		return seen, false, k.removeOrphanedSecret(ctx, seen)
	}
	if rec, err = readAgent(o); err != nil {
		return seen, false, err
	}
	if rec.UID != seen.UID || rec.DeletionTimestamp == nil {
		return rec, false, k.registry.update(ctx, o)
	}
	return rec, hasFinalizer(rec), nil
}

// removeOrphanedSecret deletes a Secret that a replica created for an Agent after another replica had finalized it.
func (k *Reconciler) removeOrphanedSecret(ctx context.Context, deleted agentRecord) error {
	ref := k.secretRef(defaultSecretName(deleted.Name))
	o, err := k.fetchSecret(ctx, ref.Name)
	if err != nil || o == nil || o.Label(AgentLabel) != deleted.Name {
		return err
	}
	if s := readSecret(o); !s.createdByPrincipal() || !s.derived() || s.annotations[backupAnnotation] != "" {
		return nil
	}
	if uninstall, err := k.crdTerminating(ctx); err != nil || uninstall {
		return err
	}
	next, err := k.registry.fetch(ctx, deleted.Name)
	if err != nil || next != nil { // the Secret belongs to the new Agent
		return err
	}
	if err := k.cfg.Client.Delete(ctx, ref, o); err != nil {
		return fmt.Errorf("delete orphaned Secret %s of agent %s: %w", ref.Name, deleted.Name, err)
	}
	k.log.InfoContext(ctx, "Deleted orphaned cluster Secret", "agent", deleted.Name)
	return nil
}

// secretNames returns the names of the Secrets that an agent may have: those that were seen, and the default name, because
// another replica may have just created it.
func (k *Reconciler) secretNames(agent string) []string {
	names := k.registry.secretNames(agent)
	if usual := defaultSecretName(agent); !slices.Contains(names, usual) {
		names = append(names, usual)
	}
	return names
}

func (k *Reconciler) crdTerminating(ctx context.Context) (bool, error) {
	o, err := k.cfg.Client.Get(ctx, kind.Ref{Resource: crdResource, Name: v1alpha1.Resource + "." + v1alpha1.Group})
	if err != nil {
		return false, fmt.Errorf("read the CRD of Agents: %w", err)
	}
	return o == nil || o.IsDeleting(), nil
}

// deleteJoinTokens deletes an agent's join tokens, also redeemed ones, because the same key can use them again.
func (k *Reconciler) deleteJoinTokens(ctx context.Context, agent string) error {
	hub := pki.Manager{Secrets: k.cfg.JoinTokens}
	if _, err := hub.DeleteTokens(ctx, agent); err != nil {
		return fmt.Errorf("delete the join tokens of agent %s: %w", agent, err)
	}
	return nil
}

// backupSpecToSecret stores the Agent in its cluster Secret, so that it can be created again from there.
func (k *Reconciler) backupSpecToSecret(ctx context.Context, rec agentRecord) error {
	_, _, secret, has := k.registry.object(rec.Name)
	if !has {
		return nil
	}
	current, err := k.fetchSecret(ctx, secret.name)
	if err != nil || current == nil || current.Label(AgentLabel) != rec.Name {
		return err
	}
	manifest, err := k.desiredSecret(rec, readSecret(current)).manifestWithBackup(k.cfg.Namespace, rec, current, secretValue(current, "config"))
	if err == nil {
		_, err = k.cfg.Client.Apply(ctx, k.secretRef(secret.name), fieldManager, manifest)
	}
	if err != nil {
		return fmt.Errorf("back up Agent %s in Secret %s: %w", rec.Name, secret.name, err)
	}
	return nil
}

// removeSecrets deletes the cluster Secrets that the principal created for an agent, and releases the others.
func (k *Reconciler) removeSecrets(ctx context.Context, rec agentRecord) error {
	for _, name := range k.secretNames(rec.Name) {
		current, err := k.fetchSecret(ctx, name)
		if err != nil {
			return err
		}
		if current == nil || current.Label(AgentLabel) != rec.Name {
			continue
		}
		if same, err := k.fetchSame(ctx, rec); err != nil || same == nil {
			return err
		}
		if readSecret(current).createdByPrincipal() {
			err = k.cfg.Client.Delete(ctx, k.secretRef(name), current)
		} else {
			_, err = k.cfg.Client.Apply(ctx, k.secretRef(name), fieldManager, releasedSecretManifest(k.cfg.Namespace, current))
		}
		if err != nil {
			return fmt.Errorf("remove Secret %s of agent %s: %w", name, rec.Name, err)
		}
	}
	return nil
}

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
	recorded := pki.ParseRecord(rec.Annotations[issuedAnnotation] + " " + rec.Annotations[v1alpha1.IssuedProxyAnnotation])
	all := agentCertificates(&rec, recorded.Valid(time.Now()))
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
