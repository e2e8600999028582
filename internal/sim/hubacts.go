package sim

import (
	"fmt"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what users do on the hub.

const userName = "user"

var hubActions = []actionType{
	{name: "create application", weight: 12, do: createApplication},
	{name: "edit application", weight: 14, do: editApplication},
	{name: "delete with resources", weight: 5, do: func(w *world, a action) { deleteOnHub(w, a, true) }},
	{name: "delete without resources", weight: 5, do: func(w *world, a action) { deleteOnHub(w, a, false) }},
	{name: "recreate application", weight: 4, do: recreateApplication},
	{name: "poison application", weight: 3, do: invalidateApplication},
	{name: "cure application", weight: 3, do: fixApplication},
	{name: "sync", weight: 14, do: func(w *world, a action) { withHubApp(w, a, func(r kind.Ref) { w.sync(r) }) }},
	{name: "rolling sync", weight: 3, do: rollingSync},
	{name: "terminate", weight: 5, do: terminateSome},
	{name: "refresh", weight: 6, do: func(w *world, a action) {
		withHubApp(w, a, func(r kind.Ref) { w.refresh(r, []string{"normal", "hard"}[a.n[1]%2]) })
	}},
	{name: "move application", weight: 4, do: moveApplication},
	{name: "toggle ignore-sync", weight: 3, do: toggleIgnore},
	{name: "annotate on the hub", weight: 3, do: annotateOnHub},
	{name: "edit project", weight: 6, do: editProject},
	{name: "delete project", weight: 2, do: deleteProject},
	{name: "edit repository", weight: 5, do: editRepository},
	{name: "edit GPG keys", weight: 2, do: editKeys},
	{name: "change ApplicationSet", weight: 5, do: changeAppset},
}

// withHubApp picks an Application of the hub, copies of autonomous ones too.
func withHubApp(w *world, a action, do func(kind.Ref)) {
	if r, ok := pick(w.hub.applications(func(*kind.Object) bool { return true }), a.n[0]); ok {
		do(r)
	}
}

// ownHubApps returns the Applications that users on the hub own.
func ownHubApps(w *world) []kind.Ref {
	return w.hub.applications(func(o *kind.Object) bool { return o.Annotation(agentKey) == "" })
}

// home is where an agent's Applications are created: which cluster, namespace.
func (s *spoke) home(n uint32) (*cluster, string) {
	switch {
	case !s.managed():
		if len(s.settings.AllowedNamespaces) > 0 && n%3 == 0 {
			return s.cluster, "team-x"
		}
		return s.cluster, s.cluster.argo
	case s.agent.Mapping == kind.ByDestination:
		return s.w.hub, []string{"argocd", "team-x", "team-y"}[n%3]
	}
	return s.w.hub, s.agent.HubNamespace
}

func createApplication(w *world, a action) {
	s, ok := pick(w.spokes, a.n[0])
	if !ok || s.stranger {
		return
	}
	c, ns := s.home(a.n[1])
	w.createIn(s, c, ns, fmt.Sprintf("app-%d", a.n[2]%8), a.n[3])
}

func (w *world) createIn(s *spoke, c *cluster, ns, name string, n uint32) {
	destination := s.agent.Name
	if !s.managed() {
		destination = "in-cluster"
	}
	t := application(ns, name, destination, w.nextRevision())
	option := func(percent uint32) bool {
		n = n*1664525 + 1013904223
		return n>>16%100 < percent
	}
	if option(25) {
		automated := tree{}
		if option(50) {
			automated["prune"] = true
		}
		put(t, tree{"automated": automated}, "spec", "syncPolicy")
	} else if option(20) {
		put(t, tree{}, "spec", "syncPolicy")
	}
	if option(40) {
		addFinalizer(t, cascade)
	}
	switch {
	case option(10):
		put(t, "hooks", "spec", "source", "path")
	case option(12):
		put(t, "big", "spec", "source", "path")
	case option(6):
		put(t, parentPath, "spec", "source", "path")
	}
	if option(30) {
		put(t, tree{"flag": true}, "spec", "experimental")
	}
	switch {
	case option(20):
		put(t, "p1", "spec", "project")
	case option(10):
		put(t, "", "spec", "project")
	}
	if option(30) {
		put(t, tree{"team": "x", "app.kubernetes.io/instance": "parent"}, "metadata", "labels")
		put(t, tree{"note": "n", "argocd.argoproj.io/tracking-id": "parent:x", subscription: "ops"}, "metadata", "annotations")
	}
	if option(5) {
		put(t, []string{"always", "never"}[n>>8%2], "metadata", "annotations", "argocd.argoproj.io/adoption-policy")
	}
	if s.managed() && option(15) {
		redirect(w, s, t, n>>8)
	}
	w.tracef("%s: create %s/%s on %s", userName, ns, name, c.name)
	c.create(userName, kind.Applications, t)
}

func editApplication(w *world, a action) {
	if r, ok := pick(ownHubApps(w), a.n[0]); ok {
		w.editSpec(w.hub, r, a.n[1])
	}
}

// editSpec changes what is to be deployed, and now and then something else.
func (w *world) editSpec(c *cluster, r kind.Ref, n uint32) {
	revision := w.nextRevision()
	w.tracef("%s: edit %s on %s to %s", userName, short(r), c.name, revision)
	c.edit(userName, r, func(t tree) {
		put(t, revision, "spec", "source", "targetRevision")
		switch n % 8 {
		case 0:
			put(t, fmt.Sprint(n), "metadata", "labels", "tier")
		case 1:
			put(t, fmt.Sprint(n), "metadata", "annotations", "note")
			put(t, fmt.Sprint(n), "metadata", "annotations", subscription)
		case 2:
			cut(t, "metadata", "annotations", "note")
			cut(t, "metadata", "annotations", subscription)
		case 3:
			if _, ok := dig(t, "spec", "syncPolicy", "automated").(tree); ok {
				cut(t, "spec", "syncPolicy")
			} else {
				put(t, tree{"automated": tree{}}, "spec", "syncPolicy")
			}
		case 4:
			if dig(t, "metadata", "deletionTimestamp") != nil {
				break
			}
			if len(finalizers(t)) > 0 {
				dropFinalizers(t, isCascade)
			} else {
				addFinalizer(t, cascade)
			}
		case 5:
			put(t, []string{"default", "p1"}[n>>8%2], "spec", "project")
		}
	})
}

func deleteOnHub(w *world, a action, withResources bool) {
	withHubApp(w, a, func(r kind.Ref) { w.deleteApplication(w.hub, serverName, r, withResources) })
}

// recreateApplication deletes one and creates another under its name at once.
func recreateApplication(w *world, a action) {
	r, ok := pick(ownHubApps(w), a.n[0])
	if !ok {
		return
	}
	t := decode(w.hub.st.get(r))
	w.deleteApplication(w.hub, userName, r, false)
	if w.hub.st.get(r) != nil {
		return // a finalizer holds it
	}
	fresh := application(r.Namespace, r.Name, digText(t, "spec", "destination", "name"), w.nextRevision())
	if a.n[1]%2 == 0 {
		addFinalizer(fresh, cascade)
	}
	w.hub.create(userName, kind.Applications, fresh)
}

func invalidateApplication(w *world, a action) {
	if r, ok := pick(ownHubApps(w), a.n[0]); ok {
		w.hub.edit(userName, r, func(t tree) {
			put(t, []string{"poison", "poison", "forbidden"}[a.n[1]%3], "spec", "source", "path")
			put(t, w.nextRevision(), "spec", "source", "targetRevision")
		})
	}
}

func isInvalidPath(path string) bool { return path == "poison" || path == "forbidden" }

func fixApplication(w *world, a action) {
	poisoned := w.hub.applications(func(o *kind.Object) bool { return isInvalidPath(digText(decode(o), "spec", "source", "path")) })
	if r, ok := pick(poisoned, a.n[0]); ok {
		w.hub.edit(userName, r, func(t tree) {
			put(t, "guestbook", "spec", "source", "path")
			put(t, w.nextRevision(), "spec", "source", "targetRevision")
		})
	}
}

// rollingSync is an ApplicationSet's controller that starts a sync, whatever is pending: it overwrites the operation.
func rollingSync(w *world, a action) {
	list := w.hub.applications(func(o *kind.Object) bool { return o.Label("appset") != "" && !o.IsDeleting() })
	if r, ok := pick(list, a.n[0]); ok {
		if k := w.ledger.syncRequests[infoOf(decode(w.hub.st.get(r))["operation"], requestInfo)]; k != nil {
			k.excused = true
		}
		w.startSync(appsetName, r)
	}
}

func terminateSome(w *world, a action) {
	running := w.hub.applications(func(o *kind.Object) bool {
		return o.Get("operation") != nil && o.Get("status", "operationState") != nil
	})
	if r, ok := pick(running, a.n[0]); ok {
		w.terminate(r)
	}
}

// moveApplication changes the destination: to another agent where that moves the Application, and now and then to where
// it must not run.
func moveApplication(w *world, a action) {
	r, ok := pick(ownHubApps(w), a.n[0])
	s, ok2 := pick(w.spokes, a.n[1])
	if !ok || !ok2 {
		return
	}
	if w.shape.mapping == kind.ByNamespace {
		i := slices.IndexFunc(w.spokes, func(s *spoke) bool { return s.agent.HubNamespace == r.Namespace })
		if i < 0 {
			return
		}
		s = w.spokes[i]
	}
	w.hub.edit(userName, r, func(t tree) {
		put(t, s.agent.Name, "spec", "destination", "name")
		cut(t, "spec", "destination", "server")
		put(t, w.nextRevision(), "spec", "source", "targetRevision")
		if a.n[2]%2 == 0 {
			redirect(w, s, t, a.n[3])
		}
		w.tracef("%s: destination of %s is %s", userName, short(r), text(dig(t, "spec", "destination")))
	})
}

// redirect gives an Application of an agent another destination: the same by its URL, or one that is not the agent's.
func redirect(w *world, s *spoke, t tree, n uint32) {
	other, _ := pick(w.spokes, n>>4)
	put(t, []tree{
		{"server": s.agent.Server, "namespace": "default"},
		{"server": s.agent.Server, "namespace": "default"},
		{"server": "https://kubernetes.default.svc", "namespace": "argocd"},
		{"name": "in-cluster", "namespace": "argocd"},
		{"name": other.agent.Name, "namespace": "default"},
		{"server": other.agent.Server, "namespace": "default"},
		{"name": s.agent.Name, "server": s.agent.Server, "namespace": "default"},
		{"namespace": "default"},
	}[n%8], "spec", "destination")
}

func toggleIgnore(w *world, a action) {
	if r, ok := pick(ownHubApps(w), a.n[0]); ok {
		w.hub.edit(userName, r, toggleIgnoreLabel)
	}
}

func toggleIgnoreLabel(t tree) {
	if digText(t, "metadata", "labels", ignoreKey) != "" {
		cut(t, "metadata", "labels", ignoreKey)
	} else {
		put(t, "true", "metadata", "labels", ignoreKey)
	}
}

// annotateOnHub changes what is never replicated, and on replicas what users may add.
func annotateOnHub(w *world, a action) {
	withHubApp(w, a, func(r kind.Ref) {
		w.hub.edit(userName, r, func(t tree) {
			put(t, fmt.Sprint(a.n[1]), "metadata", "annotations", "notified.notifications.argoproj.io")
			if digText(t, "metadata", "annotations", agentKey) != "" {
				put(t, "here", "metadata", "annotations", "hub-only")
				put(t, fmt.Sprint("drift-", a.n[2]), "spec", "source", "path")
			}
		})
	})
}
