package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Placement is where an Application of the hub runs: on which agent, and under which name.
type Placement struct {
	Agent     string
	Namespace string // if empty, the namespace of Argo CD
	Name      string
}

// Place returns where an Application of the hub runs. It returns false if it runs on no agent.
func (n *Reconciler) Place(namespace, name string) (Placement, bool) {
	o := n.cache.get(kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name})
	if o == nil {
		return Placement{}, false
	}
	for _, l := range n.affectedSyncs(kind.Applications, nil, o) {
		key, ok := kind.StatusKey(o, &l.env)
		if !ok {
			continue
		}
		p := Placement{Agent: l.name, Namespace: key.Namespace, Name: key.Name}
		if p.Namespace == l.env.SpokeArgoNamespace {
			p.Namespace = ""
		}
		return p, true
	}
	return Placement{}, false
}

// Frozen returns the agent to which an Application of the hub belongs by the mapping although it must not run there, or
// is not known to be allowed to, and why. It returns false if there is no such agent.
func (n *Reconciler) Frozen(namespace, name string) (agent, why string, ok bool) {
	o := n.cache.get(kind.Ref{Resource: kind.Applications, Namespace: namespace, Name: name})
	if o == nil {
		return "", "", false
	}
	for _, l := range n.affectedSyncs(kind.Applications, nil, o) {
		switch _, placement, because := kind.Place(o, &l.env); {
		case placement == kind.Placed:
			return "", "", false
		case placement == kind.Frozen && !ok:
			agent, why, ok = l.name, because, true
		case placement == kind.Undecided && !ok:
			agent, why, ok = l.name, "its AppProject has not been read yet", true
		}
	}
	return agent, why, ok
}

// Applications calls f for each Application of the local cluster.
func (n *Reconciler) Applications(f func(namespace, name string)) {
	for _, o := range sortedObjects(n.cache.tables[kind.Applications].objects) {
		f(o.Namespace(), o.Name())
	}
}

// ApplicationsOf calls f for the Applications that may belong to an agent: those of its namespace, and those that name
// it as their destination.
func (n *Reconciler) ApplicationsOf(agent kind.Agent, f func(namespace, name string)) {
	for _, list := range [][]*kind.Object{n.cache.byNS[agent.HubNamespace], n.cache.byDestination[agent.Name], n.cache.byDestination[agent.ClusterURL()]} {
		for _, o := range list {
			f(o.Namespace(), o.Name())
		}
	}
}
