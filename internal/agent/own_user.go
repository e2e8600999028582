package agent

import (
	"context"
	"sync"

	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// newOwnUser returns a function that returns the agent's user name on its cluster. It asks the API server until it has
// answered once.
func newOwnUser(client *kube.Client) func(context.Context) (string, error) {
	var mu sync.Mutex
	var known string
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != "" {
			return known, nil
		}
		user, err := client.OwnUser(ctx)
		known = user.Name
		return known, err
	}
}
