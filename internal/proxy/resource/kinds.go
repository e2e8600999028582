package resource

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// kindResolver maps resources ("deployments") in paths to kinds ("Deployment") in resource trees. It caches the discovery
// of the API server for maxKindsAge. If a resource is not found, it fetches again after minKindsAge.
type kindResolver struct {
	server APIServer
	now    func() time.Time

	mu     sync.Mutex
	groups map[string]*groupKinds // by path
}

type groupKinds struct {
	found bool // the API server serves the group; protected by kindResolver.mu

	mu      sync.Mutex // held while fetching
	kinds   map[string]string
	fetched time.Time
}

const (
	minKindsAge  = 5 * time.Second
	maxKindsAge  = 5 * time.Minute
	maxKindsBody = 16 << 20
	maxGroups    = 1000
	maxResources = 10_000 // of one group
	kindsTimeout = 10 * time.Second
)

func newKindResolver(server APIServer) *kindResolver {
	return &kindResolver{server: server, now: time.Now, groups: map[string]*groupKinds{}}
}

func (k *kindResolver) of(ctx context.Context, group, version, resource string) (string, error) {
	path := "/api/" + version
	if group != "" {
		path = "/apis/" + group + "/" + version
	}
	g := k.group(path)
	g.mu.Lock()
	defer g.mu.Unlock()
	kind, known := g.kinds[resource]
	age := k.now().Sub(g.fetched)
	if known && age < maxKindsAge || age < minKindsAge {
		return kind, nil
	}
	answer, err := k.fetch(ctx, path)
	switch {
	case err == nil:
		g.kinds, g.fetched = answer, k.now()
		k.mu.Lock()
		g.found = len(answer) > 0
		k.mu.Unlock()
	case !known:
		return "", fmt.Errorf("fetch kinds of %s: %w", path, err)
	default: // use the cached kinds while discovery fails
		g.fetched = k.now().Add(minKindsAge - maxKindsAge)
	}
	return g.kinds[resource], nil
}

// group returns the entry of a group and version. If there are too many, it drops those of groups that do not exist.
func (k *kindResolver) group(path string) *groupKinds {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.groups[path] == nil {
		if len(k.groups) >= maxGroups {
			maps.DeleteFunc(k.groups, func(_ string, g *groupKinds) bool { return !g.found })
		}
		if len(k.groups) >= maxGroups {
			clear(k.groups)
		}
		k.groups[path] = &groupKinds{}
	}
	return k.groups[path]
}

// fetch returns the kind of each resource of a group and version. It is empty if the group does not exist.
func (k *kindResolver) fetch(ctx context.Context, path string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, kindsTimeout)
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
		return nil, fmt.Errorf("response is %s", response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxKindsBody))
	if err != nil {
		return nil, err
	}
	elements, err := rawjson.Elements(rawjson.Get(body, "resources"))
	if err != nil {
		return nil, err
	}
	answer := map[string]string{}
	for _, e := range elements {
		if name := rawjson.Text(e, "name"); !strings.Contains(name, "/") && len(answer) < maxResources {
			answer[name] = rawjson.Text(e, "kind")
		}
	}
	return answer, nil
}
