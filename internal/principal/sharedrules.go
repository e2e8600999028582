package principal

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	proxy "github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// rulesOf tells what an agent may ask the repo-server for.
func (s *shared) rulesOf(ctx context.Context, agent string) (*proxy.Rules, error) {
	if err := s.allowed(agent); err != nil {
		return nil, err
	}
	changes := s.changes.Load() // before they are read
	s.mu.Lock()
	made, ok := s.rules[agent]
	s.mu.Unlock()
	if ok && made.changes == changes {
		return made.rules, nil
	}
	made = cachedRules{changes: changes}
	reg, _ := s.p.registry.get(agent)
	trusted := reg.Agent.Mode == kind.Managed
	err := s.p.runner.Do(ctx, func(n *reconcile.Reconciler) { made.rules = readRules(n, agent, trusted, s.p.cfg.Namespace) })
	if err != nil {
		return nil, fmt.Errorf("find out what agent %s may ask for: %w", agent, err)
	}
	made.rules.Application = func(ctx context.Context, name string) (said map[string]bool, err error) {
		var app *kind.Object
		if err := s.p.runner.Do(ctx, func(n *reconcile.Reconciler) { app = n.Application(agent, name) }); err != nil {
			return nil, fmt.Errorf("look up Application %q of agent %s: %w", name, agent, err)
		}
		return sourceTexts(app), nil
	}
	if _, known := s.p.registry.get(agent); known { // else nobody would forget it
		s.mu.Lock()
		s.rules[agent] = made
		s.mu.Unlock()
	}
	return made.rules, nil
}

// sourceTexts lists every text in what an Application says of its sources.
func sourceTexts(app *kind.Object) map[string]bool {
	said := map[string]bool{}
	if app == nil {
		return said
	}
	var add func(value []byte)
	add = func(value []byte) {
		if text, ok := rawjson.String(value); ok {
			said[text] = true
		} else if elements, err := rawjson.Elements(value); err == nil {
			for _, e := range elements {
				add(e)
			}
		} else {
			_ = rawjson.Each(value, func(key string, member []byte) bool {
				said[key] = true // of a map that plugins get
				add(member)
				return true
			})
		}
	}
	for _, path := range [][]string{{"source"}, {"sources"}, {"sourceHydrator", "drySource"}} {
		add(app.Get(append([]string{"spec"}, path...)...))
	}
	return said
}

// repositoryAccess is what an agent may see of the hub's repositories.
type repositoryAccess struct {
	agent    string
	trusted  bool            // its Applications are the hub's; an autonomous agent writes them itself
	projects [][]string      // sourceRepos of the hub's projects that permit it
	placed   map[string]bool // repositories with a Secret that the agent has (true), or that is for every project
	foreign  map[string]bool // whose Secrets are for projects that the agent does not have; with credentials
	prefixes []string        // of the same, for all that begin so

	// Of Secrets that the agent has.
	proxies, noProxies, githubAPIs, googleKeys map[string]bool
	azureIdentity, insecure                    bool
}

func newRepositoryAccess(agent string, trusted bool) *repositoryAccess {
	return &repositoryAccess{agent: agent, trusted: trusted, placed: map[string]bool{}, foreign: map[string]bool{},
		proxies: map[string]bool{}, noProxies: map[string]bool{}, githubAPIs: map[string]bool{}, googleKeys: map[string]bool{}}
}

// readRules reads off the hub's objects what an agent may ask the repo-server
// for.
func readRules(n *reconcile.Reconciler, agent string, trusted bool, namespace string) *proxy.Rules {
	a := newRepositoryAccess(agent, trusted)
	n.Projects(agent, func(_ string, sourceRepos []string) { a.projects = append(a.projects, sourceRepos) })
	n.Repositories(agent, a.add)
	rules := &proxy.Rules{
		Repository: a.permit, Proxies: a.proxies, NoProxies: a.noProxies, GitHubAPIs: a.githubAPIs, GoogleKeys: a.googleKeys,
		AzureIdentity: a.azureIdentity, Insecure: a.insecure,
		Same: func(x, y string) bool { return kind.NormalizeRepoURL(x) == kind.NormalizeRepoURL(y) },
	}
	var settings map[string]string
	if cm := n.Object(kind.Ref{Resource: kind.ConfigMaps, Namespace: namespace, Name: "argocd-cm"}); cm != nil {
		settings, _ = rawjson.StringMap(cm.Get("data"))
	}
	readBuildSettings(settings, rules)
	return rules
}

// readBuildSettings reads off argocd-cm what the hub's repo-server is used with anyway.
func readBuildSettings(settings map[string]string, rules *proxy.Rules) {
	rules.SourceTypesOff = map[string]string{}
	for setting, kind := range map[string]string{"helm.enable": "Helm", "kustomize.enable": "Kustomize", "jsonnet.enable": "Directory"} {
		if value := settings[setting]; value != "" && value != "true" { // as Argo CD reads it
			rules.SourceTypesOff[kind] = setting
		}
	}
	rules.BuildOptions, rules.Programs, rules.ValuesSchemes = map[string]bool{}, map[string]bool{}, map[string]bool{}
	schemes := "https,http" // as Argo CD has it if nothing is set
	for key, value := range settings {
		switch {
		case key == "kustomize.buildOptions", strings.HasPrefix(key, "kustomize.buildOptions."):
			rules.BuildOptions[value] = true
		case strings.HasPrefix(key, "kustomize.version."), strings.HasPrefix(key, "kustomize.path."):
			rules.Programs[value] = true
		case key == "helm.valuesFileSchemes":
			schemes = value
		}
	}
	for scheme := range strings.SplitSeq(schemes, ",") {
		rules.ValuesSchemes[strings.TrimSpace(scheme)] = true
	}
}

// add notes what a repository's Secret means to the agent.
func (a *repositoryAccess) add(secret *kind.Object, placed bool) {
	value := func(key string) string {
		decoded, err := base64.StdEncoding.DecodeString(rawjson.Text(secret.Get("data", key)))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(decoded))
	}
	address := kind.NormalizeRepoURL(value("url"))
	if address == "" {
		return
	}
	template := secret.Label("argocd.argoproj.io/secret-type") == "repo-creds"
	if placed {
		for key, known := range map[string]map[string]bool{"proxy": a.proxies, "noProxy": a.noProxies, "githubAppEnterpriseBaseUrl": a.githubAPIs, "gcpServiceAccountKey": a.googleKeys} {
			if v := value(key); v != "" {
				known[v] = true
			}
		}
		a.azureIdentity = a.azureIdentity || isTrue(value("useAzureWorkloadIdentity"))
		a.insecure = a.insecure || isTrue(value("insecure")) || isTrue(value("insecureIgnoreHostKey")) || isTrue(value("insecureOCIForceHttp"))
	}
	switch {
	case placed || kind.RepositoryProject(secret) == "" && a.trusted:
		if !template {
			a.placed[address] = placed || a.placed[address]
		}
	case !hasCredentials(value):
	case template:
		a.prefixes = append(a.prefixes, address)
	default:
		a.foreign[address] = true
	}
}

func hasCredentials(value func(key string) string) bool {
	for _, key := range []string{"password", "bearerToken", "sshPrivateKey", "tlsClientCertKey", "githubAppPrivateKey", "gcpServiceAccountKey"} {
		if value(key) != "" {
			return true
		}
	}
	return isTrue(value("useAzureWorkloadIdentity")) // the repo-server's own
}

func isTrue(text string) bool {
	yes, err := strconv.ParseBool(text)
	return yes && err == nil
}

// permit says why an agent may not have manifests of a repository. Argo CD's
// rule for projects decides, with the hub's own projects. Beyond it, what
// somebody has registered with credentials for other projects is none of this
// agent's business: the repo-server may have fetched it already, and would not
// ask for them again. For an autonomous agent, which gets none of the hub's,
// that is everything with credentials.
func (a *repositoryAccess) permit(address string) error {
	normal := kind.NormalizeRepoURL(address)
	if normal == "" {
		return fmt.Errorf("repository %q has no address", address)
	}
	scoped, known := a.placed[normal]
	permitted := scoped
	for _, sourceRepos := range a.projects {
		permitted = permitted || kind.SourcePermitted(sourceRepos, address)
	}
	if !permitted {
		return fmt.Errorf("repository %s is not of a project that is placed on agent %s: no AppProject of the hub that has this cluster among its destinations permits it", address, a.agent)
	}
	if known {
		return nil
	}
	reserved := a.foreign[normal]
	for _, prefix := range a.prefixes {
		reserved = reserved || strings.HasPrefix(normal, prefix)
	}
	if reserved && !a.trusted {
		return errors.New("repository " + address + " is registered with credentials on the hub, which are not for autonomous agent " + a.agent)
	}
	if reserved {
		return errors.New("repository " + address + " is registered on the hub for a project that is not placed on agent " + a.agent)
	}
	return nil
}
