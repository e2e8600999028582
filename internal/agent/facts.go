package agent

import (
	"context"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// Keys of the facts that the agent reads. Argo CD's controller sets the first one on the cluster Secrets of its own
// clusters.
const (
	kubernetesVersionFact = "argocd.argoproj.io/kubernetes-version"
	regionFact            = "topology.kubernetes.io/region"
	providerFact          = kind.Prefix + "provider"
)

// MaxFacts is the number of facts that users can add.
const MaxFacts = engine.MaxFacts - 3

var nodes = kind.Resource{Version: "v1", Plural: "nodes", Kind: "Node"}

// facts returns what the hub may know about this cluster. A fact that cannot be read is missing. The hub then keeps its
// last value.
func (a *agent) facts(ctx context.Context) []engine.Fact {
	all := map[string]string{}
	if version, err := a.client.ServerVersion(ctx); err != nil {
		a.log.DebugContext(ctx, "Failed to read the version of Kubernetes", "error", err)
	} else if version := releaseOf(version); version != "" {
		all[kubernetesVersionFact] = version
	}
	switch node, err := a.client.First(ctx, nodes); {
	case err != nil:
		a.log.DebugContext(ctx, "Failed to read a node", "error", err)
	case node != nil:
		if region := node.Label(regionFact); region != "" {
			all[regionFact] = region
		}
		if provider := providerOf(rawjson.Text(node.Get("spec", "providerID"))); provider != "" {
			all[providerFact] = provider
		}
	}
	maps.Copy(all, a.cfg.Facts)
	var out []engine.Fact
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if len(out) < engine.MaxFacts && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(all[key])) == 0 {
			out = append(out, engine.Fact{Key: key, Value: all[key]})
		}
	}
	return out
}

// releaseOf returns a version without build and pre-release: v1.34.1 of v1.34.1+k3s1.
func releaseOf(version string) string {
	if i := strings.IndexAny(version, "+-"); i >= 0 {
		version = version[:i]
	}
	return version
}

// providerOf returns the cloud provider of a node: aws of aws:///eu-west-1a/i-0123.
func providerOf(id string) string {
	provider, _, ok := strings.Cut(id, "://")
	if !ok {
		return ""
	}
	return provider
}
