package node

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is about repositories, which follow their project. The two come from
// different watches: one may show a new password before the other shows that the
// project no longer permits the agent. So a repository waits until projects are
// known at least as far, and is not in a view that is called complete until then.

// ahead tells whether a repository is newer than what is known of projects.
func (n *Node) ahead(s *scope, o *kind.Object) bool {
	return s.cfg.Name == kind.RepositoryScope && s.cfg.Role == engine.Owner && kind.RepositoryProject(o) != "" &&
		revision(o) > n.cache.tables[kind.AppProjects].frontier
}

// wait puts a repository aside, and asks for the projects.
func (n *Node) wait(ref kind.Ref) {
	if n.aside[ref] {
		return
	}
	n.aside[ref] = true
	if len(n.aside) == 1 {
		n.viewChanged(kind.Secrets)
		n.askForProjects()
	}
}

// askForProjects asks for a list rather than wait for the watch of what rarely
// changes. The first list comes unasked.
func (n *Node) askForProjects() {
	if n.cache.tables[kind.AppProjects].complete {
		n.emit(Relist{Resource: kind.AppProjects})
	}
}

// caughtUp looks again at what waited, after more has become known of projects.
func (n *Node) caughtUp(listed bool) {
	if len(n.aside) == 0 {
		return
	}
	frontier := n.cache.tables[kind.AppProjects].frontier
	for _, ref := range sortedRefs(n.aside) {
		o := n.cache.get(ref)
		if o != nil && revision(o) > frontier {
			continue
		}
		delete(n.aside, ref)
		if o == nil {
			continue
		}
		for _, l := range n.sortedLinks() {
			l.tell(kind.Secrets, o, o, true)
		}
	}
	if len(n.aside) == 0 {
		n.viewChanged(kind.Secrets)
	} else if listed {
		n.askForProjects()
	}
}
