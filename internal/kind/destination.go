package kind

import (
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// cluster is a cluster as AppProject patterns match it.
type cluster struct{ name, server string }

// destination is one entry of spec.destinations.
type destination struct {
	entry                   rawjson.Object
	name, server, namespace string
}

func readDestinations(list []byte) []destination {
	entries, _ := rawjson.Elements(list)
	destinations := make([]destination, 0, len(entries))
	for _, e := range entries {
		destinations = append(destinations, destination{
			members(e), rawjson.Text(e, "name"), rawjson.Text(e, "server"), rawjson.Text(e, "namespace"),
		})
	}
	return destinations
}

func (c cluster) matchesName(pattern string) bool { return c.name != "" && permits(pattern, c.name) }
func (c cluster) matchesServer(pattern string) bool {
	return c.server != "" && permits(pattern, c.server)
}

// permits implements Argo CD's rule whether an Application of the project may deploy to this cluster and namespace.
// Entries are evaluated in order. `!x` matches everything but x, and an entry of this form that does not match ends the
// evaluation: a name at once, a server if the namespace matches, a namespace if the server does.
func (c cluster) permits(destinations []destination, namespace string) bool {
	permitted := false
	for _, d := range destinations {
		byName, byServer := c.matchesName(d.name), c.matchesServer(d.server)
		inNamespace := permits(d.namespace, namespace)
		switch {
		case (byName || byServer) && inNamespace:
			permitted = true
		case !byName && denies(d.name), !byServer && denies(d.server) && inNamespace:
			return false
		case !inNamespace && denies(d.namespace) && byServer:
			return false
		}
	}
	return permitted
}

// permitted reports whether the project permits this cluster for some namespace. It tries examples of every pattern.
func (c cluster) permitted(destinations []destination) bool {
	if len(destinations) == 0 {
		return false
	}
	tried := map[string]bool{}
	try := func(namespace string) bool {
		if tried[namespace] {
			return false
		}
		tried[namespace] = true
		return c.permits(destinations, namespace)
	}
	if try("zz-any-9") {
		return true
	}
	for _, d := range destinations {
		if slices.ContainsFunc(samples(strings.TrimPrefix(d.namespace, "!")), try) {
			return true
		}
	}
	return false
}

// rewriteDestinations returns the entries that matter for cluster c, as written where that cluster is called to. Order
// is kept, because a deny ends the evaluation.
func (c cluster) rewriteDestinations(destinations []destination, to cluster) []byte {
	var list [][]byte
	seen := map[string]bool{}
	for _, d := range destinations {
		name, server := rewrite(d.name, to.name, c.matchesName), rewrite(d.server, to.server, c.matchesServer)
		if name == "" && server == "" {
			continue
		}
		// Argo CD matches by name or server. Both are set, except where that would match more: a denied namespace ends
		// the evaluation only if the server matches.
		if name == "" && server == to.server {
			name = to.name
		}
		if server == "" && name == to.name && !denies(d.namespace) {
			server = to.server
		}
		entry := slices.Clone(d.entry)
		setText(&entry, "name", name)
		setText(&entry, "server", server)
		rewritten, err := rawjson.Canonical(entry.Bytes())
		if err != nil || seen[string(rewritten)] {
			continue
		}
		seen[string(rewritten)] = true
		list = append(list, rewritten)
	}
	return rawjson.Join(list)
}

// rewrite returns a pattern for the same cluster under another name, or "" if the pattern does not concern it.
func rewrite(pattern, to string, matches func(string) bool) string {
	switch {
	case matches(pattern):
		return to
	case denies(pattern):
		return "!" + to
	}
	return ""
}

// destinationsByName returns, for each entry that permits, one that permits the cluster named to in the same
// namespaces, and no server.
func (c cluster) destinationsByName(destinations []destination, to string) []byte {
	var list [][]byte
	seen := map[string]bool{}
	for _, d := range destinations {
		if denies(d.name) && !c.matchesName(d.name) || denies(d.server) && !c.matchesServer(d.server) || seen[d.namespace] {
			continue
		}
		seen[d.namespace] = true
		entry := rawjson.Object{{Key: "name", Value: rawjson.Quote(to)}, {Key: "namespace", Value: rawjson.Quote(d.namespace)}}
		list = append(list, entry.Bytes())
	}
	return rawjson.Join(list)
}

// rewriteWindows returns the sync windows with renamed clusters. Patterns of other clusters are dropped, and with them
// a window that has no other pattern or requires all of its conditions.
func (c cluster) rewriteWindows(list []byte, to cluster) []byte {
	windows, err := rawjson.Elements(list)
	if err != nil {
		return nil
	}
	var kept [][]byte
	for _, window := range windows {
		clusters, _ := rawjson.Strings(rawjson.Get(window, "clusters"))
		if len(clusters) == 0 {
			kept = append(kept, window)
			continue
		}
		o := members(window)
		if slices.ContainsFunc(clusters, func(p string) bool {
			return c.name != "" && globMatch(p, c.name) || c.server != "" && globMatch(p, c.server)
		}) {
			o.Set("clusters", rawjson.AppendStrings(nil, []string{to.name}))
		} else {
			o.Remove("clusters")
			if string(o.Get("andOperator")) == "true" || isEmpty(o.Get("applications")) && isEmpty(o.Get("namespaces")) {
				continue
			}
		}
		kept = append(kept, o.Bytes())
	}
	if len(kept) == 0 {
		return nil
	}
	return rawjson.Join(kept)
}

// rewriteServiceAccounts returns the entries for this cluster.
func (c cluster) rewriteServiceAccounts(list []byte, to cluster) []byte {
	entries, err := rawjson.Elements(list)
	if err != nil {
		return nil
	}
	var kept [][]byte
	seen := map[string]bool{}
	for _, e := range entries {
		if !globMatch(rawjson.Text(e, "server"), c.server) || seen[rawjson.Text(e, "namespace")] {
			continue
		}
		seen[rawjson.Text(e, "namespace")] = true // the first match counts
		o := members(e)
		o.Set("server", rawjson.Quote(to.server))
		kept = append(kept, o.Bytes())
	}
	if len(kept) == 0 {
		return nil
	}
	return rawjson.Join(kept)
}

// checkHubProject rejects a project from an autonomous agent that reaches beyond the agent.
func checkHubProject(spec []byte, name string, w *Env) error {
	namespaces, ok := rawjson.Strings(rawjson.Get(spec, "sourceNamespaces"))
	if !ok || !slices.Equal(namespaces, []string{w.Agent.HubNamespace}) {
		return reject(engine.NotAllowed, "sourceNamespaces of project %s must be the agent's namespace", name)
	}
	entries, err := rawjson.Elements(rawjson.Get(spec, "destinations"))
	if err != nil {
		return reject(engine.Invalid, "destinations of project %s: %v", name, err)
	}
	for _, e := range entries {
		if rawjson.Text(e, "name") != w.Agent.Name || !isEmpty(rawjson.Get(e, "server")) {
			return reject(engine.NotAllowed, "destination %.200s of project %s is not agent %s", e, name, w.Agent.Name)
		}
	}
	for _, field := range []string{"destinationServiceAccounts", "permitOnlyProjectScopedClusters"} {
		if !isEmpty(rawjson.Get(spec, field)) {
			return reject(engine.NotAllowed, "%s of project %s does not belong on the hub", field, name)
		}
	}
	return checkRoles(rawjson.Get(spec, "roles"), name)
}
