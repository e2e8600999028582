package sim

import (
	"fmt"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is what users do on spokes.

const spokeUser = "spoke-user"

var spokeActions = []actionType{
	{name: "edit a copy on the spoke", weight: 6, do: editCopy},
	{name: "delete a copy on the spoke", weight: 3, do: deleteCopy},
	{name: "local objects on the spoke", weight: 4, do: localObject},
	{name: "edit autonomous application", weight: 8, do: editAutonomous},
	{name: "delete autonomous application", weight: 3, do: deleteAutonomous},
	{name: "edit autonomous project", weight: 4, do: editAutonomousProject},
	{name: "sync on the spoke", weight: 3, do: syncOnSpoke},
	{name: "something keeps a label", weight: 1, do: fight},
	{name: "burst of statuses", weight: 2, do: burst},
}

func (w *world) pickSpoke(n uint32, managed bool) *spoke {
	var list []*spoke
	for _, s := range w.spokes {
		if s.managed() == managed && !s.stranger {
			list = append(list, s)
		}
	}
	s, _ := pick(list, n)
	return s
}

// ownedByAgent reports whether an object has our ownership annotation.
func ownedByAgent(o *kind.Object) bool {
	return o != nil && o.Annotation(principalKey) == principalUID && o.Annotation(sourceKey) != ""
}

// editCopy changes what came from the hub.
func editCopy(w *world, a action) {
	s := w.pickSpoke(a.n[0], true)
	if s == nil {
		return
	}
	r, ok := pick(s.cluster.applications(ownedByAgent), a.n[1])
	if !ok {
		return
	}
	what, before := a.n[2]%9, s.cluster.st.get(r)
	w.tracef("%s: local edit %d of %s on %s", spokeUser, what, short(r), s.agent.Name)
	s.cluster.edit(spokeUser, r, func(t tree) {
		switch what {
		case 0, 1, 2:
			put(t, fmt.Sprint("local-", a.n[3]), "spec", "source", "targetRevision")
		case 3:
			put(t, "yes", "metadata", "labels", "local")
		case 4:
			put(t, "yes", "metadata", "annotations", "local")
		case 5:
			dropFinalizers(t, isCascade)
		case 6:
			cut(t, "metadata", "annotations")
		case 7:
			put(t, "local", "metadata", "annotations", "note")
			put(t, tree{"automated": tree{}}, "spec", "syncPolicy")
		case 8:
			if a.n[3]%4 == 0 {
				toggleIgnoreLabel(t)
			}
		}
	})
	if what <= 2 {
		w.expectRevert(s, r, before)
	}
}

func deleteCopy(w *world, a action) {
	s := w.pickSpoke(a.n[0], true)
	if s == nil {
		return
	}
	switch a.n[2] % 6 {
	case 0:
		for _, o := range s.cluster.st.list(kind.Secrets) {
			if ownedByAgent(o) {
				s.cluster.remove(spokeUser, refOf(kind.Secrets, o))
				return
			}
		}
	case 1:
		s.cluster.remove(spokeUser, ref(kind.AppProjects, s.cluster.argo, "p1"))
	default:
		if r, ok := pick(s.cluster.applications(ownedByAgent), a.n[1]); ok {
			w.deleteApplication(s.cluster, spokeUser, r, a.n[2]%6 == 2)
		}
	}
}

// localObject makes or changes something on a managed spoke that is not ours. Some have names that the hub uses as
// well.
func localObject(w *world, a action) {
	s := w.pickSpoke(a.n[0], true)
	if s == nil {
		return
	}
	name := fmt.Sprintf("local-%d", a.n[1]%3)
	if a.n[2]%3 == 0 {
		name = fmt.Sprintf("app-%d", a.n[1]%8)
	}
	r := ref(kind.Applications, s.cluster.argo, name)
	o := s.cluster.st.get(r)
	switch {
	case a.n[3]%5 == 0:
		s.cluster.create(spokeUser, kind.Secrets, repository(s.cluster.argo, fmt.Sprintf("repo-%d", a.n[1]%5), "p1", "https://local"))
	case a.n[3]%5 == 1:
		s.cluster.create(spokeUser, kind.AppProjects, project(s.cluster.argo, "p1", []any{tree{"server": "*", "namespace": "*"}}, nil))
	case o == nil:
		t := application(s.cluster.argo, name, "in-cluster", fmt.Sprint("local-", a.n[3]))
		if a.n[3]%2 == 0 {
			addFinalizer(t, cascade)
		}
		s.cluster.create(spokeUser, kind.Applications, t)
	case ownedByAgent(o):
	default:
		s.cluster.edit(spokeUser, r, func(t tree) {
			put(t, fmt.Sprint("local-", a.n[3]), "spec", "source", "targetRevision")
		})
	}
}

func editAutonomous(w *world, a action) {
	s := w.pickSpoke(a.n[0], false)
	if s == nil {
		return
	}
	if r, ok := pick(s.cluster.applications(func(*kind.Object) bool { return true }), a.n[1]); ok {
		if a.n[3]%10 == 0 {
			s.cluster.edit(spokeUser, r, toggleIgnoreLabel)
			return
		}
		w.editSpec(s.cluster, r, a.n[2])
	}
}

func deleteAutonomous(w *world, a action) {
	s := w.pickSpoke(a.n[0], false)
	if s == nil {
		return
	}
	if r, ok := pick(s.cluster.applications(func(*kind.Object) bool { return true }), a.n[1]); ok {
		w.deleteApplication(s.cluster, spokeUser, r, a.n[2]%2 == 0)
		if a.n[2]%3 == 0 && s.cluster.st.get(r) == nil {
			w.createIn(s, s.cluster, r.Namespace, r.Name, a.n[3])
		}
	}
}

func editAutonomousProject(w *world, a action) {
	s := w.pickSpoke(a.n[0], false)
	if s == nil {
		return
	}
	name := []string{"c", "b-c", "p1"}[a.n[1]%3]
	r := ref(kind.AppProjects, s.cluster.argo, name)
	switch {
	case s.cluster.st.get(r) == nil:
		s.cluster.create(spokeUser, kind.AppProjects, project(s.cluster.argo, name, []any{tree{"server": "https://kubernetes.default.svc", "namespace": "*"}}, []any{"*"}))
	case a.n[2]%3 == 0:
		s.cluster.remove(spokeUser, r)
	default:
		s.cluster.edit(spokeUser, r, func(t tree) { put(t, fmt.Sprint(a.n[3]%1000), "spec", "description") })
	}
}

// syncOnSpoke is a sync that a user on the spoke starts.
func syncOnSpoke(w *world, a action) {
	s, ok := pick(w.spokes, a.n[0])
	if !ok {
		return
	}
	idle := s.cluster.applications(func(o *kind.Object) bool { return o.Get("operation") == nil && !o.IsDeleting() })
	if r, ok := pick(idle, a.n[1]); ok {
		s.cluster.edit(spokeUser, r, func(t tree) {
			t["operation"] = tree{"sync": tree{"revision": "HEAD"}, "initiatedBy": tree{"username": "local"}}
			cut(t, "status", "operationState")
		})
	}
}

// fight lets something on the spoke put a label back whenever it goes.
func fight(w *world, a action) {
	if s := w.pickSpoke(a.n[0], true); s != nil {
		s.ctl.fights[fmt.Sprintf("app-%d", a.n[1]%8)] = true
		for _, r := range s.cluster.applications(ownedByAgent) {
			s.ctl.noticed(r)
		}
	}
}

// burst changes one status many times in a row.
func burst(w *world, a action) {
	s, ok := pick(w.spokes, a.n[0])
	if !ok {
		return
	}
	if r, ok := pick(s.cluster.applications(func(*kind.Object) bool { return true }), a.n[1]); ok {
		w.burst(s, r, 20+int(a.n[2]%30))
	}
}

func (w *world) burst(s *spoke, r kind.Ref, n int) {
	for i := range n {
		w.after(w.between(0, 3*second), func() {
			s.cluster.edit(controllerName, r, func(t tree) { put(t, fmt.Sprint(i), "status", "summary", "burst") })
		})
	}
}
