package node

import (
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/raw"
)

// Projects passes on the projects of an agent of the hub, and the repositories
// that each permits: those that are placed on a managed agent, the copies of an
// autonomous one's own.
func (n *Node) Projects(agent string, f func(name string, sourceRepos []string)) {
	l := n.links[agent]
	if l == nil {
		return
	}
	s := l.scope(kind.AppProjectScope)
	if s == nil {
		return
	}
	for _, o := range sortedObjects(n.cache.tables[kind.AppProjects].objects) {
		content := o.Raw()
		if l.world.Agent.Mode == kind.Managed {
			item, ok := l.publish(s, o)
			if !ok {
				continue
			}
			content = item.Content // has what it inherits
		} else if held, ok := s.kind.Reflect(o, &l.world); !ok || !held.Mark.Owned {
			continue
		}
		repos, _ := raw.Strings(raw.Get(content, "spec", "sourceRepos"))
		f(o.Name(), repos)
	}
}

// Repositories passes on the repository Secrets of the hub, and whether each is
// placed on an agent.
func (n *Node) Repositories(agent string, f func(secret *kind.Object, placed bool)) {
	l := n.links[agent]
	if l == nil {
		return
	}
	s := l.scope(kind.RepositoryScope)
	for _, o := range sortedObjects(n.cache.tables[kind.Secrets].objects) {
		if !(kind.RepositoryKind{}).Belongs(o) {
			continue
		}
		placed := false
		if s != nil {
			_, placed = l.publish(s, o)
		}
		f(o, placed)
	}
}

// Object returns an object of the local cluster; nil: there is none.
func (n *Node) Object(ref kind.Ref) *kind.Object { return n.cache.get(ref) }
