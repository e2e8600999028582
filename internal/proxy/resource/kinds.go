package resource

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// kinds knows which kind the objects of a resource have: paths name resources ("deployments"), resource trees name kinds
// ("Deployment"), and only the API server can tell what belongs together. What it said is kept; a resource that is not
// among it is asked for again, but not more often than once in a while.
type kinds struct {
	server APIServer

	mu     sync.Mutex
	groups map[string]*groupKinds // by path
}

type groupKinds struct {
	mu    sync.Mutex // held while asking: others wait for the same answer
	kinds map[string]string
	asked time.Time
}

const (
	askAgain    = 5 * time.Second
	maxKinds    = 16 << 20
	maxGroups   = 1000
	kindsWithin = 10 * time.Second
)

func newKinds(server APIServer) *kinds {
	return &kinds{server: server, groups: map[string]*groupKinds{}}
}

func (k *kinds) of(ctx context.Context, group, version, resource string) (string, error) {
	path := "/api/" + version
	if group != "" {
		path = "/apis/" + group + "/" + version
	}
	k.mu.Lock()
	g := k.groups[path]
	if g == nil {
		if len(k.groups) >= maxGroups { // versions that do not exist, by the thousand
			clear(k.groups)
		}
		g = &groupKinds{}
		k.groups[path] = g
	}
	k.mu.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	if kind, known := g.kinds[resource]; known || time.Since(g.asked) < askAgain {
		return kind, nil
	}
	answer, err := k.ask(ctx, path)
	if err != nil {
		return "", fmt.Errorf("ask the API server for the kinds in %s: %w", path, err)
	}
	g.kinds, g.asked = answer, time.Now()
	return g.kinds[resource], nil
}

// ask returns the kind of each resource of a group and version; none if there is no such group.
func (k *kinds) ask(ctx context.Context, path string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, kindsWithin)
	defer cancel()
	address := *k.server.URL
	address.Path = strings.TrimSuffix(address.Path, "/") + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := k.server.Common.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return map[string]string{}, nil
	default:
		return nil, fmt.Errorf("it answered %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKinds))
	if err != nil {
		return nil, err
	}
	elements, err := raw.Elements(raw.Get(body, "resources"))
	if err != nil {
		return nil, err
	}
	answer := make(map[string]string, len(elements))
	for _, e := range elements {
		if name := raw.Text(e, "name"); !strings.Contains(name, "/") {
			answer[name] = raw.Text(e, "kind")
		}
	}
	return answer, nil
}
