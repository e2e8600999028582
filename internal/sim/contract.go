package sim

import (
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file says, in the plainest way, which objects go where. It is written from the contract with Argo CD and uses
// none of the product's functions.

// sentTo reports whether the hub sends an object to a managed agent.
func (w *world) sentTo(s *spoke, r kind.Ref, o *kind.Object) bool {
	if !s.managed() || ignoredLabel(o) || !w.selected(o) || !s.replicates(r.Resource) {
		return false
	}
	switch r.Resource {
	case kind.Applications:
		return w.claims(s, r, o) && w.mayRun(s, r, o)
	case kind.AppProjects:
		return r.Namespace == s.hub().argo && w.permits(s, o)
	case kind.Secrets:
		if t := o.Label("argocd.argoproj.io/secret-type"); t != "repository" && t != "repo-creds" || r.Namespace != w.hub.argo {
			return false
		}
		name := unb64(unquote(o.Get("data", "project")))
		if name == "" {
			return w.shape.hubSettings.ShareUnscopedRepositories
		}
		p := s.hub().st.get(ref(kind.AppProjects, s.hub().argo, name))
		return p != nil && !ignoredLabel(p) && w.selected(p) && w.permits(s, p)
	case kind.ConfigMaps:
		return r.Namespace == s.hub().argo && r.Name == "argocd-gpg-keys-cm"
	}
	return w.shape.sent != nil && w.shape.sent(r)
}

// claims reports whether an Application of the hub is an agent's by the mapping.
func (w *world) claims(s *spoke, r kind.Ref, o *kind.Object) bool {
	// What was the copy of an autonomous agent's is its own once it is managed.
	copyOf := o.Annotation(agentKey)
	if !s.managed() || ignoredLabel(o) || !w.selected(o) || r.Resource != kind.Applications || !s.replicates(r.Resource) || copyOf != "" && copyOf != s.agent.Name ||
		o.IsDeleting() && !slices.ContainsFunc(o.Finalizers(), isCascade) {
		return false
	}
	if s.agent.Mapping == kind.ByNamespace {
		return r.Namespace == s.agent.HubNamespace && (w.shape.mapping == kind.ByNamespace || w.hubAllows(r.Namespace))
	}
	name, server := destinationOf(o)
	return w.hubAllows(r.Namespace) && (name == s.agent.Name || name == "" && server == s.agent.Server)
}

// mayRun reports whether an Application that is an agent's by the mapping may run there: its destination is the agent,
// and its AppProject consents.
func (w *world) mayRun(s *spoke, r kind.Ref, o *kind.Object) bool {
	if name, server := destinationOf(o); !(name == s.agent.Name && server == "" || name == "" && server == s.agent.Server) {
		return false
	}
	return w.consents(s, r, s.hub().projectOf(o))
}

// consents reports whether an AppProject permits Applications of a namespace to run on an agent; nil: there is none.
func (w *world) consents(s *spoke, r kind.Ref, p *kind.Object) bool {
	if p == nil || ignoredLabel(p) || !w.selected(p) {
		return false
	}
	t := decode(p)
	return w.namesAgent(s, t) && (r.Namespace == s.hub().argo || slices.ContainsFunc(digList(t, "spec", "sourceNamespaces"), func(n any) bool { return n == "*" || n == r.Namespace }))
}

// frozen reports whether an Application is an agent's by the mapping and must not run there: then the agent gets
// nothing of it, and keeps what it has.
func (w *world) frozen(s *spoke, r kind.Ref, o *kind.Object) bool {
	return w.claims(s, r, o) && !w.mayRun(s, r, o)
}

// consentedBefore reports whether an Application may run on an agent by an earlier state of its AppProject that a
// principal still has: its watch of AppProjects has not shown the change. Two watches are not in step, so such a principal
// places the Application. It freezes it when it sees the change.
func (w *world) consentedBefore(s *spoke, r kind.Ref, o *kind.Object) bool {
	if name, server := destinationOf(o); !(name == s.agent.Name && server == "" || name == "" && server == s.agent.Server) {
		return false
	}
	name := unquote(o.Get("spec", "project"))
	if name == "" {
		name = "default"
	}
	project := ref(kind.AppProjects, s.hub().argo, name)
	for _, p := range w.principalsOf(s.hub()) {
		i := slices.IndexFunc(p.reflectors, func(f *reflector) bool { return f.resource == kind.AppProjects })
		if i < 0 {
			continue
		}
		// The first change that it has not seen replaced what it has.
		for _, ch := range s.hub().st.logs[kind.AppProjects] {
			if ch.ref == project && ch.rev > p.reflectors[i].frontier {
				if w.consents(s, r, ch.old) {
					return true
				}
				break
			}
		}
	}
	return false
}

func destinationOf(o *kind.Object) (name, server string) {
	return unquote(o.Get("spec", "destination", "name")), unquote(o.Get("spec", "destination", "server"))
}

func unquote(b []byte) string { return strings.Trim(string(b), `"`) }

// selected reports whether the hub's label selector, if there is one, selects an object.
func (w *world) selected(o *kind.Object) bool {
	_, has := o.Labels()[selectorLabel]
	return !w.selects || has
}

func (w *world) hubAllows(ns string) bool {
	list := w.shape.hubSettings.AllowedNamespaces
	return ns == w.hub.argo || slices.Contains(list, ns) || strings.HasPrefix(ns, "team-") && slices.Contains(list, "team-*")
}

// permits reports whether a project lets Applications deploy to an agent. The world's projects name agents or
// everything, and deny nothing.
func (w *world) permits(s *spoke, o *kind.Object) bool {
	t := decode(o)
	named := w.namesAgent(s, t)
	if !named || s.agent.Mapping == kind.ByDestination {
		return named
	}
	return slices.ContainsFunc(digList(t, "spec", "sourceNamespaces"), func(n any) bool { return n == "*" || n == s.agent.HubNamespace })
}

func (w *world) namesAgent(s *spoke, project tree) bool {
	return slices.ContainsFunc(digList(project, "spec", "destinations"), func(d any) bool {
		name := digText(d, "name")
		return name == "*" || name == s.agent.Name
	})
}

// shownBy reports whether an autonomous agent shows an object on the hub.
func shownBy(s *spoke, r kind.Ref, o *kind.Object) bool {
	if s.managed() || ignoredLabel(o) {
		return false
	}
	switch r.Resource {
	case kind.Applications:
		if o.IsDeleting() && !slices.ContainsFunc(o.Finalizers(), isCascade) {
			return false
		}
		return s.allows(r.Namespace)
	case kind.AppProjects:
		return r.Namespace == s.cluster.argo
	}
	return false
}

// allows reports whether an agent takes Applications in a namespace of its cluster.
func (s *spoke) allows(ns string) bool {
	return ns == s.cluster.argo || len(s.settings.AllowedNamespaces) > 0 && strings.HasPrefix(ns, "team-")
}

// copyOnSpoke names the spoke's object for one of the hub's.
func copyOnSpoke(s *spoke, r kind.Ref) kind.Ref {
	if r.Resource == kind.Applications && s.agent.Mapping == kind.ByDestination {
		return r
	}
	return ref(r.Resource, s.cluster.argo, r.Name)
}

// copyOnHub names the hub's copy of an autonomous agent's object.
func copyOnHub(s *spoke, r kind.Ref) kind.Ref {
	if r.Resource == kind.AppProjects {
		return ref(r.Resource, s.w.hub.argo, hubProject(s, r.Name))
	}
	if r.Namespace == s.cluster.argo {
		return ref(r.Resource, s.agent.HubNamespace, r.Name)
	}
	return ref(r.Resource, s.agent.HubNamespace, r.Namespace+"."+r.Name)
}

// hubProject is the convention <agent>-<project>, with two dashes where the project has one of its own, so that a +
// b-c and a-b + c differ.
func hubProject(s *spoke, name string) string {
	if strings.Contains(name, "-") {
		return s.agent.Name + "--" + name
	}
	return s.agent.Name + "-" + name
}

// notReplicated reports whether a label or annotation stays on its side.
func (w *world) notReplicated(key string) bool {
	tracking := w.instanceLabel
	if tracking == "" {
		tracking = "app.kubernetes.io/instance"
	}
	switch key {
	case "notified.notifications.argoproj.io", "kubectl.kubernetes.io/last-applied-configuration",
		"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/installation-id", tracking,
		refreshKey, hydrateKey, approvalKey, sourceKey, principalKey:
		return true
	}
	return strings.HasPrefix(key, "argocd-agent.argoproj-labs.io/")
}
