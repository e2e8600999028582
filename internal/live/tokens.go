package live

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// tokens maps the bearer tokens of cluster Secrets to agents. It stores hashes, so that lookups have no timing side channel.
type tokens struct {
	changed func() // is called after a token became invalid

	mu      sync.Mutex
	secrets map[string]tokenHash   // by name of the Secret
	agents  map[tokenHash][]string // by hash of the token
	owners  map[string]string
}

type tokenHash [sha256.Size]byte

func newTokens(changed func()) *tokens {
	return &tokens{changed: changed, secrets: map[string]tokenHash{}, agents: map[tokenHash][]string{}, owners: map[string]string{}}
}

// agent returns the agent of a token. A token in two Secrets is invalid.
func (t *tokens) agent(token string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.agents[sha256.Sum256([]byte(token))]
	if len(names) != 1 {
		return "", false
	}
	return names[0], true
}

// apply is the sink of the watch of cluster Secrets.
func (t *tokens) apply(_ context.Context, in reconcile.Input) error {
	lost := false
	t.mu.Lock()
	switch in := in.(type) {
	case reconcile.List:
		present := map[string]bool{}
		for _, o := range in.Objects {
			present[o.Name()] = true
			lost = t.set(o) || lost
		}
		for name := range t.secrets {
			if !present[name] {
				lost = t.remove(name) || lost
			}
		}
	case reconcile.Observed:
		lost = t.set(in.Object)
	case reconcile.Deleted:
		lost = t.remove(in.Ref.Name)
	}
	t.mu.Unlock()
	if lost {
		t.changed()
	}
	return nil
}

func (t *tokens) set(o *kind.Object) (lost bool) {
	data, err := kube.SecretData(o)
	token := rawjson.Text(data["config"], "bearerToken")
	if err != nil || token == "" {
		return t.remove(o.Name())
	}
	hash, agent := tokenHash(sha256.Sum256([]byte(token))), o.Label(fleet.AgentLabel)
	if t.secrets[o.Name()] == hash && t.owners[o.Name()] == agent {
		return false
	}
	lost = t.remove(o.Name())
	t.secrets[o.Name()], t.owners[o.Name()] = hash, agent
	t.agents[hash] = append(t.agents[hash], agent)
	return lost || len(t.agents[hash]) > 1
}

func (t *tokens) remove(name string) (lost bool) {
	hash, known := t.secrets[name]
	if !known {
		return false
	}
	owner := t.owners[name]
	delete(t.secrets, name)
	delete(t.owners, name)
	if i := slices.Index(t.agents[hash], owner); i >= 0 {
		t.agents[hash] = slices.Delete(t.agents[hash], i, i+1)
	}
	if len(t.agents[hash]) == 0 {
		delete(t.agents, hash)
	}
	return true
}
