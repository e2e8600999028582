package kind

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// AgentMatcher selects the agents that a project of the hub may be for: all that get it, and maybe more. Its patterns
// are compiled once, so matching thousands of agents is cheap compared to projecting the project for each.
type AgentMatcher struct {
	copyOf     string // the autonomous agent whose replica it is; empty if none
	names      patterns
	servers    patterns
	namespaces patterns // of Applications
	argo       string   // Argo CD's namespace, which is always permitted
	all        bool     // all managed agents
}

// matchProject returns the matcher of a project of the hub. The Env is of no agent in particular.
func matchProject(o *Object, w *Env) AgentMatcher {
	r := AgentMatcher{argo: w.HubArgoNamespace}
	r.copyOf, _, _ = SplitProjectName(o.Name())
	if !selected(o, w) || o.Namespace() != w.HubArgoNamespace {
		return r
	}
	spec := members(o.Get("spec"))
	flatten(o, &spec, w)
	for _, d := range readDestinations(spec.Get("destinations")) {
		r.names.addRule(d.name)
		r.servers.addRule(d.server)
	}
	list, _ := rawjson.Strings(spec.Get("sourceNamespaces"))
	for _, item := range list {
		r.namespaces.addNamespace(item)
	}
	return r
}

// matchRepository returns the matcher of a repository Secret, which follows its project.
func matchRepository(o *Object, w *Env) AgentMatcher {
	if project := RepositoryProject(o); project == "" {
		return AgentMatcher{all: w.Settings.ShareUnscopedRepositories}
	} else if p := w.find(AppProjects, w.HubArgoNamespace, project); p != nil {
		return matchProject(p, w)
	}
	return AgentMatcher{}
}

// Matches reports whether the object may be for an agent.
func (r *AgentMatcher) Matches(a Agent) bool {
	if a.Mode != Managed {
		return r.copyOf == a.Name
	}
	if r.all {
		return true
	}
	return (r.names.match(a.Name) || r.servers.match(a.Server)) &&
		(a.Mapping != ByNamespace || a.HubNamespace == r.argo || r.namespaces.match(a.HubNamespace))
}

// patterns matches if one of them does.
type patterns struct {
	exact map[string]bool
	other []func(string) bool
}

func (p *patterns) match(text string) bool {
	if text == "" {
		return false
	}
	if p.exact[text] {
		return true
	}
	for _, matches := range p.other {
		if matches(text) {
			return true
		}
	}
	return false
}

// addRule adds a destination pattern of a project, see permits.
func (p *patterns) addRule(glob string) {
	switch {
	case glob == "":
	case denies(glob):
		matches := compileGlob(glob[1:])
		p.other = append(p.other, func(text string) bool { return !matches(text) })
	default:
		p.addGlob(glob)
	}
}

// addNamespace adds an entry of a namespace list, see matchesAny.
func (p *patterns) addNamespace(item string) {
	if len(item) > 1 && strings.HasPrefix(item, "/") && strings.HasSuffix(item, "/") {
		if expression, err := regexp.Compile(item[1 : len(item)-1]); err == nil {
			p.other = append(p.other, expression.MatchString)
		}
	}
	p.addGlob(item)
}

func (p *patterns) addGlob(glob string) {
	if strings.ContainsAny(glob, globCharacters) {
		p.other = append(p.other, compileGlob(glob))
		return
	}
	if p.exact == nil {
		p.exact = map[string]bool{}
	}
	p.exact[glob] = utf8.ValidString(glob)
}
