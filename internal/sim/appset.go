package sim

import (
	"fmt"
	"maps"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// appset is an ApplicationSet on the hub together with its controller: it owns the spec, labels and annotations of its
// Applications, replaces whatever else is there, and looks again whenever one of them changes. With two hubs, both have
// the ApplicationSet, and the controller runs where the hub is active. After a promotion it takes over its Applications.
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
	for _, c := range a.w.activeHubs() {
		a.reconcileOn(c)
	}
}

func (a *appset) reconcileOn(c *cluster) {
	if c.down() {
		a.plan()
		return
	}
	for _, name := range sortedKeys(a.members) {
		r := ref(kind.Applications, a.ns, name)
		want := application(a.ns, name, a.members[name], a.revision)
		put(want, tree{"appset": a.name}, "metadata", "labels")
		put(want, tree{"generated": "yes"}, "metadata", "annotations")
		owner := []any{tree{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "name": a.name}}
		put(want, owner, "metadata", "ownerReferences")
		o := c.st.get(r)
		if o == nil {
			c.create(appsetName, kind.Applications, want)
			continue
		}
		if o.IsDeleting() || o.Label("appset") != a.name {
			continue
		}
		t := decode(o)
		annotations := tree{"generated": "yes"}
		for _, kept := range a.w.preserved() {
			if v := digText(t, "metadata", "annotations", kept); v != "" {
				annotations[kept] = v
			}
		}
		if text(t["spec"]) == text(want["spec"]) && text(digTree(t, "metadata", "annotations")) == text(annotations) &&
			text(digTree(t, "metadata", "labels")) == text(digTree(want, "metadata", "labels")) && o.Get("metadata", "ownerReferences") != nil {
			continue
		}
		a.writes++
		a.w.tracef("%s: rewrites %s", appsetName, short(r))
		c.edit(appsetName, r, func(t tree) {
			t["spec"] = want["spec"]
			put(t, annotations, "metadata", "annotations")
			put(t, digTree(want, "metadata", "labels"), "metadata", "labels")
			put(t, owner, "metadata", "ownerReferences")
		})
	}
	for _, o := range c.st.list(kind.Applications) {
		if o.Namespace() == a.ns && o.Label("appset") == a.name && o.Get("metadata", "ownerReferences") != nil && a.members[o.Name()] == "" && !o.IsDeleting() {
			c.remove(appsetName, refOf(kind.Applications, o))
		}
	}
}

// preserved returns the annotations that the controller does not remove: those of Argo CD, and what a hub of a group needs in
// applicationsetcontroller.global.preserved.annotations.
func (w *world) preserved() []string {
	all := []string{"notified.notifications.argoproj.io", refreshKey, hydrateKey}
	if w.mutant.preservesNothing {
		return all
	}
	return append(all, kind.PreservedAnnotations()...)
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
