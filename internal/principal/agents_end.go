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

var definitions = kind.Resource{Group: "apiextensions.k8s.io", Version: "v1", Plural: "customresourcedefinitions", Kind: "CustomResourceDefinition"}

// end sees to what an Agent leaves behind, then lets it go.
func (k *keeper) end(ctx context.Context, rec record) error {
	if !hasFinalizer(rec) {
		return nil
	}
	swept, err := k.definitionGoes(ctx)
	if err != nil {
		return err
	}
	if swept {
		// Somebody is removing us, not this agent: whoever installs us again finds
		// everything as it was, and no ApplicationSet has missed a cluster.
		k.log.WarnContext(ctx, "the definition of agents is being deleted; nothing is revoked and cluster Secrets stay", "agent", rec.Name)
		if err := k.keepInSecrets(ctx, rec); err != nil {
			return err
		}
	} else {
		// First: who still has a token could join as this agent again.
		if err := k.withdraw(ctx, rec.Name); err != nil {
			return err
		}
		if err := k.revoke(ctx, rec); err != nil {
			return err
		}
		if err := k.removeSecrets(ctx, rec.Name); err != nil {
			return err
		}
	}
	i := slices.Index(rec.Finalizers, v1alpha1.Finalizer)
	path := fmt.Sprintf("/metadata/finalizers/%d", i)
	_, err = k.client.PatchSteps(ctx, k.registry.ref(rec.Name),
		kube.PatchOperation{Op: "test", Path: "/metadata/resourceVersion", Value: rec.ResourceVersion},
		kube.PatchOperation{Op: "test", Path: path, Value: v1alpha1.Finalizer}, kube.PatchOperation{Op: "remove", Path: path})
	if err != nil && !kube.IsNotFound(err) {
		return fmt.Errorf("let Agent %s go: %w", rec.Name, err)
	}
	k.log.InfoContext(ctx, "an agent was deleted", "agent", rec.Name)
	return nil
}

// definitionGoes tells whether it is the whole resource that is being deleted.
func (k *keeper) definitionGoes(ctx context.Context) (bool, error) {
	o, err := k.client.Get(ctx, kind.Ref{Resource: definitions, Name: v1alpha1.Resource + "." + v1alpha1.Group})
	if err != nil {
		return false, fmt.Errorf("look whether the definition of agents is being deleted: %w", err)
	}
	return o == nil || o.IsDeleting(), nil
}

// withdraw deletes an agent's join tokens. One that was used is good for the same
// key again, as long as it has not expired.
func (k *keeper) withdraw(ctx context.Context, agent string) error {
	hub := pki.Hub{Secrets: kube.Secrets{Client: k.client, Namespace: k.namespace}}
	if _, err := hub.Withdraw(ctx, agent); err != nil {
		return fmt.Errorf("withdraw the join tokens of agent %s: %w", agent, err)
	}
	return nil
}

// keepInSecrets leaves in an agent's cluster Secret what its Agent said, so that
// it can be taken over from there.
func (k *keeper) keepInSecrets(ctx context.Context, rec record) error {
	_, _, secret, has := k.registry.object(rec.Name)
	if !has {
		return nil
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: secret.name}
	there, err := k.client.Get(ctx, ref)
	if err != nil || there == nil || there.Label(agentLabel) != rec.Name {
		return err
	}
	manifest, err := k.wanted(rec, readSecret(there)).keepsake(k.namespace, rec, there, secretValue(there, "config"))
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
func (k *keeper) removeSecrets(ctx context.Context, agent string) error {
	for _, name := range k.registry.secretNames(agent) {
		ref := kind.Ref{Resource: kind.Secrets, Namespace: k.namespace, Name: name}
		there, err := k.client.Get(ctx, ref)
		switch {
		case err != nil:
			return fmt.Errorf("read Secret %s: %w", name, err)
		case there == nil || there.Label(agentLabel) != agent:
			continue
		case readSecret(there).made():
			err = k.client.Delete(ctx, ref, there)
		default:
			_, err = k.client.Apply(ctx, ref, secretManager, farewell(k.namespace, there))
		}
		if err != nil {
			return fmt.Errorf("remove what was derived for agent %s from Secret %s: %w", agent, name, err)
		}
	}
	return nil
}
