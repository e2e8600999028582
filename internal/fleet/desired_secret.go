package fleet

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// desiredSecret is what the cluster Secret of an Agent must contain.
type desiredSecret struct {
	Agent       string
	Server      string
	Labels      map[string]string
	Annotations map[string]string
}

// newDesiredSecret returns the desired Secret of an Agent, whose current labels are given. created is set if the principal
// creates or created it. Another Secret must not get the label of self-registered agents, because the principal would
// delete it with the Agent.
func newDesiredSecret(rec agentRecord, current map[string]string, server string, created bool) desiredSecret {
	w := desiredSecret{Agent: rec.Name, Server: server, Labels: factLabels(rec, current), Annotations: maps.Clone(rec.Spec.Cluster.Annotations)}
	maps.Copy(w.Labels, rec.Spec.Cluster.Labels)
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Labels["argocd.argoproj.io/secret-type"] = "cluster"
	w.Labels[AgentLabel] = rec.Name
	delete(w.Labels, selfRegisteredLabel)
	if created && rec.Labels[selfRegisteredLabel] == "true" {
		w.Labels[selfRegisteredLabel] = "true"
	}
	w.Annotations["argocd.argoproj.io/skip-reconcile"] = "true"
	w.Annotations["managed-by"] = "argocd-agent"
	return w
}

// hash identifies the content, so that values that are no longer desired are found.
func (w desiredSecret) hash() (string, error) {
	b, err := json.Marshal(w)
	if err != nil {
		return "", fmt.Errorf("hash the desired Secret: %w", err)
	}
	return hashOf(b), nil
}

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

// manifest returns the manifest to apply to the current Secret. If current is nil, it is created.
func (w desiredSecret) manifest(namespace, name string, current *kind.Object, config []byte) (map[string]any, error) {
	hash, err := w.hash()
	if err != nil {
		return nil, err
	}
	annotations := maps.Clone(w.Annotations)
	annotations[derivedAnnotation] = hash
	if current == nil || readSecret(current).createdByPrincipal() {
		annotations[createdByAnnotation] = "principal"
	}
	metadata := map[string]any{"name": name, "namespace": namespace, "labels": w.Labels, "annotations": annotations}
	if current != nil {
		metadata["resourceVersion"] = current.ResourceVersion()
	}
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
		"data": map[string][]byte{"name": []byte(w.Agent), "server": []byte(w.Server), "config": config}}, nil
}

// manifestWithBackup returns a manifest with a backup of the Agent, from which the Agent can be created again.
func (w desiredSecret) manifestWithBackup(namespace string, rec agentRecord, current *kind.Object, config []byte) (map[string]any, error) {
	manifest, err := w.manifest(namespace, current.Name(), current, config)
	if err != nil {
		return nil, err
	}
	backup, err := json.Marshal(v1alpha1.Agent{Spec: rec.Spec, Status: v1alpha1.Status{ClusterUID: rec.Status.ClusterUID, Store: rec.Status.Store}})
	if err != nil {
		return nil, fmt.Errorf("marshal Agent %s: %w", rec.Name, err)
	}
	metadata, _ := manifest["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]string)
	delete(annotations, derivedAnnotation)
	annotations[backupAnnotation] = string(backup)
	return manifest, nil
}

// releasedSecretManifest returns the manifest of a Secret that the principal did not create, after the deletion of its
// Agent. The fields of other managers stay. The annotation says that it is no longer a registration.
func releasedSecretManifest(namespace string, current *kind.Object) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": current.Name(), "namespace": namespace, "resourceVersion": current.ResourceVersion(),
		"annotations": map[string]string{derivedAnnotation: "agent-deleted"}}}
}
