package principal

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about what a cluster Secret has to be; nothing in it touches the
// world.

// ClusterConfig provides the config of cluster Secrets, with which Argo CD authenticates to the resource proxy.
type ClusterConfig interface {
	// ClusterConfig returns the config of an agent's cluster Secret. It returns current if that is still valid, and nil
	// if it has no credentials.
	ClusterConfig(agent string, current []byte) ([]byte, error)
	// Changed returns a channel that is closed when results may have changed.
	Changed() <-chan struct{}
}

// secretManager is who the API server knows as the one that derives Secrets. What
// it has set and does not set any more goes; everybody else's stays.
const secretManager = "argocd-agent-principal"

// desiredSecret is what an Agent means for its cluster Secret.
type desiredSecret struct {
	Agent       string
	Server      string
	Labels      map[string]string
	Annotations map[string]string
}

// newDesiredSecret tells it for a Secret that the principal has made, or makes, or for one
// of somebody else's: that must not get the mark by which it would be ours, and
// go with the Agent.
func newDesiredSecret(rec agentRecord, server string, made bool) desiredSecret {
	w := desiredSecret{Agent: rec.Name, Server: server, Labels: maps.Clone(rec.Spec.Cluster.Labels), Annotations: maps.Clone(rec.Spec.Cluster.Annotations)}
	if w.Labels == nil {
		w.Labels = map[string]string{}
	}
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Labels["argocd.argoproj.io/secret-type"] = "cluster"
	w.Labels[agentLabel] = rec.Name
	delete(w.Labels, selfRegisteredLabel)
	if made && rec.Labels[selfRegisteredLabel] == "true" {
		w.Labels[selfRegisteredLabel] = "true"
	}
	w.Annotations["argocd.argoproj.io/skip-reconcile"] = "true"
	w.Annotations["managed-by"] = "argocd-agent"
	return w
}

// hash names what is wanted, so that what is not wanted any more is found.
func (w desiredSecret) hash() (string, error) {
	b, err := json.Marshal(w)
	if err != nil {
		return "", fmt.Errorf("name what is wanted of a Secret: %w", err)
	}
	return hashOf(b), nil
}

// matches reports whether a Secret is as it should be.
func (w desiredSecret) matches(s clusterSecret) bool {
	hash, err := w.hash()
	return err == nil && s.annotations[derivedAnnotation] == hash && containsAll(s.labels, w.Labels) && containsAll(s.annotations, w.Annotations) &&
		s.cluster == w.Agent && s.server == w.Server && s.config != ""
}

func containsAll(all, some map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// manifest is what the API server is asked to make of a Secret, nil: of none that
// is there.
func (w desiredSecret) manifest(namespace, name string, there *kind.Object, config []byte) (map[string]any, error) {
	hash, err := w.hash()
	if err != nil {
		return nil, err
	}
	annotations := maps.Clone(w.Annotations)
	annotations[derivedAnnotation] = hash
	if there == nil || readSecret(there).createdByPrincipal() {
		annotations[createdByAnnotation] = "principal"
	}
	metadata := map[string]any{"name": name, "namespace": namespace, "labels": w.Labels, "annotations": annotations}
	if there != nil {
		metadata["resourceVersion"] = there.ResourceVersion()
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
		"data": map[string][]byte{"name": []byte(w.Agent), "server": []byte(w.Server), "config": config}}, nil
}

// manifestWithBackup is a manifest with which a Secret says all that its Agent did, and
// becomes that Agent again where there is none.
func (w desiredSecret) manifestWithBackup(namespace string, rec agentRecord, there *kind.Object, config []byte) (map[string]any, error) {
	manifest, err := w.manifest(namespace, there.Name(), there, config)
	if err != nil {
		return nil, err
	}
	said, err := json.Marshal(v1alpha1.Agent{Spec: rec.Spec, Status: v1alpha1.Status{ClusterUID: rec.Status.ClusterUID, Store: rec.Status.Store}})
	if err != nil {
		return nil, fmt.Errorf("write down what Agent %s says: %w", rec.Name, err)
	}
	metadata, _ := manifest["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]string)
	delete(annotations, derivedAnnotation)
	annotations[backupAnnotation] = string(said)
	return manifest, nil
}

// releasedSecretManifest is what remains of a Secret that somebody else has made when its Agent
// is gone: all of theirs, and a mark that it is nobody's registration any more.
func releasedSecretManifest(namespace string, there *kind.Object) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": there.Name(), "namespace": namespace, "resourceVersion": there.ResourceVersion(),
		"annotations": map[string]string{derivedAnnotation: "agent-deleted"}}}
}
