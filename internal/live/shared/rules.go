package shared

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// rulesOf returns what an agent may request from the repo-server.
func (s *Services) rulesOf(ctx context.Context, agent string) (*sharedmode.Rules, error) {
	if err := s.allowed(agent); err != nil {
		return nil, err
	}
	changes := s.changes.Load() // before the rules are read
	s.mu.Lock()
	cached, ok := s.rules[agent]
	s.mu.Unlock()
	if ok && cached.changes == changes {
		return cached.rules, nil
	}
	cached = cachedRules{changes: changes}
	reg, _ := s.cfg.Registry.Get(agent)
	trusted := reg.Agent.Mode == kind.Managed
	err := s.cfg.Do(ctx, func(n *reconcile.Reconciler) { cached.rules = readRules(n, agent, trusted, s.cfg.Namespace) })
	if err != nil {
		return nil, fmt.Errorf("read the rules of agent %s: %w", agent, err)
	}
	cached.rules.Application = func(ctx context.Context, name string) (texts map[string]bool, err error) {
		var app *kind.Object
		if err := s.cfg.Do(ctx, func(n *reconcile.Reconciler) { app = n.Application(agent, name) }); err != nil {
			return nil, fmt.Errorf("get Application %q of agent %s: %w", name, agent, err)
		}
		return sourceTexts(app), nil
	}
	if _, known := s.cfg.Registry.Get(agent); known { // otherwise it would not be removed
		s.mu.Lock()
		s.rules[agent] = cached
		s.mu.Unlock()
	}
	return cached.rules, nil
}

// sourceTexts returns every string in the sources of an Application.
func sourceTexts(app *kind.Object) map[string]bool {
	texts := map[string]bool{}
	if app == nil {
		return texts
	}
	var add func(value []byte)
	add = func(value []byte) {
		if text, ok := rawjson.String(value); ok {
			texts[text] = true
		} else if elements, err := rawjson.Elements(value); err == nil {
			for _, e := range elements {
				add(e)
			}
		} else {
			_ = rawjson.Each(value, func(key string, member []byte) bool {
				texts[key] = true // plugins get maps
				add(member)
				return true
			})
		}
	}
	for _, path := range [][]string{{"source"}, {"sources"}, {"sourceHydrator", "drySource"}} {
		add(app.Get(append([]string{"spec"}, path...)...))
	}
	return texts
}

// repositoryAccess describes which repositories of the hub an agent may use.
type repositoryAccess struct {
	agent    string
	trusted  bool            // managed; an autonomous agent writes its own Applications
	projects [][]string      // sourceRepos of the hub's projects that permit the agent
	placed   map[string]bool // repositories with a Secret that the agent has (true) or that is for all projects (false)
	foreign  map[string]bool // repositories with credentials for projects that the agent does not have
	prefixes []string        // of such repositories

	// From Secrets that the agent has.
	proxies, noProxies, githubAPIs, googleKeys map[string]bool
	azureIdentity, insecure                    bool
}

func newRepositoryAccess(agent string, trusted bool) *repositoryAccess {
	return &repositoryAccess{agent: agent, trusted: trusted, placed: map[string]bool{}, foreign: map[string]bool{},
		proxies: map[string]bool{}, noProxies: map[string]bool{}, githubAPIs: map[string]bool{}, googleKeys: map[string]bool{}}
}

func readRules(n *reconcile.Reconciler, agent string, trusted bool, namespace string) *sharedmode.Rules {
	a := newRepositoryAccess(agent, trusted)
	n.Projects(agent, func(_ string, sourceRepos []string) { a.projects = append(a.projects, sourceRepos) })
	n.Repositories(agent, a.add)
	rules := &sharedmode.Rules{
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

// readBuildSettings reads the settings in argocd-cm with which Argo CD uses the hub's repo-server.
func readBuildSettings(settings map[string]string, rules *sharedmode.Rules) {
	rules.SourceTypesOff = map[string]string{}
	for setting, kind := range map[string]string{"helm.enable": "Helm", "kustomize.enable": "Kustomize", "jsonnet.enable": "Directory"} {
		if value := settings[setting]; value != "" && value != "true" { // like Argo CD
			rules.SourceTypesOff[kind] = setting
		}
	}
	rules.BuildOptions, rules.Programs, rules.ValuesSchemes = map[string]bool{}, map[string]bool{}, map[string]bool{}
	schemes := "https,http" // the default of Argo CD
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

// add adds the Secret of a repository or credential template.
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
	return isTrue(value("useAzureWorkloadIdentity")) // the repo-server's identity
}

func isTrue(text string) bool {
	yes, err := strconv.ParseBool(text)
	return yes && err == nil
}

// permit returns an error if an agent may not use a repository. The projects of the hub decide by the rules of Argo CD. In
// addition, a repository with credentials for other projects is denied, because the repo-server may have fetched it
// already and would not need the credentials again. An autonomous agent gets no credentials of the hub, so every
// repository with credentials is denied.
func (a *repositoryAccess) permit(address string) error {
	normal := kind.NormalizeRepoURL(address)
	if normal == "" {
		return fmt.Errorf("repository %q has no URL", address)
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
