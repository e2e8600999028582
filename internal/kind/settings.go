package kind

import (
	"maps"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// SettingsKind is the scope of the settings of Argo CD that decide how resources are compared, tracked and built: some keys
// of ConfigMap argocd-cm. The rest of the ConfigMap belongs to the workload cluster, and so does a key that the hub does
// not have. What the cluster had for a key of the hub is recorded on the ConfigMap, and returns when the hub no longer
// sends the key.
type SettingsKind struct{}

// SettingsScope is the kind's name on the wire.
const SettingsScope = "settings"

const (
	argoSettings = "argocd-cm"

	// ReplacedAnnotation records for each key of the hub what the workload cluster had: text, or null if nothing.
	ReplacedAnnotation = Prefix + "replaced-settings"
)

// maxReplaced bounds the record. The API server stores 256 KiB of annotations.
const maxReplaced = 128 << 10

// isSharedSetting reports whether the hub may send a key of argocd-cm.
func isSharedSetting(key string) bool {
	switch key {
	case "resource.customizations", "resource.exclusions", "resource.inclusions", "application.resourceTrackingMethod", "kustomize.buildOptions":
		return true
	}
	return strings.HasPrefix(key, "resource.customizations.") || strings.HasPrefix(key, "kustomize.buildOptions.")
}

func (SettingsKind) Scope() string { return SettingsScope }

func (SettingsKind) Resource() Resource { return ConfigMaps }

func (SettingsKind) Traits() Traits {
	return Traits{Name: "settings", ManagedOnly: true, NoBudget: true, Announced: true,
		Agents: func(_ *Object, w *Env) AgentMatcher { return AgentMatcher{all: w.Settings.SyncArgoSettings} }}
}

func (SettingsKind) Matches(o *Object) bool { return o.Name() == argoSettings }

func (s SettingsKind) Publish(o *Object, w *Env) (Item, bool) {
	if w.Side != Hub || w.Agent.Mode != Managed || !w.Settings.SyncArgoSettings || !s.Matches(o) || ignored(o) ||
		o.Namespace() != w.HubArgoNamespace || o.IsDeleting() {
		return Item{}, false
	}
	data := settingsOf(o)
	maps.DeleteFunc(data, func(key, _ string) bool { return !isSharedSetting(key) })
	if len(data) == 0 {
		return Item{}, false
	}
	return settingsPayload(data, PublishedUID(o, w)).item(engine.Key{Name: o.Name()}, engine.Key{}), true
}

func settingsOf(o *Object) map[string]string {
	data, _ := rawjson.StringMap(o.Get("data"))
	if data == nil {
		data = map[string]string{}
	}
	return data
}

func settingsPayload(data map[string]string, uid string) *payload {
	p := &payload{uid: uid}
	p.body.Set("data", stringMap(data))
	return p
}

func stringMap(data map[string]string) []byte {
	var out rawjson.Object
	for _, key := range slices.Sorted(maps.Keys(data)) {
		out.Set(key, rawjson.Quote(data[key]))
	}
	return out.Bytes()
}

// ReadReplica implements Kind. The item has the keys that came from the hub, as they are now.
func (s SettingsKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	if w.Side != Spoke || w.Agent.Mode != Managed || !s.Matches(o) || ignored(o) || o.Namespace() != w.SpokeArgoNamespace {
		return ReplicaItem{}, false
	}
	ownership := ReadOwnership(o, w)
	replaced, data := readReplaced(o), settingsOf(o)
	maps.DeleteFunc(data, func(key, _ string) bool { return replaced.Get(key) == nil })
	return ReplicaItem{Key: engine.Key{Name: o.Name()}, Content: settingsPayload(data, ownership.Source).content(), Ownership: ownership}, true
}

// readReplaced returns the record of a ConfigMap. A record that is not ours, or invalid, is empty.
func readReplaced(o *Object) rawjson.Object {
	text := []byte(o.Annotation(ReplacedAnnotation))
	if len(text) == 0 || rawjson.Check(text, maxReplaced) != nil || !isObject(text) {
		return nil
	}
	return without(members(text), func(key string) bool { return !isSharedSetting(key) })
}

func (s SettingsKind) Key(o *Object, w *Env) (engine.Key, bool) {
	k, ok := managedKey(o, w)
	return k, ok && s.Matches(o)
}

func (s SettingsKind) Target(k engine.Key, w *Env) (Ref, error) {
	return configMapTarget(k, k.Name == argoSettings, w)
}

func (s SettingsKind) Merge(local *Object, k engine.Key, content, _ []byte, ownership Ownership, w *Env) (*Object, error) {
	ref, p, err := readItem(s, "ConfigMaps", k, content, w)
	if err != nil {
		return nil, err
	}
	wanted, ok := rawjson.StringMap(p.body.Get("data"))
	if !ok {
		return nil, reject(engine.Invalid, "data of %s is not text", k)
	}
	for key := range wanted {
		if !isSharedSetting(key) {
			return nil, reject(engine.NotAllowed, "the hub may not set %s of ConfigMap %s", key, k.Name)
		}
	}
	d := createOrEdit(local, ref)
	var annotations, replaced rawjson.Object
	data := map[string]string{}
	switch {
	case local == nil:
		setArgoLabels(d, ref.Name)
	case ignored(local):
		return nil, errIgnored(k.String())
	default:
		annotations, data = members(local.annotations), settingsOf(local)
		if ReadOwnership(local, w).Owned {
			replaced = readReplaced(local)
		}
	}
	data, replaced = replaceSettings(data, replaced, wanted)
	record := string(replaced.Bytes())
	if len(record) > maxReplaced {
		return nil, reject(engine.TooLarge, "what ConfigMap %s has for the settings of the hub needs %d bytes, more than %d", k.Name, len(record), maxReplaced)
	}
	ownership.Source = p.uid
	writeOwnership(&annotations, ownership, "", w)
	setText(&annotations, ReplacedAnnotation, record)
	setList(&d.meta, "annotations", annotations)
	setOrRemove(&d.top, "data", stringMap(data))
	return d.done()
}

// replaceSettings returns data with the wanted keys, and the new record. Keys of the record that are no longer wanted return
// to what the workload cluster had.
func replaceSettings(data map[string]string, replaced rawjson.Object, wanted map[string]string) (map[string]string, rawjson.Object) {
	restoreSettings(data, without(slices.Clone(replaced), func(key string) bool { _, ok := wanted[key]; return ok }))
	var record rawjson.Object
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		before := replaced.Get(key)
		if before == nil {
			before = []byte("null")
			if own, ok := data[key]; ok {
				before = rawjson.Quote(own)
			}
		}
		record.Set(key, before)
		data[key] = wanted[key]
	}
	return data, record
}

// restoreSettings returns keys to what a record says.
func restoreSettings(data map[string]string, replaced rawjson.Object) {
	for _, m := range replaced {
		if own, ok := rawjson.String(m.Value); ok {
			data[m.Key] = own
		} else {
			delete(data, m.Key)
		}
	}
}

// Release implements Remover: the workload cluster has its own values again.
func (SettingsKind) Release(o *Object, _ *Env) *Object {
	data := settingsOf(o)
	restoreSettings(data, readReplaced(o))
	return release(o).changed(func(d *draft) { setOrRemove(&d.top, "data", stringMap(data)) })
}

func (SettingsKind) Keeps(o *Object) bool { return o.Annotation(AdoptedAnnotation) == "true" }
