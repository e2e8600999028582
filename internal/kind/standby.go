package kind

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file has the kinds with which a standby hub receives the objects of the active hub. The active hub publishes each
// object as it must look on the standby: labels, annotations, finalizers and all fields outside of the metadata. Owner
// references are left out, because the UIDs of owners differ.
//
// Whose object. A standby writes and deletes only objects that have its annotation with the identity of both hubs, and
// these:
//
//   - The original: the standby was active before, and the active hub made its object from this one. The UID in the content
//     is that of the original.
//   - An object that the active hub is known to have received from this cluster: see Env.Received.
//   - An object of the installation that both hubs have from the start (installed), or with the same fields.
//
// Every other object of the same name is refused.
//
// Commands. An operation is published with its command ID only, so that the agent recognizes a command that it has
// executed.

// Agents is the resource of agents' registrations on a hub.
var Agents = Resource{"argocd-agent.argoproj-labs.io", "v1alpha1", "agents", "Agent"}

// HasStatus reports whether the status of the resource's objects has to be written by itself.
func (r Resource) HasStatus() bool { return r == Agents }

// StandbyAnnotation records on a standby what an object was written from.
const StandbyAnnotation = Prefix + "standby"

// PreservedAnnotations returns the annotations of Applications of a promoted hub that other controllers must not remove. Without
// them, agents take an Application for another one, and the former hub takes it for an object of its own.
func PreservedAnnotations() []string { return []string{StandbyAnnotation, SourceUID, PrincipalUID} }

// Names that other packages define. They must not be imported here.
const (
	caSecret       = "argocd-agent-ca"
	blocklist      = "argocd-agent-tls-blocklist"
	blocklistLabel = Prefix + "tls-blocklist"
	joinLabel      = Prefix + "join"
)

// StandbyKind is the scope of a resource of which a standby receives objects.
type StandbyKind struct {
	resource Resource
	matches  func(*Object) bool
}

// StandbyKinds returns the kinds between an active hub and its standby. They are not in All: a Reconciler has either those of
// agents or these.
func StandbyKinds() []Kind {
	return []Kind{
		StandbyKind{resource: ConfigMaps, matches: isStandbyConfigMap},
		StandbyKind{resource: Secrets, matches: isStandbySecret},
		StandbyKind{resource: AppProjects, matches: func(*Object) bool { return true }},
		StandbyKind{resource: Agents, matches: func(o *Object) bool { return rawjson.Text(o.Get("spec", "mode")) != string(Standby) }},
		StandbyKind{resource: Applications, matches: func(*Object) bool { return true }},
	}
}

// isStandbyConfigMap reports whether a standby needs a ConfigMap: trust settings, and revoked certificates.
func isStandbyConfigMap(o *Object) bool {
	return isTrust(o.Name()) || o.Name() == blocklist || o.Label(blocklistLabel) != "" && strings.HasPrefix(o.Name(), blocklist+"-")
}

// isStandbySecret reports whether a standby needs a Secret: repositories, credentials and clusters of Argo CD, the CA, and
// join tokens. Keys and passwords of a hub itself stay there.
func isStandbySecret(o *Object) bool {
	return o.Label(secretType) != "" || o.Label(joinLabel) != "" || o.Name() == caSecret
}

func (k StandbyKind) Scope() string { return "standby-" + k.resource.Plural }

func (k StandbyKind) Resource() Resource { return k.resource }

func (k StandbyKind) Traits() Traits {
	return Traits{Name: "standby", Owner: func(Mode) Side { return Hub }, StandbyOnly: true, Announced: true, AnyNamespace: k.resource == Applications,
		Credentials: k.resource == Secrets}
}

func (k StandbyKind) Matches(o *Object) bool { return k.matches(o) }

func (k StandbyKind) Key(o *Object, w *Env) (engine.Key, bool) {
	return engine.Key{Namespace: o.Namespace(), Name: o.Name()}, k.allows(o.Namespace(), w)
}

// allows reports whether objects of a namespace are copied. Both hubs have Argo CD in the same namespace.
func (k StandbyKind) allows(namespace string, w *Env) bool {
	argo := w.HubArgoNamespace
	if w.Side == Spoke {
		argo = w.SpokeArgoNamespace
	}
	return namespace != "" && (k.resource == Applications || namespace == argo || k.resource == Secrets && namespace == w.PKINamespace)
}

func (k StandbyKind) Target(key engine.Key, w *Env) (Ref, error) {
	if err := checkKey(key); err != nil {
		return Ref{}, err
	}
	if !k.allows(key.Namespace, w) {
		return Ref{}, reject(engine.NotAllowed, "%s of namespace %q are not copied to a standby", k.resource.Plural, key.Namespace)
	}
	return Ref{k.resource, key.Namespace, key.Name}, nil
}

func (k StandbyKind) Publish(o *Object, w *Env) (Item, bool) {
	key, ok := k.Key(o, w)
	if !ok || w.Side != Hub || w.Agent.Mode != Standby || !k.Matches(o) {
		return Item{}, false
	}
	return k.payload(o, w).item(key, engine.Key{}), true
}

// payload returns an object as both hubs must have it.
func (k StandbyKind) payload(o *Object, w *Env) *payload {
	p := &payload{uid: SourceOf(o, w), labels: members(o.labels), finalizers: o.Finalizers(), deleting: o.IsDeleting()}
	p.annotations = without(members(o.annotations), func(key string) bool { return key == StandbyAnnotation || key == Confirmation })
	if o.Annotation(PrincipalUID) == "" {
		p.annotations.Set(SourceUID, rawjson.Quote(p.uid))
		p.annotations.Set(PrincipalUID, rawjson.Quote(w.PrincipalUID))
	}
	p.body, _ = rawjson.Split(o.raw)
	p.body = without(p.body, isOutsideOfBody)
	switch k.resource {
	case Applications:
		if operation := p.body.Get("operation"); isObject(operation) && infoValue(operation, CommandInfo) == "" && !isMirror(operation) {
			p.body.Remove("operation")
		}
	case Agents:
		if w.Side == Spoke {
			break // a standby must not show the rest, such as whether the agent is connected
		}
		setList(&p.body, "status", without(members(p.body.Get("status")), func(key string) bool { return key != "clusterUID" && key != "store" }))
	}
	return p
}

func isOutsideOfBody(key string) bool {
	return key == "apiVersion" || key == "kind" || key == "metadata" || key == "uid" || key == "deleting"
}

// SourceOf returns the UID that names an object on all hubs of a group: that of the first object, from which the others were
// made. A replica of an agent's object is named by the UID of that one.
func SourceOf(o *Object, w *Env) string {
	if uid := o.Annotation(SourceUID); w.PrincipalUID != "" && o.Annotation(PrincipalUID) == w.PrincipalUID && validUID(uid) {
		return uid
	}
	return o.UID()
}

func (k StandbyKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	key, ok := k.Key(o, w)
	if !ok || w.Side != Spoke || !k.Matches(o) {
		return ReplicaItem{}, false
	}
	return ReplicaItem{Key: key, Content: k.payload(o, w).content(), Ownership: ReadOwnership(o, w)}, true
}

func (k StandbyKind) Merge(local *Object, key engine.Key, content, _ []byte, ownership Ownership, w *Env) (*Object, error) {
	if w.Side != Spoke || w.Agent.Mode != Standby {
		return nil, errNotOwner(k.resource.Plural, w)
	}
	ref, err := k.Target(key, w)
	if err != nil {
		return nil, err
	}
	p, err := readPayload(content)
	if err == nil {
		err = checkSent(p)
	}
	if err != nil {
		return nil, err
	}
	d := createOrEdit(local, ref)
	finalizers := p.finalizers
	if local != nil && local.IsDeleting() { // the API server accepts no further ones
		before := local.Finalizers()
		finalizers = slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return !slices.Contains(before, f) })
	}
	annotations := without(slices.Clone(p.annotations), func(key string) bool { return key == StandbyAnnotation || key == Confirmation })
	ownership.Source = p.uid
	annotations.Set(StandbyAnnotation, rawjson.Quote(formatStandby(ownership, w)))
	setList(&d.meta, "labels", p.labels)
	setList(&d.meta, "annotations", annotations)
	setStrings(&d.meta, "finalizers", finalizers)
	for _, m := range slices.Clone(d.top) {
		if !isOutsideOfBody(m.Key) && p.body.Get(m.Key) == nil {
			d.top.Remove(m.Key)
		}
	}
	for _, m := range p.body {
		if isOutsideOfBody(m.Key) {
			return nil, reject(engine.Invalid, "%s must not set %q", key, m.Key)
		}
		d.top.Set(m.Key, m.Value)
	}
	merged, err := d.done()
	if err != nil {
		return nil, reject(engine.Invalid, "%s: %v", key, err)
	}
	if !k.Matches(merged) {
		return nil, reject(engine.NotAllowed, "%s is not a %s that a standby receives", key, k.resource.Kind)
	}
	return merged, nil
}

// Release implements Remover.
func (StandbyKind) Release(o *Object, _ *Env) *Object { return o.withAnnotation(StandbyAnnotation, "") }

// ClaimOnStandby returns an object with the standby's annotation. The removal of an object may need several writes, after which
// its resourceVersion no longer proves that the active hub has received it.
func ClaimOnStandby(o *Object, w *Env) *Object {
	if o.Annotation(StandbyAnnotation) != "" {
		return o
	}
	return o.withAnnotation(StandbyAnnotation, formatStandby(Ownership{Source: SourceOf(o, w)}, w))
}

// Keeps implements Remover.
func (StandbyKind) Keeps(o *Object) bool { return parseStandby(o).Adopted }

// AdoptsOnStandby returns whether an object of the standby that is not known to be one of the active hub may be replaced by
// content, and whether it existed independently of the active hub.
func AdoptsOnStandby(r Resource, o *Object, content []byte, w *Env) (adopted, ok bool) {
	k := StandbyKind{resource: r}
	wanted, err := readPayload(content)
	if err != nil {
		return false, false
	}
	own := k.payload(o, w)
	switch {
	case own.uid == wanted.uid:
		return false, true // the original
	case o.Annotation(PrincipalUID) != "" && o.Annotation(PrincipalUID) != w.PrincipalUID:
		return false, false // of another group
	case isInstalled(r, o), sameJSON(own.body.Bytes(), wanted.body.Bytes()):
		return true, true
	}
	return false, false
}

// isInstalled reports whether every installation of Argo CD has an object of this name.
func isInstalled(r Resource, o *Object) bool {
	return r == ConfigMaps && isTrust(o.Name()) || r == AppProjects && o.Name() == defaultProject
}

// ReplacesOnStandby reports whether an object has to be deleted and created again to get a content: the API server lets some
// fields of an Agent change only while it is suspended, and a standby may not see that state.
func ReplacesOnStandby(r Resource, o *Object, content []byte) bool {
	if r != Agents {
		return false
	}
	return slices.ContainsFunc([]string{"mode", "namespace", "mapping"}, func(field string) bool {
		return rawjson.Text(o.Get("spec"), field) != rawjson.Text(content, "spec", field)
	})
}

// IsDeletingContent reports whether the object of a content is being deleted on the active hub, and which finalizers it has.
func IsDeletingContent(content []byte) (deleting bool, finalizers []string) {
	p, err := readPayload(content)
	if err != nil {
		return false, nil
	}
	return p.deleting, p.finalizers
}

// formatStandby returns the value of StandbyAnnotation.
func formatStandby(ownership Ownership, w *Env) string {
	var o rawjson.Object
	if ownership.Adopted {
		o.Set("adopted", []byte("true"))
	}
	if ownership.SourceGeneration != 0 {
		o.Set("generation", strconv.AppendUint(nil, ownership.SourceGeneration, 10))
	}
	setText(&o, "hub", w.PrincipalUID)
	if ownership.SourceRevision != 0 {
		o.Set("revision", strconv.AppendUint(nil, ownership.SourceRevision, 10))
	}
	setText(&o, "uid", ownership.Source)
	return string(o.Bytes())
}

// standbyRecord is the value of StandbyAnnotation.
type standbyRecord struct {
	Ownership
	hub string
}

// maxStandby bounds the value of StandbyAnnotation.
const maxStandby = 1 << 10

func parseStandby(o *Object) standbyRecord {
	v := []byte(o.Annotation(StandbyAnnotation))
	if !isObject(v) || rawjson.Check(v, maxStandby) != nil {
		return standbyRecord{}
	}
	r := standbyRecord{hub: rawjson.Text(v, "hub")}
	r.Source, r.Adopted = rawjson.Text(v, "uid"), string(rawjson.Get(v, "adopted")) == "true"
	r.SourceRevision, _ = strconv.ParseUint(string(rawjson.Get(v, "revision")), 10, 64)
	r.SourceGeneration, _ = strconv.ParseUint(string(rawjson.Get(v, "generation")), 10, 64)
	return r
}

// readStandbyOwnership returns the ownership of an object on a standby.
func readStandbyOwnership(o *Object, w *Env) Ownership {
	r := parseStandby(o)
	switch {
	case w.PrincipalUID == "":
	case r.hub == w.PrincipalUID && r.Source != "":
		r.Owned = true
	case r.hub != "":
		r.Foreign = true
	case isReceived(o, w):
		r.Owned, r.Source = true, SourceOf(o, w)
	}
	return r.Ownership
}

// isReceived reports whether the active hub has received an object of this cluster as it is now.
func isReceived(o *Object, w *Env) bool {
	revision, err := strconv.ParseUint(cmp.Or(o.ResourceVersion(), "0"), 10, 64)
	return err == nil && revision > 0 && revision <= w.Received
}
