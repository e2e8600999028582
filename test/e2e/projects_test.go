package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

func TestManagedProject_FollowsItsDestinations(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	hubProject, copied := w.hub.project("placed"), spoke.project("placed")
	project := projectOf("managed", "somewhere-else")
	spec := project["spec"].(map[string]any)
	spec["roles"] = []any{map[string]any{"name": "admin", "policies": []any{"p, proj:placed:admin, applications, *, placed/*, allow"}}}
	hubProject.create(t, project)

	found := copied.becomes(t, field("spec.description", "of a test"))
	destinations, _, _ := unstructured.NestedSlice(found.Object, "spec", "destinations")
	if len(destinations) != 1 || destinations[0].(map[string]any)["name"] != "in-cluster" {
		t.Errorf("destinations on the spoke are %v; one of two is for it, and is in-cluster there", destinations)
	}
	for _, absent := range []string{"roles", "sourceNamespaces"} {
		if value, there, _ := unstructured.NestedFieldNoCopy(found.Object, "spec", absent); there {
			t.Errorf("%s crossed: %v", absent, value)
		}
	}
	w.autonomous().spoke.project("placed").isAbsent(t)

	hubProject.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.description", "changed") })
	copied.becomes(t, field("spec.description", "changed"))
	copied.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.description", "by hand") })
	copied.becomes(t, field("spec.description", "changed"))

	hubProject.edit(t, func(u *unstructured.Unstructured) {
		set(u, "spec.destinations", []any{map[string]any{"name": "somewhere-else", "namespace": "*", "server": ""}})
	})
	copied.goes(t)
	hubProject.edit(t, func(u *unstructured.Unstructured) {
		set(u, "spec.destinations", []any{map[string]any{"name": "manag*", "namespace": "*", "server": ""}})
	})
	copied.becomes(t)
	hubProject.delete(t)
	copied.goes(t)
}

func TestManagedProject_StaysWhileInUse(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	w.hub.project("used").create(t, projectOf("managed"))
	spec := w.plain("managed", "used")
	spec.project, spec.cascade = "used", true
	hubApp := w.hub.app("managed", "uses")
	hubApp.create(t, spec.object())
	hubApp.becomes(t, synced, healthyApp)

	w.hub.project("used").delete(t)
	hubApp.becomes(t, shows("AgentError", `AppProject "used" does not exist`))
	hubApp.edit(t, func(u *unstructured.Unstructured) { setLabel(u, "seen", "true") })
	hubApp.delete(t) // with its resources, which must wait as well
	hubApp.becomes(t, shows("AgentError", "remove its finalizer"))
	spoke.project("used").is(t)
	spoke.app(lab.ArgoCDNamespace, "uses").is(t, label("seen", ""))
	spoke.object(deployments, "used", "guestbook").is(t)

	w.hub.project("used").create(t, projectOf("managed"))
	hubApp.goes(t)
	spoke.object(deployments, "used", "guestbook").goes(t)
	w.hub.project("used").delete(t)
	spoke.project("used").goes(t)
}

func TestRepositories_FollowTheirProject(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	w.hub.project("repos").create(t, projectOf("managed"))
	w.hub.secret("repo-one").create(t, secretOf("repository", map[string]string{
		"project": "repos", "type": "git", "url": "https://git.example/one", "password": "secret"}))
	w.hub.secret("creds-one").create(t, secretOf("repo-creds", map[string]string{
		"project": "repos", "type": "git", "url": "https://git.example/", "password": "secret"}))
	w.hub.secret("repo-unscoped").create(t, secretOf("repository", map[string]string{"type": "git", "url": "https://git.example/two"}))

	password := base64.StdEncoding.EncodeToString([]byte("secret"))
	spoke.secret("repo-one").becomes(t, field("data.password", password), label(secretTyp, "repository"))
	spoke.secret("creds-one").becomes(t, field("data.password", password), label(secretTyp, "repo-creds"))
	spoke.secret("repo-unscoped").isAbsent(t)

	renewed := base64.StdEncoding.EncodeToString([]byte("renewed"))
	w.hub.secret("repo-one").edit(t, func(u *unstructured.Unstructured) { set(u, "data.password", renewed) })
	spoke.secret("repo-one").becomes(t, field("data.password", renewed))

	w.hub.project("repos").edit(t, func(u *unstructured.Unstructured) {
		set(u, "spec.destinations", []any{map[string]any{"name": "elsewhere", "namespace": "*", "server": ""}})
	})
	spoke.secret("repo-one").goes(t)
	spoke.secret("creds-one").goes(t)
	spoke.project("repos").goes(t)
}

func TestPrivateRepository_UsesCredentialsOfHub(t *testing.T) {
	w := shared(t)
	w.hub.project("private").create(t, projectOf("managed"))
	w.hub.secret("private-repo").create(t, secretOf("repository", map[string]string{
		"project": "private", "type": "git", "url": w.RepoURL("private"), "username": w.Git.Username, "password": w.Git.Password, "insecure": "true"}))
	spec := w.plain("managed", "private")
	spec.repo, spec.project = w.RepoURL("private"), "private"
	hubApp := w.hub.app("managed", "private")
	hubApp.create(t, spec.object())
	hubApp.becomes(t, synced, healthyApp)
}

func TestRepositories_LateCredentialsTriggerRefresh(t *testing.T) {
	w := shared(t)
	w.hub.project("late").create(t, projectOf("managed"))
	spec := w.plain("managed", "late")
	spec.repo, spec.project = w.RepoURL("private"), "late"
	hubApp := w.hub.app("managed", "late")
	hubApp.create(t, spec.object())
	hubApp.becomes(t, shows("ComparisonError", ""))
	w.hub.secret("late-repo").create(t, secretOf("repository", map[string]string{
		"project": "late", "type": "git", "url": w.RepoURL("private"), "username": w.Git.Username, "password": w.Git.Password, "insecure": "true"}))
	hubApp.becomes(t, synced, healthyApp)
}

func TestGPGKeys_AreReplicated(t *testing.T) {
	w := shared(t)
	hubKeys, spokeKeys := w.hub.configMap("argocd-gpg-keys-cm"), w.managed().spoke.configMap("argocd-gpg-keys-cm")
	hubKeys.patch(t, `{"data":{"AAAA":"one"}}`)
	t.Cleanup(func() { hubKeys.patch(t, `{"data":null}`) })
	spokeKeys.becomes(t, field("data.AAAA", "one"))
	spokeKeys.patch(t, `{"data":{"AAAA":"forged","BBBB":"mine"}}`)
	spokeKeys.becomes(t, field("data.AAAA", "one"), field("data.BBBB", ""))
	hubKeys.patch(t, `{"data":{"AAAA":null,"CCCC":"three"}}`)
	spokeKeys.becomes(t, field("data.AAAA", ""), field("data.CCCC", "three"))
	if keys := w.autonomous().spoke.configMap("argocd-gpg-keys-cm").get(t); keys != nil && at(keys, "data.CCCC") != "" {
		t.Error("a key of the hub came to an autonomous spoke")
	}
}

func TestAdoption_FollowsPolicy(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	local := w.plain("in-cluster", "adopted")
	local.automated = false
	for _, name := range []string{"adopted", "left-alone"} {
		local.labels = map[string]string{"made": "here"}
		spoke.app(lab.ArgoCDNamespace, name).create(t, local.object())
	}

	spec := w.plain("managed", "adopted")
	spec.labels = map[string]string{"made": "there"}
	hubApp := w.hub.app("managed", "adopted")
	hubApp.create(t, spec.object())
	spoke.app(lab.ArgoCDNamespace, "adopted").becomes(t, label("made", "there"))
	hubApp.becomes(t, synced, healthyApp)

	spec.annotations = map[string]string{adoption: "never"}
	refused := w.hub.app("managed", "left-alone")
	refused.create(t, spec.object())
	refused.becomes(t, shows("AgentError", "adoption policy"), field("status.health.status", "Degraded"))
	spoke.app(lab.ArgoCDNamespace, "left-alone").is(t, label("made", "here"), annotation(sourceUID, ""))

	refused.edit(t, func(u *unstructured.Unstructured) { setAnnotation(u, adoption, "always") })
	spoke.app(lab.ArgoCDNamespace, "left-alone").becomes(t, label("made", "there"))
	refused.becomes(t, showsNo("AgentError"), synced, healthyApp)

	refused.edit(t, func(u *unstructured.Unstructured) { setLabel(u, ignore, "true") }) // it leaves the scope and is released
	spoke.app(lab.ArgoCDNamespace, "left-alone").becomes(t, annotation(sourceUID, ""))
	hubApp.delete(t) // a user asks for it
	spoke.app(lab.ArgoCDNamespace, "adopted").goes(t)
}

func TestManagedProject_InheritsGlobalProjects(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	global := projectOf("nowhere")
	global["spec"].(map[string]any)["namespaceResourceBlacklist"] = []any{map[string]any{"group": "", "kind": "ConfigMap"}}
	w.hub.project("global").create(t, global)
	spec := projectOf("managed")
	spec["metadata"] = map[string]any{"labels": map[string]any{"inherits": "yes"}}
	w.hub.project("heir").create(t, spec)
	w.hub.project("no-heir").create(t, projectOf("managed"))
	denies := func(kind string) condition {
		return func(u *unstructured.Unstructured) error {
			list, _, _ := unstructured.NestedSlice(u.Object, "spec", "namespaceResourceBlacklist")
			if len(list) != 1 || list[0].(map[string]any)["kind"] != kind {
				return fmt.Errorf("it denies %v", list)
			}
			return nil
		}
	}

	settings := w.hub.configMap("argocd-cm")
	settings.patch(t, `{"data":{"globalProjects":"- projectName: global\n  labelSelector:\n    matchLabels: {inherits: \"yes\"}\n"}}`)
	t.Cleanup(func() { settings.patch(t, `{"data":{"globalProjects":null}}`) })
	spoke.project("heir").becomes(t, denies("ConfigMap"))
	if err := denies("ConfigMap")(spoke.project("no-heir").becomes(t)); err == nil {
		t.Error("a project inherits that is not labelled so")
	}

	app := w.hub.app("managed", "heir")
	application := w.plain("managed", "heir")
	application.project, application.automated = "heir", false
	app.create(t, application.object())
	app.becomes(t, outOfSync)
	if out, err := w.tryArgocd(t, "app", "sync", "managed/heir"); err == nil || !strings.Contains(out, "not permitted") {
		t.Errorf("a sync of what the global project denies: %v, %s", err, out)
	}
	spoke.object(configMaps, "heir", "guestbook").isAbsent(t)

	w.hub.project("global").edit(t, func(u *unstructured.Unstructured) {
		set(u, "spec.namespaceResourceBlacklist", []any{map[string]any{"group": "", "kind": "LimitRange"}})
	})
	spoke.project("heir").becomes(t, denies("LimitRange"))
	w.argocd(t, "app", "sync", "managed/heir")
	spoke.object(configMaps, "heir", "guestbook").is(t)
}
