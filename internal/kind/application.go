package kind

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// ApplicationKind is the scope of Applications. In managed mode the hub publishes, and the spoke's replica is equal
// apart from what its controller adds. In autonomous mode the spoke publishes. The hub's replica belongs to the spoke,
// but users may add labels and annotations there.
//
// Status and operation are not part of it: see StatusKind and CommandKind.
type ApplicationKind struct{}

// ApplicationScope is the kind's name on the wire.
const ApplicationScope = "application"

func (ApplicationKind) Scope() string { return ApplicationScope }

func (ApplicationKind) Resource() Resource { return Applications }

func (ApplicationKind) Traits() Traits {
	return Traits{Name: "applications", AnyNamespace: true, DependsOn: AppProjectScope}
}

func (ApplicationKind) Matches(*Object) bool { return true }

// owner reports whether the Env's side owns the configuration.
func owner(w *Env) bool { return (w.Side == Hub) == (w.Agent.Mode == Managed) }

// Publish implements Kind. A terminating Application is published as such if its resources are deleted too. Otherwise
// it is not published. A frozen one is published without content, see Place.
func (ApplicationKind) Publish(o *Object, w *Env) (Item, bool) {
	if !owner(w) || !selected(o, w) || w.Side == Hub && IsChildReplica(o) || o.IsDeleting() && !HasCascade(o) {
		return Item{}, false
	}
	k, ok := localKey(o, w)
	if w.Side == Hub {
		var placement Placement
		if k, placement, _ = Place(o, w); placement == Frozen {
			content := FrozenContent(o, w)
			return Item{Key: k, Content: content}, content != nil
		}
		ok = placement == Placed
	}
	if !ok {
		return Item{}, false
	}
	p := &payload{uid: PublishedUID(o, w)}
	p.metadata(o, false, w)
	spec := members(o.Get("spec"))
	normalizeSpec(&spec)
	project := rawjson.Text(spec.Get("project"))
	destination := members(spec.Get("destination"))
	destination.Remove("server")
	if w.Agent.Mode == Managed {
		p.finalizers = cascadeOf(o.Finalizers())
		p.deleting = o.IsDeleting()
		destination.Set("name", rawjson.Quote(inClusterName))
	} else {
		// The hub's replica has no finalizer, because nothing there would remove it. It is deleted with the spoke's
		// Application.
		spec.Set("project", rawjson.Quote(ProjectName(w.Agent.Name, project)))
		destination.Set("name", rawjson.Quote(w.Agent.Name))
	}
	spec.Set("destination", destination.Bytes())
	p.body.Set("spec", spec.Bytes())
	item := p.item(k, engine.Key{Name: project})
	if w.Side == Spoke {
		item.Extra = replicaOf(o, w)
	}
	if item.Unsendable != "" && p.deleting {
		p.body = nil // a deletion does not need the spec
		item = p.item(k, engine.Key{})
	}
	return item, true
}

func (ApplicationKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	if owner(w) || ignored(o) {
		return ReplicaItem{}, false
	}
	k, ok := localKey(o, w)
	if !ok {
		return ReplicaItem{}, false
	}
	ownership := ReadOwnership(o, w)
	p := &payload{uid: ownership.Source}
	p.metadata(o, w.Side == Hub, w)
	if w.Side == Spoke {
		p.finalizers = cascadeOf(o.Finalizers())
		p.deleting = o.IsDeleting() && len(p.finalizers) > 0
	}
	p.body.Set("spec", projectedSpec(o))
	return ReplicaItem{Key: k, Content: p.content(), Ownership: ownership}, true
}

// projectedSpec returns a replica's spec in the hashed form.
func projectedSpec(o *Object) []byte {
	spec := members(o.Get("spec"))
	normalizeSpec(&spec)
	return spec.Bytes()
}

func (ApplicationKind) Key(o *Object, w *Env) (engine.Key, bool) { return localKey(o, w) }

func (ApplicationKind) Target(k engine.Key, w *Env) (Ref, error) { return localRef(k, w) }

func (a ApplicationKind) Merge(local *Object, k engine.Key, content, extra []byte, ownership Ownership, w *Env) (*Object, error) {
	ref, p, err := readItem(a, "Applications", k, content, w)
	if err != nil {
		return nil, err
	}
	if err := checkSent(p); err != nil {
		return nil, err
	}
	spec := p.body.Get("spec")
	if err := checkSpec(spec, w); err != nil {
		return nil, err
	}
	handedOver := isHandedOver(local, extra, w) || isFormerCopy(local, p, w)
	if err := mergeable(local, handedOver, k, p, w); err != nil {
		return nil, err
	}
	if handedOver {
		local, _ = StripArgoFinalizers(local) // nothing on the hub would remove them
	}
	d := createOrEdit(local, ref)
	p.apply(d, local, w.Side == Hub, ownership, sourceName(k), w)
	if w.Side == Spoke {
		mergeFinalizers(d, local, p.finalizers)
	}
	// Equivalent forms stay as they are written.
	if local == nil || !sameJSON(projectedSpec(local), spec) {
		d.top.Set("spec", spec)
	}
	return d.done()
}

// errNotOwner rejects a write by the side that does not own the configuration.
func errNotOwner(what string, w *Env) error {
	return reject(engine.WrongMode, "%s of a %s agent are not the other side's to write", what, w.Agent.Mode)
}

// errIgnored rejects a write to an object that its owner excludes from replication.
func errIgnored(name string) error {
	return reject(engine.NotAllowed, "%s is labelled %s here", name, IgnoreSync)
}

// checkSelected rejects content outside the label selector of this side.
func (p *payload) checkSelected(name string, w *Env) error {
	if s := w.Settings.LabelSelector; s != nil {
		if labels, _ := rawjson.StringMap(p.labels.Bytes()); !s.Matches(labels) {
			return reject(engine.NotAllowed, "%s is outside the label selector of this side", name)
		}
	}
	return nil
}

// mergeable rejects content for an object that cannot take it.
func mergeable(local *Object, handedOver bool, k engine.Key, p *payload, w *Env) error {
	if err := p.checkSelected(k.String(), w); err != nil {
		return err
	}
	switch {
	case local == nil && p.deleting:
		return reject(engine.NoObject, "%s is being deleted and does not exist here", k)
	case local == nil:
		return nil
	case ignored(local):
		return errIgnored(k.String())
	case local.IsDeleting() && !p.deleting:
		return reject(engine.Busy, "%s is being deleted here, and will be created again", k)
	}
	if handedOver {
		if set, ok := ApplicationSetOf(local); ok {
			return reject(engine.NameTaken, "ApplicationSet %s of the hub creates %s/%s; delete the ApplicationSet with --cascade=orphan first", set.Name, local.Namespace(), local.Name())
		}
		return nil
	}
	return checkOwnedByAgent(local, k, w)
}

// After an agent has changed from managed to autonomous, its Applications exist on both sides, and those of the hub are
// no replicas yet. The hub hands an Application over if the agent proves that its own one was written from it: it knows
// the UID, which the hub has sent to this agent only. Every other Application of the hub stays as it is.

// replicaOf returns the Extra of a spoke's Application that was written from an Application of this hub, or nil.
func replicaOf(o *Object, w *Env) []byte {
	ownership := ReadOwnership(o, w)
	if !ownership.Owned {
		return nil
	}
	return rawjson.Object{{Key: "replicaOf", Value: rawjson.Quote(ownership.Source)}}.Bytes()
}

// isHandedOver reports whether an Application of the hub becomes the replica of the one that was written from it.
func isHandedOver(local *Object, extra []byte, w *Env) bool {
	return w.Side == Hub && local != nil && local.UID() != "" && (!isMarked(local) || IsRestored(local, w)) &&
		rawjson.Text(extra, "replicaOf") == PublishedUID(local, w)
}

// isFormerCopy reports whether an object of the hub is a copy that the argocd-agent of argoproj-labs made of the object that
// the agent sends now. Such a copy names no agent, but has the UID of its source.
func isFormerCopy(local *Object, p *payload, w *Env) bool {
	return w.Side == Hub && local != nil && p.uid != "" && local.Annotation(SourceUID) == p.uid &&
		local.Annotation(AgentNameAnnotation) == "" && local.Annotation(PrincipalUID) == ""
}

// isMarked reports whether an object has any ownership annotation.
func isMarked(o *Object) bool {
	return o.Annotation(SourceUID) != "" || o.Annotation(PrincipalUID) != "" || o.Annotation(AgentNameAnnotation) != ""
}

// checkOwnedByAgent rejects a write over an object on the hub that did not come from this agent under this key.
func checkOwnedByAgent(local *Object, k engine.Key, w *Env) error {
	if w.Side != Hub {
		return nil
	}
	if local.Annotation(AgentNameAnnotation) != w.Agent.Name || local.Annotation(SourceUID) == "" {
		return reject(engine.NameTaken, "%s/%s exists on the hub and is not a copy from agent %s", local.Namespace(), local.Name(), w.Agent.Name)
	}
	if source := local.Annotation(SourceNameAnnotation); source != sourceName(k) {
		return reject(engine.NameTaken, "%s/%s on the hub is the copy of %s, and the copy of %s would have the same name; rename one of the two", local.Namespace(), local.Name(), cmp.Or(source, local.Name()), k)
	}
	return nil
}

// checkSpec rejects a spec that reaches beyond the agent. On the hub the project must be one of the agent's and the
// destination the agent. On the spoke the destination must be the cluster itself.
func checkSpec(spec []byte, w *Env) error {
	if !isObject(spec) {
		return reject(engine.Invalid, "an Application without a spec")
	}
	destination := rawjson.Get(spec, "destination")
	name, project := rawjson.Text(destination, "name"), rawjson.Text(spec, "project")
	want := inClusterName
	if w.Side == Hub {
		want = w.Agent.Name
		if agent, _, ok := SplitProjectName(project); !ok || agent != w.Agent.Name {
			return reject(engine.NotAllowed, "project %.80q is not one of agent %s", project, w.Agent.Name)
		}
	} else if !isSubdomain(project) {
		return reject(engine.Invalid, "project %.80q is not a name that a project can have", project)
	}
	if server := rawjson.Get(destination, "server"); name != want || !isEmpty(server) {
		return reject(engine.NotAllowed, "destination %.200s is not %q", destination, want)
	}
	return nil
}

func sameJSON(a, b []byte) bool {
	x, err1 := rawjson.Canonical(a)
	y, err2 := rawjson.Canonical(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

func (ApplicationKind) Release(o *Object, _ *Env) *Object {
	return ClearCondition(release(o), ConditionHeld)
}

func (ApplicationKind) Keeps(o *Object) bool { return o.Annotation(AdoptedAnnotation) == "true" }

const cascadeFinalizer = "resources-finalizer.argocd.argoproj.io"

func isCascade(finalizer string) bool {
	return finalizer == cascadeFinalizer || strings.HasPrefix(finalizer, cascadeFinalizer+"/")
}

func cascadeOf(finalizers []string) []string {
	return slices.DeleteFunc(finalizers, func(f string) bool { return !isCascade(f) })
}

// HasCascade reports whether the resources of an Application are deleted with it.
func HasCascade(o *Object) bool { return slices.ContainsFunc(o.Finalizers(), isCascade) }

// StripCascade removes the finalizers that delete resources, and reports whether there were any.
func StripCascade(o *Object) (*Object, bool) {
	return setFinalizers(o, slices.DeleteFunc(o.Finalizers(), isCascade))
}

// StripArgoFinalizers removes Argo CD's finalizers: those that delete resources, and those that run pre-delete and
// post-delete hooks, in all stages. It reports whether there were any. Other finalizers stay.
func StripArgoFinalizers(o *Object) (*Object, bool) {
	return setFinalizers(o, slices.DeleteFunc(o.Finalizers(), isArgoFinalizer))
}

// isArgoFinalizer reports whether a finalizer is in Argo CD's domain, with or without a stage such as /cleanup.
func isArgoFinalizer(finalizer string) bool {
	name, _, _ := strings.Cut(finalizer, "/")
	return strings.HasSuffix(name, argoFinalizerSuffix)
}

const argoFinalizerSuffix = ".argocd.argoproj.io"

// StripFinalizers removes all finalizers of an object on the hub that no controller there finalizes. It reports whether
// there were any.
func StripFinalizers(o *Object) (*Object, bool) { return setFinalizers(o, nil) }

func setFinalizers(o *Object, finalizers []string) (*Object, bool) {
	if len(finalizers) == len(o.Finalizers()) {
		return o, false
	}
	stripped := o.changed(func(d *draft) { setStrings(&d.meta, "finalizers", finalizers) })
	return stripped, stripped != o
}

// mergeFinalizers makes the finalizers that delete resources equal to the owner's. All others belong to the local
// controller. None is added to a terminating object: the API server would reject it.
func mergeFinalizers(d *draft, local *Object, wanted []string) {
	var before []string
	if local != nil {
		before = local.Finalizers()
	}
	after := slices.DeleteFunc(slices.Clone(before), func(f string) bool { return isCascade(f) && !slices.Contains(wanted, f) })
	if local == nil || !local.IsDeleting() {
		for _, f := range wanted {
			if isCascade(f) && !slices.Contains(after, f) {
				after = append(after, f)
			}
		}
	}
	if !slices.Equal(before, after) {
		setStrings(&d.meta, "finalizers", after)
	}
}

// MergeCascade returns the spoke's Application with the owner's finalizers that delete resources, otherwise unchanged.
func MergeCascade(local *Object, content []byte, w *Env) (*Object, error) {
	p, err := readPayload(content)
	if err != nil {
		return nil, err
	}
	if err := p.checkSelected(local.Name(), w); err != nil {
		return nil, err
	}
	if ignored(local) {
		return nil, errIgnored(local.Name())
	}
	d := edit(local)
	mergeFinalizers(d, local, p.finalizers)
	return d.done()
}

// Deleting reports whether content is of an Application that is being deleted together with its resources.
func Deleting(content []byte) bool { return string(rawjson.Get(content, "deleting")) == "true" }

// ContentUID returns the UID of the owner's object.
func ContentUID(content []byte) string { return rawjson.Text(content, "uid") }

// ContentAnnotation returns an annotation of the owner's object, for policies that are set per object.
func ContentAnnotation(content []byte, key string) string {
	return rawjson.Text(content, "metadata", "annotations", key)
}

// ProjectOf returns the project of an Application.
func ProjectOf(o *Object) string {
	return cmp.Or(rawjson.Text(o.Get("spec", "project")), defaultProject)
}
