package kind

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// AgentMatcher tells which agents a project of the hub may be for: all those that would
// get it, and maybe some more. Its patterns are read once; to ask for one of
// thousands of agents then costs next to nothing, where projecting the project
// for each of them would.
type AgentMatcher struct {
	copyOf     string // the autonomous agent whose copy it is; empty: nobody's
	names      patterns
	servers    patterns
	namespaces patterns // of Applications
	argo       string   // Argo CD's own, which needs no mention
	all        bool     // managed agents
}

// MatchProject reads a project of the hub. The world is that of no agent in
// particular.
func MatchProject(o *Object, w *Env) AgentMatcher {
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

// MatchRepository is that of a Secret with a repository: it follows its project.
func MatchRepository(o *Object, w *Env) AgentMatcher {
	if project := RepositoryProject(o); project == "" {
		return AgentMatcher{all: w.Settings.ShareUnscopedRepositories}
	} else if p := w.find(AppProjects, w.HubArgoNamespace, project); p != nil {
		return MatchProject(p, w)
	}
	return AgentMatcher{}
}

// Matches reports whether what has this reach may be for an agent.
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

// patterns is a set of which one has to match.
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

// addRule adds a pattern of a project's destination, see permits.
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

// addNamespace adds one of a list of namespaces, see matchesAny.
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
