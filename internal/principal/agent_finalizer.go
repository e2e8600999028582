package principal

import (
	"context"
	"fmt"
	"slices"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// This file is about the end of an Agent. Its connections are cut as soon as the
// watch shows that it is being deleted, in every replica; what is left is the
// certificate, and what was derived from it. Applications and namespaces stay:
// they are users', and deleting them would delete workloads.

var crdResource = kind.Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}

// finalize sees to what an Agent leaves behind, then lets it go.
func (k *agentReconciler) finalize(ctx context.Context, seen agentRecord) error {
	rec, ours, err := k.currentTerminating(ctx, seen)
	if err != nil || !ours {
		return err
	}
	swept, err := k.crdTerminating(ctx)
	if err != nil {
		return err
	}
	if swept {
		// Somebody is removing us, not this agent: whoever installs us again finds
		// everything as it was, and no ApplicationSet has missed a cluster.
		k.log.WarnContext(ctx, "the definition of agents is being deleted; nothing is revoked and cluster Secrets stay", "agent", rec.Name)
		if err := k.backupSpecToSecret(ctx, rec); err != nil {
			return err
		}
	} else {
		// First: who still has a token could join as this agent again.
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
	_, err = k.client.JSONPatch(ctx, k.registry.ref(rec.Name),
		kube.PatchOperation{Op: "test", Path: "/metadata/resourceVersion", Value: rec.ResourceVersion},
		kube.PatchOperation{Op: "test", Path: path, Value: v1alpha1.Finalizer}, kube.PatchOperation{Op: "remove", Path: path})
	if err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("let Agent %s go: %w", rec.Name, err)
	}
	k.log.InfoContext(ctx, "an agent was deleted", "agent", rec.Name)
	if !swept {
		k.deleted(rec)
	}
	return nil
}

// currentTerminating looks whether an Agent is still to be ended, and is what it was seen to
// be. What is known here may be old: another principal may have let it go since,
// and its name may be that of a new agent, whose tokens, certificates and Secret
// are nobody's to take.
func (k *agentReconciler) currentTerminating(ctx context.Context, seen agentRecord) (rec agentRecord, ours bool, err error) {
	if !hasFinalizer(seen) {
		return seen, false, nil
	}
	o, err := k.client.Get(ctx, k.registry.ref(seen.Name))
	if err != nil {
		return seen, false, fmt.Errorf("read Agent %s: %w", seen.Name, err)
	}
	if o == nil {
		return seen, false, k.removeOrphanedSecret(ctx, seen)
	}
	if rec, err = readAgent(o); err != nil {
		return seen, false, err
	}
	if rec.UID != seen.UID || rec.DeletionTimestamp == nil {
		return rec, false, k.registry.update(o)
	}
	return rec, hasFinalizer(rec), nil
}

// sameAgentExists reports whether an Agent that is being ended is still there. What was read
// under its name before that is its own: as long as it is, no other can have it.
func (k *agentReconciler) sameAgentExists(ctx context.Context, rec agentRecord) (bool, error) {
	o, err := k.client.Get(ctx, k.registry.ref(rec.Name))
	if err != nil {
		return false, fmt.Errorf("read Agent %s: %w", rec.Name, err)
	}
	return o != nil && o.UID() == string(rec.UID), nil
}

// removeOrphanedSecret removes a Secret that was made for an Agent by a principal that did
// not know yet that another had let it go.
func (k *agentReconciler) removeOrphanedSecret(ctx context.Context, gone agentRecord) error {
	ref := kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: defaultSecretName(gone.Name)}
	late, err := k.client.Get(ctx, ref)
	if err != nil {
		return fmt.Errorf("read Secret %s: %w", ref.Name, err)
	}
	if late == nil || late.Label(agentLabel) != gone.Name {
		return nil
	}
	if s := readSecret(late); !s.createdByPrincipal() || !s.derived() || s.annotations[backupAnnotation] != "" {
		return nil
	}
	if swept, err := k.crdTerminating(ctx); err != nil || swept {
		return err
	}
	next, err := k.client.Get(ctx, k.registry.ref(gone.Name))
	if err != nil || next != nil { // whose Secret it is
		return err
	}
	if err := k.client.Delete(ctx, ref, late); err != nil {
		return fmt.Errorf("remove Secret %s, which was made when agent %s was gone: %w", ref.Name, gone.Name, err)
	}
	k.log.InfoContext(ctx, "removed a cluster Secret that was made for an agent after its end", "agent", gone.Name)
	return nil
}

// secretNames names the Secrets that an agent may have: those that were seen, and the
// one that another principal may have made just now.
func (k *agentReconciler) secretNames(agent string) []string {
	names := k.registry.secretNames(agent)
	if usual := defaultSecretName(agent); !slices.Contains(names, usual) {
		names = append(names, usual)
	}
	return names
}

// crdTerminating reports whether it is the whole resource that is being deleted.
func (k *agentReconciler) crdTerminating(ctx context.Context) (bool, error) {
	o, err := k.client.Get(ctx, kind.Ref{Resource: crdResource, Name: v1alpha1.Resource + "." + v1alpha1.Group})
	if err != nil {
		return false, fmt.Errorf("look whether the definition of agents is being deleted: %w", err)
	}
	return o == nil || o.IsDeleting(), nil
}

// deleteJoinTokens deletes an agent's join tokens. One that was used is good for the same
// key again, as long as it has not expired.
func (k *agentReconciler) deleteJoinTokens(ctx context.Context, agent string) error {
	hub := pki.Manager{Secrets: kube.Secrets{Client: k.client, Namespace: k.namespace}}
	if _, err := hub.DeleteTokens(ctx, agent); err != nil {
		return fmt.Errorf("withdraw the join tokens of agent %s: %w", agent, err)
	}
	return nil
}

// backupSpecToSecret leaves in an agent's cluster Secret what its Agent said, so that
// it can be taken over from there.
func (k *agentReconciler) backupSpecToSecret(ctx context.Context, rec agentRecord) error {
	_, _, secret, has := k.registry.object(rec.Name)
	if !has {
		return nil
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: secret.name}
	there, err := k.client.Get(ctx, ref)
	if err != nil || there == nil || there.Label(agentLabel) != rec.Name {
		return err
	}
	manifest, err := k.desiredSecret(rec, readSecret(there)).manifestWithBackup(k.namespace, rec, there, secretValue(there, "config"))
	if err == nil {
		_, err = k.client.Apply(ctx, ref, secretManager, manifest)
	}
	if err != nil {
		return fmt.Errorf("keep in Secret %s what Agent %s says: %w", secret.name, rec.Name, err)
	}
	return nil
}

// removeSecrets deletes the cluster Secrets that the principal has made for an
// agent, and gives back those of others.
func (k *agentReconciler) removeSecrets(ctx context.Context, rec agentRecord) error {
	for _, name := range k.secretNames(rec.Name) {
		ref := kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: name}
		there, err := k.client.Get(ctx, ref)
		if err != nil {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}
		if there == nil || there.Label(agentLabel) != rec.Name {
			continue
		}
		its, err := k.sameAgentExists(ctx, rec)
		switch {
		case err != nil:
			return err
		case !its:
			return nil
		case readSecret(there).createdByPrincipal():
			err = k.client.Delete(ctx, ref, there)
		default:
			_, err = k.client.Apply(ctx, ref, secretManager, releasedSecretManifest(k.namespace, there))
		}
		if err != nil {
			return fmt.Errorf("remove what was derived for agent %s from Secret %s: %w", rec.Name, name, err)
		}
	}
	return nil
}
