package live

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

const (
	replicasTimeout = 30 * time.Second
	maxReplicas     = 32 << 20 // bytes of a response
	maxRefusal      = 1 << 10  // bytes of a reason
)

// Replicas asks an agent for the objects that a hub with this identity wrote on its cluster. See agent.serveReplicas.
func (l *Live) Replicas(ctx context.Context, agent, hub, after string) (page reconcile.ReplicaPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, replicasTimeout)
	defer cancel()
	conn, err := l.open(ctx, agent, targetReplicas)
	if err != nil {
		return page, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/?"+url.Values{"hub": {hub}, "after": {after}}.Encode(), http.NoBody)
	if err != nil {
		return page, err
	}
	if err := request.Write(conn); err != nil {
		return page, fmt.Errorf("ask agent %s: %w", agent, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxReplicas)), request)
	if err != nil {
		return page, fmt.Errorf("ask agent %s: %w", agent, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
		return page, fmt.Errorf("agent %s refuses: %s", agent, fleet.OneLine(string(reason)))
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return reconcile.ReplicaPage{}, fmt.Errorf("read the response of agent %s: %w", agent, err)
	}
	return page, nil
}
