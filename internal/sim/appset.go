package sim

import (
	"fmt"
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// appset is an ApplicationSet on the hub together with its controller: it owns the spec, labels and annotations of its
// Applications, replaces whatever else is there, and looks again whenever one of them changes.
type appset struct {
	w        *world
	name     string
	ns       string
	members  map[string]string // Application → destination
	revision string
	planned  bool
	writes   int
}

const appsetName = "applicationset-controller"

func (a *appset) plan() {
	if a.planned {
		return
	}
	a.planned = true
	a.w.after(a.w.between(100, 3*second), func() {
		a.planned = false
		a.reconcile()
	})
}

func (a *appset) reconcile() {
	if a.w.hub.down() {
		a.plan()
		return
	}
	for _, name := range sortedKeys(a.members) {
		r := ref(kind.Applications, a.ns, name)
		want := application(a.ns, name, a.members[name], a.revision)
		put(want, tree{"appset": a.name}, "metadata", "labels")
		put(want, tree{"generated": "yes"}, "metadata", "annotations")
		put(want, []any{tree{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": a.name}}, "metadata", "ownerReferences")
		o := a.w.hub.st.get(r)
		if o == nil {
			a.w.hub.create(appsetName, kind.Applications, want)
			continue
		}
		if o.IsDeleting() || o.Label("appset") != a.name {
			continue
		}
		t := decode(o)
		annotations := tree{"generated": "yes"}
		for _, kept := range []string{"notified.notifications.argoproj.io", refreshKey, hydrateKey} {
			if v := digText(t, "metadata", "annotations", kept); v != "" {
				annotations[kept] = v
			}
		}
		if text(t["spec"]) == text(want["spec"]) && text(digTree(t, "metadata", "annotations")) == text(annotations) &&
			text(digTree(t, "metadata", "labels")) == text(digTree(want, "metadata", "labels")) {
			continue
		}
		a.writes++
		a.w.tracef("%s: rewrites %s", appsetName, short(r))
		a.w.hub.edit(appsetName, r, func(t tree) {
			t["spec"] = want["spec"]
			put(t, annotations, "metadata", "annotations")
			put(t, digTree(want, "metadata", "labels"), "metadata", "labels")
		})
	}
	for _, o := range a.w.hub.st.list(kind.Applications) {
		if o.Namespace() == a.ns && o.Label("appset") == a.name && o.Get("metadata", "ownerReferences") != nil && a.members[o.Name()] == "" && !o.IsDeleting() {
			a.w.hub.remove(appsetName, refOf(kind.Applications, o))
		}
	}
}

// toggle adds a member, or takes one away.
func (a *appset) toggle(n int, destination string) {
	name := fmt.Sprintf("%s-%d", a.name, n)
	if a.members[name] != "" {
		delete(a.members, name)
	} else {
		a.members[name] = destination
	}
	a.plan()
}

func sortedKeys[V any](m map[string]V) []string {
	return slicesSorted(maps.Keys(m))
}
