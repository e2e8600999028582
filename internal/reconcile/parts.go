package reconcile

import (
	"maps"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// part is what is known of the watch of a resource, in all namespaces or in one.
type part struct {
	complete bool
	read     bool // it was complete once
	reason   string
	frontier uint64 // everything up to this revision was seen
	newest   uint64 // highest revision of an object

	// gone has the UIDs of objects that are known to be gone before the watch reports it. Until then the watch may
	// still report them as present.
	gone map[string]bool

	// listed has the UIDs of the objects in the pages of a list that is not complete yet. It is nil if there is none.
	listed map[objectName]string
}

func newPart(reason string) *part { return &part{reason: reason, gone: map[string]bool{}} }

// parts are the watches of a resource: one, or one for each of several namespaces. The watches of namespaces do not
// advance together, so what is concluded from one is never concluded about another: a namespace that was not read, or
// not as far as the others, is neither empty nor current.
type parts struct {
	byNamespace map[string]*part // the only key is "" if there is one watch
	all         []*part          // the same, in order
	unwatched   *part            // stands for all other namespaces; it is never complete
}

func newParts(namespaces []string) parts {
	p := parts{byNamespace: map[string]*part{}, unwatched: newPart("the principal does not read this namespace")}
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		p.byNamespace[namespace] = newPart("not read yet")
	}
	for _, namespace := range slices.Sorted(maps.Keys(p.byNamespace)) {
		p.all = append(p.all, p.byNamespace[namespace])
	}
	return p
}

// of returns the part that has the objects of a namespace.
func (p *parts) of(namespace string) *part {
	if whole := p.byNamespace[""]; whole != nil {
		return whole
	}
	if one := p.byNamespace[namespace]; one != nil {
		return one
	}
	return p.unwatched
}

// watched returns the part of a watch, or nil if there is no such watch. The namespace is empty if there is one watch.
func (p *parts) watched(namespace string) *part { return p.byNamespace[namespace] }

// complete reports whether everything can be read.
func (p *parts) complete() bool {
	return !slices.ContainsFunc(p.all, func(one *part) bool { return !one.complete })
}

// read reports whether everything was complete once.
func (p *parts) read() bool {
	return !slices.ContainsFunc(p.all, func(one *part) bool { return !one.read })
}

// frontier returns the revision up to which everything was seen.
func (p *parts) frontier() uint64 {
	least := p.all[0].frontier
	for _, one := range p.all {
		least = min(least, one.frontier)
	}
	return least
}

// parts returns the parts of a resource that have the objects of this agent.
func (l *agentSync) parts(r kind.Resource) []*part {
	p := &l.reconciler.cache.tables[r].parts
	if p.byNamespace[""] != nil || l.isStandby() || l.env.Agent.Mode == kind.Managed && l.env.Agent.Mapping == kind.ByDestination {
		return p.all
	}
	return []*part{p.of(l.env.Agent.HubNamespace)}
}
