package live

import (
	"context"
	"crypto/sha256"
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
	secrets map[string]clusterToken // by name of the Secret
	agents  map[tokenHash]string    // "" for a token in two Secrets, which is invalid
}

type tokenHash [sha256.Size]byte

type clusterToken struct {
	hash  tokenHash
	agent string
}

func newTokens(changed func()) *tokens {
	return &tokens{changed: changed, secrets: map[string]clusterToken{}}
}

// agent returns the agent of a token.
func (t *tokens) agent(token string) (string, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	agent := t.agents[sha256.Sum256([]byte(token))]
	return agent, agent != ""
}

// apply is the sink of the watch of cluster Secrets.
func (t *tokens) apply(_ context.Context, in reconcile.Input) error {
	t.mu.Lock()
	switch in := in.(type) {
	case reconcile.List:
		clear(t.secrets)
		for _, o := range in.Objects {
			t.set(o)
		}
	case reconcile.Observed:
		t.set(in.Object)
	case reconcile.Deleted:
		delete(t.secrets, in.Ref.Name)
	}
	lost := t.rebuild()
	t.mu.Unlock()
	if lost {
		t.changed()
	}
	return nil
}

// set updates the token of a Secret. The caller must hold t.mu.
func (t *tokens) set(o *kind.Object) {
	data, err := kube.SecretData(o)
	token := rawjson.Text(data["config"], "bearerToken")
	if err != nil || token == "" {
		delete(t.secrets, o.Name())
		return
	}
	t.secrets[o.Name()] = clusterToken{sha256.Sum256([]byte(token)), o.Label(fleet.AgentLabel)}
}

// rebuild updates agents and reports whether a token is no longer valid for its agent. The caller must hold t.mu.
func (t *tokens) rebuild() (lost bool) {
	agents := map[tokenHash]string{}
	for _, s := range t.secrets {
		if _, twice := agents[s.hash]; twice {
			s.agent = ""
		}
		agents[s.hash] = s.agent
	}
	for hash, agent := range t.agents {
		lost = lost || agents[hash] != agent
	}
	t.agents = agents
	return lost
}
