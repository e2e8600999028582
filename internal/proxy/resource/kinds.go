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

// kindResolver knows which kind the objects of a resource have: paths name resources ("deployments"), resource trees name kinds
// ("Deployment"), and only the API server can tell what belongs together. What it said is good for a while; a resource
// that is not among it is asked for again sooner, but not more often than once in a while. Definitions come, change and
// go: what nobody asks for is forgotten, and what is gone is when it is asked for.
type kindResolver struct {
	server APIServer
	now    func() time.Time

	mu     sync.Mutex
	groups map[string]*groupKinds // by path
}

type groupKinds struct {
	used  time.Time // by kinds.mu
	found bool      // likewise: the API server has the group

	mu    sync.Mutex // held while asking: others wait for the same answer
	kinds map[string]string
	asked time.Time
}

const (
	askAgain     = 5 * time.Second
	kindsGood    = 5 * time.Minute
	kindsIdle    = time.Hour
	maxKinds     = 16 << 20
	maxGroups    = 1000
	maxResources = 10_000 // of one group
	kindsWithin  = 10 * time.Second
)

func newKinds(server APIServer) *kindResolver {
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
	age := k.now().Sub(g.asked)
	if known && age < kindsGood || age < askAgain {
		return kind, nil
	}
	answer, err := k.ask(ctx, path)
	switch {
	case err == nil:
		g.kinds, g.asked = answer, k.now()
		k.mu.Lock()
		g.found = len(answer) > 0
		k.mu.Unlock()
	case !known:
		return "", fmt.Errorf("ask the API server for the kinds in %s: %w", path, err)
	default: // what was known is better than nothing, and is not asked for by everybody while that takes its time
		g.asked = k.now().Add(askAgain - kindsGood)
	}
	return g.kinds[resource], nil
}

// group returns what is known of a group and version. Where there are too many, one goes: first those that do not exist,
// which may be asked for by the thousand, then who was not asked for longest.
func (k *kindResolver) group(path string) *groupKinds {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	g := k.groups[path]
	if g == nil {
		maps.DeleteFunc(k.groups, func(_ string, old *groupKinds) bool { return now.Sub(old.used) > kindsIdle })
		if len(k.groups) >= maxGroups {
			delete(k.groups, k.least())
		}
		g = &groupKinds{}
		k.groups[path] = g
	}
	g.used = now
	return g
}

func (k *kindResolver) least() (least string) {
	for path, g := range k.groups {
		than := k.groups[least]
		if than == nil || !g.found && than.found || g.found == than.found && g.used.Before(than.used) {
			least = path
		}
	}
	return least
}

// ask returns the kind of each resource of a group and version; none if there is no such group.
func (k *kindResolver) ask(ctx context.Context, path string) (map[string]string, error) {
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
