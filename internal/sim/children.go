package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is an app of apps: an Application on a spoke whose resources are Applications there. Its sync creates them,
// and prunes those that are too many. If a managed agent's registration says so, the hub shows them.

var childActions = []actionType{
	{name: "show children", weight: 4, fault: true, rare: 15, do: showChildren},
}

// showChildren has the hub show the children of a managed agent's Applications, or no longer. It also makes one of them an
// app of apps.
func showChildren(w *world, a action) {
	s, _ := pick(w.spokes, a.n[0])
	if !s.managed() {
		return
	}
	s.agent.Children = !s.agent.Children
	w.tracef("%s: the hub shows children of %s: %v", userName, s.agent.Name, s.agent.Children)
	w.reregister(s)
	parents := w.hub.applications(func(o *kind.Object) bool { return w.sentTo(s, refOf(kind.Applications, o), o) && !o.IsDeleting() })
	if r, ok := pick(parents, a.n[1]); ok {
		w.hub.edit(userName, r, func(t tree) {
			put(t, parentPath, "spec", "source", "path")
			put(t, tree{"automated": tree{}}, "spec", "syncPolicy")
			put(t, w.nextRevision(), "spec", "source", "targetRevision")
		})
	}
}

// parentPath is the path of such an Application. How many children a revision has follows from its last digit.
const parentPath = "apps"

const trackingKey = "argocd.argoproj.io/tracking-id"

// createChildren makes the children of a parent what its revision says.
func (k *controller) createChildren(parent kind.Ref, revision string) {
	want := map[string]bool{}
	if revision != "" {
		for i := range 1 + int(revision[len(revision)-1])%3 {
			want[fmt.Sprintf("%s-child-%d", parent.Name, i)] = true
		}
	}
	for _, name := range sortedKeys(want) {
		r := ref(kind.Applications, parent.Namespace, name)
		if k.c.st.get(r) != nil {
			k.c.edit(controllerName, r, func(t tree) { put(t, revision, "spec", "source", "targetRevision") })
			continue
		}
		t := application(r.Namespace, r.Name, "in-cluster", revision)
		put(t, k.c.instance(parent)+":argoproj.io/Application:"+r.Namespace+"/"+r.Name, "metadata", "annotations", trackingKey)
		addFinalizer(t, cascade)
		k.c.create(controllerName, kind.Applications, t)
	}
	for _, o := range k.c.st.list(kind.Applications) {
		if o.Namespace() == parent.Namespace && strings.HasPrefix(o.Annotation(trackingKey), k.c.instance(parent)+":argoproj.io/") && !want[o.Name()] && !o.IsDeleting() {
			k.c.w.deleteApplication(k.c, controllerName, refOf(kind.Applications, o), true)
		}
	}
}

func isParent(t tree) bool { return digText(t, "spec", "source", "path") == parentPath }

const childKey = "argocd-agent.argoproj-labs.io/child"

func isChildCopy(o *kind.Object) bool { return o != nil && o.Annotation(childKey) != "" }

// instance is the name by which Argo CD tracks what an Application deploys.
func (c *cluster) instance(app kind.Ref) string {
	if app.Namespace == c.argo {
		return app.Name
	}
	return app.Namespace + "_" + app.Name
}

// parentOf returns the Application that deploys another one, or nil.
func (c *cluster) parentOf(o *kind.Object) *kind.Object {
	for _, p := range c.st.list(kind.Applications) {
		if o.Annotation(trackingKey) == c.instance(refOf(kind.Applications, p))+":argoproj.io/Application:"+o.Namespace()+"/"+o.Name() {
			return p
		}
	}
	return nil
}

// tracked reports whether Argo CD deploys an Application for another one, whether or not that one exists now.
func tracked(o *kind.Object) bool {
	return strings.HasSuffix(o.Annotation(trackingKey), ":argoproj.io/Application:"+o.Namespace()+"/"+o.Name())
}

// isChild reports whether the hub is to show an Application of a managed spoke.
func (s *spoke) isChild(o *kind.Object, generations int) bool {
	if generations == 0 || ownedByAgent(o) || ignoredLabel(o) && generations == 8 {
		return false
	}
	p := s.cluster.parentOf(o)
	return p != nil && (ownedByAgent(p) || s.isChild(p, generations-1))
}

// guardChild watches what a principal writes into the copy of a child.
func (w *world) guardChild(s *spoke, ch change, bad func(string)) {
	switch {
	case s == nil:
		bad("shows a child of no agent:")
	case ch.old != nil && !isChildCopy(ch.old):
		bad("replaces what is no copy of a child:")
	case ch.new == nil:
	case !ignoredLabel(ch.new) && (ch.old == nil || ignoredLabel(ch.old)):
		bad("lets the copy of a child be sent:")
	case ch.old == nil && !w.ledger.children[ch.new.Annotation(sourceKey)+"@"+s.agent.Name] && !strings.HasPrefix(ch.new.Annotation(sourceKey), "clone-"):
		bad("shows what is no child of the agent:")
	case ch.old != nil && !ch.old.IsDeleting() && ch.new.IsDeleting():
	}
}

// children compares the children of a managed spoke with their copies.
func (d *differ) children(w *world, s *spoke) {
	for _, p := range append(slices.Clone(w.principals), s.process) {
		if p.release == older {
			return // it knows no children
		}
	}
	meant := map[kind.Ref]bool{}
	for _, o := range s.cluster.st.list(kind.Applications) {
		from := refOf(kind.Applications, o)
		to := from
		if s.agent.Mapping == kind.ByNamespace {
			to.Namespace = s.agent.HubNamespace
		}
		if !s.agent.Children || !s.isChild(o, 8) || !s.allows(from.Namespace) || s.agent.Mapping == kind.ByNamespace && from.Namespace != s.cluster.argo {
			continue
		}
		meant[to] = true
		replica := w.hub.st.get(to)
		project := unquote(o.Get("spec", "project"))
		if project == "" {
			project = "default"
		}
		at := "child " + short(from) + " of " + s.agent.Name
		switch {
		case !w.selected(o) || s.agent.Mapping == kind.ByDestination && !w.hubAllows(to.Namespace):
		case !w.consents(s, to, w.hub.st.get(ref(kind.AppProjects, w.hub.argo, project))):
		case replica == nil:
			d.add("%s is missing on the hub", at)
		case !isChildCopy(replica) || replica.Annotation(agentKey) != s.agent.Name: // an Application of the hub, or of another agent
		case replica.Annotation(sourceKey) != o.UID():
			d.add("%s is something else on the hub", at)
		default:
			own, copied := decode(o), decode(replica)
			if a, b := plainSpec(s, own, s.agent.Name), plainSpec(s, copied, ""); a != b {
				d.add("%s: spec %s is %s on the hub", at, a, b)
			}
			d.status(at, copied, own)
		}
	}
	for _, o := range w.hub.st.list(kind.Applications) {
		there := refOf(kind.Applications, o)
		readable := there.Namespace == s.agent.HubNamespace && s.agent.Mapping == kind.ByNamespace || s.agent.Mapping == kind.ByDestination && w.hubAllows(there.Namespace)
		if isChildCopy(o) && o.Annotation(agentKey) == s.agent.Name && readable && !meant[there] {
			d.add("%s on the hub is no longer a child at %s", short(there), s.agent.Name)
		}
	}
}
