package sim

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what users on the hub do to projects, repositories and keys.

func (w *world) destinations(n uint32) []any {
	if n%4 == 0 {
		return []any{tree{"name": "*", "namespace": "*"}}
	}
	out := []any{}
	for i, s := range w.spokes {
		if n>>(2+i)&1 == 1 {
			out = append(out, tree{"name": s.agent.Name, "namespace": "*"})
		}
	}
	return out
}

// editProject creates or changes a project: which agents it permits.
func editProject(w *world, a action) {
	name := []string{"p1", "p1", "p2", "default"}[a.n[0]%4]
	r := ref(kind.AppProjects, w.hub.argo, name)
	destinations := w.destinations(a.n[1])
	sources := []any{"*"}
	if a.n[2]%5 == 0 {
		sources = []any{"nowhere"}
	}
	if name == "default" && a.n[2]%4 > 0 { // which most Applications use
		destinations, sources = []any{tree{"name": "*", "namespace": "*"}}, []any{"*"}
	}
	w.tracef("%s: project %s permits %s from %s", userName, name, text(destinations), text(sources))
	if w.hub.st.get(r) == nil {
		t := project(w.hub.argo, name, destinations, sources)
		if a.n[2]%3 == 0 {
			addFinalizer(t, cascade)
		}
		w.hub.create(userName, kind.AppProjects, t)
		return
	}
	w.hub.edit(userName, r, func(t tree) {
		put(t, destinations, "spec", "destinations")
		put(t, sources, "spec", "sourceNamespaces")
		put(t, fmt.Sprint(a.n[3]%1000), "spec", "description")
	})
}

func deleteProject(w *world, a action) {
	w.hub.remove(userName, ref(kind.AppProjects, w.hub.argo, []string{"p1", "p2"}[a.n[0]%2]))
}

func editRepository(w *world, a action) {
	name := fmt.Sprintf("repo-%d", a.n[0]%3)
	r := ref(kind.Secrets, w.hub.argo, name)
	switch {
	case w.hub.st.get(r) == nil:
		w.hub.create(userName, kind.Secrets, repository(w.hub.argo, name, []string{"p1", "p2", "", "default"}[a.n[1]%4], fmt.Sprintf("https://git/%d", a.n[2]%100)))
	case a.n[3]%3 == 0:
		w.hub.remove(userName, r)
	case a.n[3]%3 == 1:
		w.hub.edit(userName, r, func(t tree) { put(t, b64([]string{"p1", "p2", "default"}[a.n[1]%3]), "data", "project") })
	default:
		w.hub.edit(userName, r, func(t tree) { put(t, b64(fmt.Sprint("secret-", a.n[2])), "data", "password") })
	}
}

func editKeys(w *world, a action) {
	w.hub.edit(userName, ref(kind.ConfigMaps, w.hub.argo, "argocd-gpg-keys-cm"), func(t tree) {
		put(t, fmt.Sprint("key-", a.n[1]), "data", fmt.Sprint("k", a.n[0]%3))
	})
}

// changeAppset creates an ApplicationSet, changes its template or its members.
func changeAppset(w *world, a action) {
	s, ok := pick(w.spokes, a.n[0])
	if !ok || !s.managed() {
		return
	}
	_, ns := s.home(a.n[1])
	var set *appset
	for _, known := range w.appsets {
		if known.ns == ns {
			set = known
		}
	}
	if set == nil {
		set = &appset{w: w, name: "set-" + ns, ns: ns, members: map[string]string{}, revision: w.nextRevision()}
		w.appsets = append(w.appsets, set)
		set.toggle(0, s.agent.Name)
	}
	if a.n[2]%3 == 0 {
		set.revision = w.nextRevision()
		set.plan()
		return
	}
	set.toggle(int(a.n[3]%5), s.agent.Name)
}
