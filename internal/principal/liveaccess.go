package principal

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// Access is what Argo CD shows to the resource proxy, for the cluster Secrets
// that the principal makes itself: one client certificate for all of them, to
// which each Secret adds a token of its own that names the agent.
type Access struct {
	mu            sync.Mutex
	cert, key, ca []byte
	changed       func()
}

// Take reads it out of a Secret.
func (a *Access) Take(data map[string][]byte) error {
	if data == nil {
		return fmt.Errorf("there is no such Secret")
	}
	for _, part := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if len(data[part]) == 0 {
			return fmt.Errorf("it has no %s", part)
		}
	}
	a.mu.Lock()
	a.cert, a.key, a.ca = data["tls.crt"], data["tls.key"], data["ca.crt"]
	changed := a.changed
	a.mu.Unlock()
	if changed != nil {
		changed()
	}
	return nil
}

// onChange has f called whenever there is something new.
func (a *Access) onChange(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = f
}

// config is what belongs into a cluster Secret beside a token; nil: it is not
// known yet.
func (a *Access) config(token string) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cert == nil {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"bearerToken":     token,
		"tlsClientConfig": map[string][]byte{"certData": a.cert, "keyData": a.key, "caData": a.ca},
	})
}

// newToken names an agent: whoever shows it has read the agent's cluster Secret.
func newToken() (string, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(secret), nil
}

// openDoors has the cluster Secrets of all agents filled in.
func (l *live) openDoors() {
	l.mu.Lock()
	clear(l.filled)
	l.mu.Unlock()
	for _, agent := range l.p.registry.names() {
		l.openDoor(agent)
	}
}

// openDoor does so for one, once.
func (l *live) openDoor(agent string) {
	l.mu.Lock()
	done := l.filled[agent]
	l.filled[agent] = true
	l.mu.Unlock()
	if done {
		return
	}
	l.p.chores.add("access to "+agent, func(ctx context.Context) error { return l.fill(ctx, agent) })
}

// fill sees to it that Argo CD can reach an agent's cluster by the Secret that
// the principal made for it. Secrets of others are theirs.
func (l *live) fill(ctx context.Context, agent string) error {
	reg, ok := l.p.registry.get(agent)
	if !ok {
		return nil
	}
	ref := kind.Ref{Resource: kind.Secrets, Namespace: l.p.cfg.Namespace, Name: reg.secret}
	o, err := l.p.client.Get(ctx, ref)
	if err != nil || o == nil || o.Label(selfRegisteredLabel) != "true" || o.Label(agentLabel) != agent {
		return err
	}
	now, err := kube.SecretData(o)
	if err != nil {
		return err
	}
	want := map[string][]byte{"server": []byte("https://" + l.p.cfg.ResourceProxy + "?agentName=" + agent)}
	token := raw.Text(now["config"], "bearerToken")
	if token == "" {
		if token, err = newToken(); err != nil {
			return err
		}
	}
	if config, err := l.p.cfg.Live.Access.config(token); err != nil {
		return err
	} else if config != nil {
		want["config"] = config
	}
	data := map[string]any{}
	for key, value := range want {
		if string(now[key]) != string(value) {
			data[key] = value
		}
	}
	if len(data) == 0 {
		return nil
	}
	_, err = l.p.client.Patch(ctx, ref, map[string]any{"metadata": map[string]any{"resourceVersion": o.ResourceVersion()}, "data": data})
	if err != nil {
		return fmt.Errorf("fill in Secret %s: %w", ref.Name, err)
	}
	return nil
}
