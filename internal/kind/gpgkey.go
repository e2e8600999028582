package kind

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// GPGKeyKind is the scope of Argo CD's trust settings: the ConfigMap of GPG keys and, if enabled, those of TLS
// certificates and SSH host keys. Only their data is replicated: every Argo CD has these ConfigMaps, and their labels
// belong to the installer.
type GPGKeyKind struct{}

// GPGKeyScope is the kind's name on the wire.
const GPGKeyScope = "gpgkey"

const gpgKeys = "argocd-gpg-keys-cm"

// isTrust reports whether a ConfigMap has trust settings.
func isTrust(name string) bool {
	return name == gpgKeys || name == "argocd-tls-certs-cm" || name == "argocd-ssh-known-hosts-cm"
}

func (GPGKeyKind) Scope() string { return GPGKeyScope }

func (GPGKeyKind) Resource() Resource { return ConfigMaps }

func (GPGKeyKind) Traits() Traits {
	return Traits{Name: "gpgkeys", ManagedOnly: true, NoBudget: true}
}

func (GPGKeyKind) Matches(o *Object) bool {
	return isTrust(o.Name())
}

func (g GPGKeyKind) Publish(o *Object, w *Env) (Item, bool) {
	if w.Side != Hub || w.Agent.Mode != Managed || !g.Matches(o) || o.Name() != gpgKeys && !w.Settings.SyncRepositoryTrust ||
		!selected(o, w) || o.Namespace() != w.HubArgoNamespace || o.IsDeleting() {
		return Item{}, false
	}
	content := trustPayload(o, PublishedUID(o, w)).content()
	return Item{Key: engine.Key{Name: o.Name()}, Content: content}, content != nil
}

var trustFields = []string{"binaryData", "data"}

func trustPayload(o *Object, uid string) *payload {
	p := &payload{uid: uid}
	for _, field := range trustFields {
		if v := o.Get(field); isObject(v) && !isEmpty(v) {
			p.body.Set(field, v)
		}
	}
	return p
}

// ReadReplica implements Kind. The hub decides what it shares, so the spoke ignores its own settings here.
func (g GPGKeyKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	if w.Side != Spoke || w.Agent.Mode != Managed || !g.Matches(o) || ignored(o) || o.Namespace() != w.SpokeArgoNamespace {
		return ReplicaItem{}, false
	}
	ownership := ReadOwnership(o, w)
	return ReplicaItem{Key: engine.Key{Name: o.Name()}, Content: trustPayload(o, ownership.Source).content(), Ownership: ownership}, true
}

func (g GPGKeyKind) Key(o *Object, w *Env) (engine.Key, bool) {
	k, ok := managedKey(o, w)
	return k, ok && g.Matches(o)
}

func (g GPGKeyKind) Target(k engine.Key, w *Env) (Ref, error) {
	return configMapTarget(k, isTrust(k.Name), w)
}

// configMapTarget returns the ConfigMap of a key, if the hub may write it.
func configMapTarget(k engine.Key, permitted bool, w *Env) (Ref, error) {
	ref, err := managedTarget(k, ConfigMaps, w)
	if err == nil && !permitted {
		return Ref{}, reject(engine.NotAllowed, "ConfigMap %s is not one that the hub may write", k.Name)
	}
	return ref, err
}

// setArgoLabels sets the labels by which Argo CD finds its ConfigMaps.
func setArgoLabels(d *draft, name string) {
	var labels rawjson.Object
	labels.Set("app.kubernetes.io/name", rawjson.Quote(name))
	labels.Set("app.kubernetes.io/part-of", rawjson.Quote("argocd"))
	setList(&d.meta, "labels", labels)
}

func (g GPGKeyKind) Merge(local *Object, k engine.Key, content, _ []byte, ownership Ownership, w *Env) (*Object, error) {
	ref, p, err := readItem(g, "ConfigMaps", k, content, w)
	if err != nil {
		return nil, err
	}
	for _, field := range trustFields {
		if !isStringMap(p.body.Get(field)) {
			return nil, reject(engine.Invalid, "%s of %s is not text", field, k)
		}
	}
	d := createOrEdit(local, ref)
	var annotations rawjson.Object
	switch {
	case local == nil:
		setArgoLabels(d, ref.Name)
	case ignored(local):
		return nil, errIgnored(k.String())
	default:
		annotations = members(local.annotations)
	}
	ownership.Source = p.uid
	writeOwnership(&annotations, ownership, "", w)
	setList(&d.meta, "annotations", annotations)
	for _, field := range trustFields {
		setOrRemove(&d.top, field, p.body.Get(field))
	}
	return d.done()
}

// Release implements Remover. All GPG keys in an adopted ConfigMap came from the hub. They go, because Argo CD would
// still trust them. Certificates and host keys stay: without them Argo CD cannot reach its repositories.
func (GPGKeyKind) Release(o *Object, _ *Env) *Object {
	released := release(o)
	if o.Name() != gpgKeys {
		return released
	}
	return released.changed(func(d *draft) {
		for _, field := range trustFields {
			setOrRemove(&d.top, field, nil)
		}
	})
}

func (GPGKeyKind) Keeps(o *Object) bool { return o.Annotation(AdoptedAnnotation) == "true" }
