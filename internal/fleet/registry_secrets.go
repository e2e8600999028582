package fleet

import (
	"context"
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// updateSecret applies a cluster Secret, unless a newer version is known.
func (r *Registry) updateSecret(ctx context.Context, o *kind.Object) error {
	return r.applyChange(ctx, func() []string { return r.putSecret(o) })
}

func (r *Registry) putSecret(o *kind.Object) (touched []string) {
	s := readSecret(o)
	before, known := r.secrets[s.name]
	if known && before.revision >= s.revision {
		return nil
	}
	if known && before.agent != s.agent {
		touched = append(touched, r.dropSecret(s.name, s.revision)...)
	}
	r.secrets[s.name] = s
	if r.secretsOf[s.agent] == nil {
		r.secretsOf[s.agent] = map[string]bool{}
	}
	r.secretsOf[s.agent][s.name] = true
	return append(touched, s.agent)
}

func (r *Registry) dropSecret(name string, revision uint64) []string {
	s, known := r.secrets[name]
	if !known || s.revision > revision {
		return nil
	}
	delete(r.secrets, name)
	if delete(r.secretsOf[s.agent], name); len(r.secretsOf[s.agent]) == 0 {
		delete(r.secretsOf, s.agent)
	}
	return []string{s.agent}
}

// preferredSecret returns the cluster Secret of an agent. Of several it is the one with the default name, or the first by
// name, so that all principal replicas choose the same. The caller must hold mu.
func (r *Registry) preferredSecret(agent string) (best clusterSecret, ok bool) {
	for name := range r.secretsOf[agent] {
		if !ok || name == defaultSecretName(agent) || best.name != defaultSecretName(agent) && name < best.name {
			best, ok = r.secrets[name], true
		}
	}
	return best, ok
}

func (r *Registry) secretNames(agent string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.secretsOf[agent]))
}
