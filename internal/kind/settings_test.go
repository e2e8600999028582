package kind

import (
	"bytes"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

const settingsAnnotations = `"argocd.argoproj.io/source-uid":"u","argocd.argoproj.io/principal-uid":"hub-1","argocd-agent.argoproj-labs.io/adopted":"true"`

func hubSettings(t *testing.T, data string) Item {
	t.Helper()
	hub := managedHub()
	hub.Settings.SyncArgoSettings = true
	item, _ := SettingsKind{}.Publish(object(t, `{"metadata":{"name":"argocd-cm","namespace":"argocd","uid":"u"},"data":`+data+`}`), hub)
	return item
}

func TestSettings_PublishesOnlySharedKeys(t *testing.T) {
	item := hubSettings(t, `{"url":"https://hub","resource.exclusions":"e","resource.customizations.health.x":"h","admin.enabled":"true","kustomize.buildOptions":"-x"}`)
	expectJSON(t, "content", item.Content, `{"uid":"u","data":{"resource.exclusions":"e","resource.customizations.health.x":"h","kustomize.buildOptions":"-x"}}`)
	for name, o := range map[string]*Object{
		"no shared key":     object(t, `{"metadata":{"name":"argocd-cm","namespace":"argocd","uid":"u"},"data":{"url":"x"}}`),
		"another ConfigMap": object(t, `{"metadata":{"name":"argocd-rbac-cm","namespace":"argocd","uid":"u"},"data":{"resource.exclusions":"e"}}`),
		"another namespace": object(t, `{"metadata":{"name":"argocd-cm","namespace":"other","uid":"u"},"data":{"resource.exclusions":"e"}}`),
		"deleting":          object(t, `{"metadata":{"name":"argocd-cm","namespace":"argocd","uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z"},"data":{"resource.exclusions":"e"}}`),
	} {
		hub := managedHub()
		hub.Settings.SyncArgoSettings = true
		if _, ok := (SettingsKind{}).Publish(o, hub); ok {
			t.Errorf("%s is published", name)
		}
	}
	if _, ok := (SettingsKind{}).Publish(object(t, `{"metadata":{"name":"argocd-cm","namespace":"argocd","uid":"u"},"data":{"resource.exclusions":"e"}}`), managedHub()); ok {
		t.Error("published although the setting is off")
	}
}

// The workload cluster keeps its own keys. What the hub replaced returns when the hub no longer sends it.
func TestSettings_ReplaceAndRestore(t *testing.T) {
	own := object(t, `{"metadata":{"name":"argocd-cm","namespace":"argo"},"data":{"url":"https://spoke","resource.exclusions":"own","resource.inclusions":"mine"}}`)
	both := hubSettings(t, `{"resource.exclusions":"hub","kustomize.buildOptions":"-x"}`)
	merged := mergeSettings(t, own, both)
	expectJSON(t, "merged", merged.Raw(), `{"metadata":{"name":"argocd-cm","namespace":"argo","annotations":{`+settingsAnnotations+`,
		"argocd-agent.argoproj-labs.io/replaced-settings":"{\"kustomize.buildOptions\":null,\"resource.exclusions\":\"own\"}"}},
		"data":{"url":"https://spoke","resource.exclusions":"hub","resource.inclusions":"mine","kustomize.buildOptions":"-x"}}`)
	held, _ := SettingsKind{}.ReadReplica(merged, managedSpoke())
	expectJSON(t, "read", held.Content, string(both.Content))

	again := mergeSettings(t, merged, both)
	expectJSON(t, "merged again", again.Raw(), string(merged.Raw()))

	one := hubSettings(t, `{"kustomize.buildOptions":"-y"}`)
	less := mergeSettings(t, merged, one)
	expectJSON(t, "fewer keys", less.Get("data"), `{"url":"https://spoke","resource.exclusions":"own","resource.inclusions":"mine","kustomize.buildOptions":"-y"}`)

	released := SettingsKind{}.Release(less, managedSpoke())
	expectJSON(t, "released", released.Raw(), string(own.Raw()))
	if !(SettingsKind{}).Keeps(merged) {
		t.Error("argocd-cm would be deleted")
	}
}

// A user of the workload cluster changes or removes a key of the hub: the item differs, and the hub's value returns.
func TestSettings_LocalChangeIsSeen(t *testing.T) {
	item := hubSettings(t, `{"resource.exclusions":"hub"}`)
	merged := mergeSettings(t, object(t, `{"metadata":{"name":"argocd-cm","namespace":"argo"},"data":{"a":"b"}}`), item)
	for name, data := range map[string]string{"changed": `{"a":"b","resource.exclusions":"local"}`, "removed": `{"a":"b"}`} {
		changed := merged.changed(func(d *draft) { d.top.Set("data", []byte(data)) })
		held, ok := SettingsKind{}.ReadReplica(changed, managedSpoke())
		if !ok || bytes.Equal(held.Content, item.Content) {
			t.Errorf("%s: the difference is not seen", name)
		}
		expectJSON(t, name, mergeSettings(t, changed, item).Raw(), string(merged.Raw()))
	}
	held, _ := SettingsKind{}.ReadReplica(merged.changed(func(d *draft) { d.top.Set("data", []byte(`{"a":"c","resource.exclusions":"hub"}`)) }), managedSpoke())
	expectJSON(t, "another key", held.Content, string(item.Content))
}

func mergeSettings(t *testing.T, local *Object, item Item) *Object {
	t.Helper()
	merged, err := SettingsKind{}.Merge(local, item.Key, item.Content, nil, Ownership{Adopted: true}, managedSpoke())
	if err != nil {
		t.Fatal(err)
	}
	return merged
}

func TestSettings_RejectsWhatTheHubMayNotSet(t *testing.T) {
	own := object(t, `{"metadata":{"name":"argocd-cm","namespace":"argo"},"data":{"resource.exclusions":"`+strings.Repeat("x", maxReplaced)+`"}}`)
	for name, c := range map[string]struct {
		key     string
		content string
		want    engine.Code
	}{
		"another key":       {"argocd-cm", `{"uid":"u","data":{"accounts.admin":"apiKey"}}`, engine.NotAllowed},
		"another ConfigMap": {"argocd-rbac-cm", `{"uid":"u","data":{"resource.exclusions":"e"}}`, engine.NotAllowed},
		"not text":          {"argocd-cm", `{"uid":"u","data":{"resource.exclusions":1}}`, engine.Invalid},
		"no data":           {"argocd-cm", `{"uid":"u"}`, engine.Invalid},
		"large record":      {"argocd-cm", `{"uid":"u","data":{"resource.exclusions":"e"}}`, engine.TooLarge},
	} {
		_, err := SettingsKind{}.Merge(own, named(c.key), []byte(c.content), nil, Ownership{}, managedSpoke())
		expectRejected(t, name, err, c.want)
	}
	if _, err := (SettingsKind{}).Target(named("argocd-cm"), autoSpoke()); err == nil {
		t.Error("an autonomous agent accepts settings")
	}
}
