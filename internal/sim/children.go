package sim

import (
	"fmt"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// This file is an app of apps: an Application on a spoke whose resources are Applications there. Its sync creates them,
// and prunes those that are too many.

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
		put(t, parent.Name+":argoproj.io/Application:"+r.Namespace+"/"+r.Name, "metadata", "annotations", trackingKey)
		addFinalizer(t, cascade)
		k.c.create(controllerName, kind.Applications, t)
	}
	for _, o := range k.c.st.list(kind.Applications) {
		if o.Namespace() == parent.Namespace && strings.HasPrefix(o.Annotation(trackingKey), parent.Name+":argoproj.io/") && !want[o.Name()] && !o.IsDeleting() {
			k.c.w.deleteApplication(k.c, controllerName, refOf(kind.Applications, o), true)
		}
	}
}

func isParent(t tree) bool { return digText(t, "spec", "source", "path") == parentPath }
