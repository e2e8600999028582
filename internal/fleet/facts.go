package fleet

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// This file decides which facts of a workload cluster become labels of its cluster Secret. ApplicationSets generate
// Applications from these labels and delete Applications whose label is gone. So a label stays until the agent reports
// another value or a user removes the key from the Agent: an agent may fail to read a fact, and the status of an Agent is
// not part of most backups.

// factsOf returns the facts that an agent reported, without those that cannot be labels, and the last values of allowed
// facts that it no longer reports.
func factsOf(reported []engine.Fact, last []v1alpha1.Fact, allowed []string) []v1alpha1.Fact {
	facts := map[string]string{}
	for _, f := range last {
		if slices.Contains(allowed, f.Key) {
			facts[f.Key] = f.Value
		}
	}
	for _, f := range reported {
		if len(validation.IsQualifiedName(f.Key)) == 0 && len(validation.IsValidLabelValue(f.Value)) == 0 {
			facts[f.Key] = f.Value
		}
	}
	var out []v1alpha1.Fact
	for _, key := range slices.Sorted(maps.Keys(facts)) {
		out = append(out, v1alpha1.Fact{Key: key, Value: facts[key]})
	}
	return out
}

// factLabels returns the labels of an Agent's facts on a Secret with these labels.
func factLabels(rec agentRecord, current map[string]string) map[string]string {
	labels := map[string]string{}
	for _, key := range rec.Spec.Cluster.Facts {
		if value, ok := current[key]; ok {
			labels[key] = value
		}
	}
	for _, f := range rec.Status.Facts {
		if slices.Contains(rec.Spec.Cluster.Facts, f.Key) {
			labels[f.Key] = f.Value
		}
	}
	return labels
}
