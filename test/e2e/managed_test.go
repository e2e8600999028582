package e2e

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// plain returns an Application of the sample with a Deployment, a Service and a ConfigMap, with auto-sync.
func (w *testEnv) plain(destination, namespace string) appSpec {
	return appSpec{repo: w.RepoURL("plain"), destination: destination, namespace: namespace, automated: true}
}

func TestManagedApplication_IsDeployedUpdatedAndDeleted(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	hubApp, copied := w.hub.app("managed", "life"), spoke.app(lab.ArgoCDNamespace, "life")
	workload := spoke.object(deployments, "life", "guestbook")

	spec := w.plain("managed", "life")
	spec.cascade, spec.labels, spec.annotations = true, map[string]string{"team": "a"}, map[string]string{"note": "b"}
	made := hubApp.create(t, spec.object())
	copied.becomes(t, field("spec.destination.name", "in-cluster"), label("team", "a"), annotation("note", "b"),
		annotation(sourceUID, string(made.GetUID())))
	hubApp.becomes(t, synced, healthyApp, noOperation)
	workload.is(t)

	hubApp.edit(t, func(u *unstructured.Unstructured) {
		set(u, "spec.source.repoURL", w.RepoURL("kustomize"))
		set(u, "spec.source.path", "overlays/staging")
		set(u, "spec.syncPolicy.automated.prune", true)
		setLabel(u, "team", "c")
	})
	copied.becomes(t, field("spec.source.path", "overlays/staging"), label("team", "c"))
	spoke.object(deployments, "life", "staging-guestbook").becomes(t)
	workload.goes(t)
	hubApp.becomes(t, synced, healthyApp, field("status.sync.comparedTo.source.path", "overlays/staging"))

	hubApp.delete(t)
	hubApp.goes(t)
	copied.isAbsent(t)
	spoke.object(deployments, "life", "staging-guestbook").goes(t)
}

func TestManagedApplication_ReplicaDriftIsCorrected(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	spec := w.plain("managed", "drift")
	spec.automated = false
	spec.labels = map[string]string{"team": "a"}
	copies := map[string]object{}
	for _, name := range []string{"drift-edited", "drift-labelled", "drift-deleted"} {
		w.hub.app("managed", name).create(t, spec.object())
		copies[name] = agent.spoke.app(lab.ArgoCDNamespace, name)
		copies[name].becomes(t)
	}
	meddle := func() {
		copies["drift-edited"].edit(t, func(u *unstructured.Unstructured) { set(u, "spec.source.path", "elsewhere") })
		copies["drift-labelled"].edit(t, func(u *unstructured.Unstructured) {
			setLabel(u, "team", "b")
			setLabel(u, "mine", "yes")
		})
		copies["drift-deleted"].delete(t)
	}
	putRight := func() {
		copies["drift-edited"].becomes(t, field("spec.source.path", "."))
		copies["drift-labelled"].becomes(t, label("team", "a"), label("mine", ""))
		copies["drift-deleted"].becomes(t, label("team", "a"))
	}

	meddle()
	putRight()

	agent.kill(t)
	meddle()
	agent.start(t)
	putRight()
}

func TestManagedApplication_IgnoredLaterKeepsWorkloads(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	hubApp, copied := w.hub.app("managed", "ignored"), spoke.app(lab.ArgoCDNamespace, "ignored")
	spec := w.plain("managed", "ignored")
	spec.cascade = true
	hubApp.create(t, spec.object())
	hubApp.becomes(t, synced, healthyApp)

	hubApp.edit(t, func(u *unstructured.Unstructured) { setLabel(u, ignore, "true") })
	copied.goes(t)
	spoke.object(deployments, "ignored", "guestbook").is(t)

	hubApp.edit(t, func(u *unstructured.Unstructured) { setLabel(u, ignore, "false") })
	copied.becomes(t, synced, healthyApp)
}

func TestManagedApplication_KeepsFieldsOfSpoke(t *testing.T) {
	w := shared(t)
	hubApp := w.hub.app("managed", "others")
	copied := w.managed().spoke.app(lab.ArgoCDNamespace, "others")
	hubApp.create(t, w.plain("managed", "others").object())
	hubApp.becomes(t, synced, healthyApp)

	const notified = "notified.notifications.argoproj.io"
	copied.edit(t, func(u *unstructured.Unstructured) { setAnnotation(u, notified, "spoke") })
	hubApp.edit(t, func(u *unstructured.Unstructured) {
		setAnnotation(u, notified, "hub")
		setAnnotation(u, "note", "new")
	})
	copied.becomes(t, annotation("note", "new"), annotation(notified, "spoke"))
	hubApp.is(t, annotation(notified, "hub"), annotation(sourceUID, ""))
}
