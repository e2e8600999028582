package kind

import (
	"cmp"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// ChildKind is the scope of child Applications: those that a managed Application deploys on its workload cluster. If the
// hub's registration allows it, the hub has read-only replicas of them. StatusKind and CommandKind fill and command the
// replicas as those of other Applications.
//
// Whose object. The child on the workload cluster belongs to its parent there. Only commands of users change it. The
// replica on the hub is ours: it has our ownership of this agent and ChildAnnotation. Its key, and so its name and
// namespace, are those that a managed Application has under the mapping. Thus a name belongs to one of the two, and an
// Application of the hub without these annotations wins.
//
// Stale views. A replica is never sent to the workload cluster: it has the label of objects that are not replicated, which
// principals of all releases respect, and ChildAnnotation, whether or not the registration still allows children. If both
// are removed from it, the workload cluster does not let the hub adopt a child. A removed replica takes nothing with it, so
// there is no deletion budget.
type ChildKind struct{}

// ChildScope is the kind's name on the wire.
const ChildScope = "child"

// ChildCapability (hub) allows an agent to send child Applications.
const ChildCapability = "child-applications"

func (ChildKind) Scope() string { return ChildScope }

func (ChildKind) Resource() Resource { return Applications }

func (ChildKind) Traits() Traits {
	return Traits{Name: "applications", ManagedOnly: true, NoBudget: true, Announced: true, AnyNamespace: true, Owner: func(Mode) Side { return Spoke }}
}

func (ChildKind) Matches(*Object) bool { return true }

// MaxGenerations bounds the Applications between a child and its managed Application.
const MaxGenerations = 8

// IsChild reports whether an Application of the workload cluster is a child that the hub shows: a managed Application, or
// another child, deploys it.
func IsChild(o *Object, w *Env) bool {
	return w.Side == Spoke && w.Agent.Mode == Managed && w.Agent.Children && selected(o, w) && descends(o, w, MaxGenerations)
}

func descends(o *Object, w *Env, generations int) bool {
	if of := ReadOwnership(o, w); of.Owned || of.Foreign || generations == 0 {
		return false
	}
	ref, ok := ParentOf(o, w)
	if !ok {
		return false
	}
	parent := w.find(ref.Resource, ref.Namespace, ref.Name)
	return parent != nil && (ReadOwnership(parent, w).Owned || descends(parent, w, generations-1))
}

// trackingAnnotation is set by Argo CD on what it deploys: INSTANCE:GROUP/KIND:NAMESPACE/NAME.
const trackingAnnotation = "argocd.argoproj.io/tracking-id"

// ParentOf returns the Application that deploys an Application of the workload cluster, by Argo CD's tracking annotation
// or, without it, by its label. As in Argo CD, an annotation that names another object does not count.
func ParentOf(o *Object, w *Env) (Ref, bool) {
	instance := o.Label(cmp.Or(w.InstanceLabel, defaultInstanceLabel))
	if id := o.Annotation(trackingAnnotation); id != "" {
		name, object, _ := strings.Cut(id, ":")
		if object != Applications.Group+"/"+Applications.Kind+":"+o.Namespace()+"/"+o.Name() {
			return Ref{}, false
		}
		instance = name
	}
	namespace, name, qualified := strings.Cut(instance, "_")
	if !qualified {
		namespace, name = w.SpokeArgoNamespace, instance
	}
	return Ref{Applications, namespace, name}, name != ""
}

// IsChildReplica reports whether an Application of the hub is a replica of a child Application of an agent.
func IsChildReplica(o *Object) bool { return o.Annotation(ChildAnnotation) == "true" }

// Publish implements Kind. Annotations stay on the workload cluster: on the hub, some of them have an effect.
func (ChildKind) Publish(o *Object, w *Env) (Item, bool) {
	k, ok := spokeKey(o, w)
	if !ok || !IsChild(o, w) {
		return Item{}, false
	}
	p := &payload{uid: o.UID()}
	p.metadata(o, false, w)
	p.annotations = nil
	spec := members(o.Get("spec"))
	normalizeSpec(&spec)
	destination := members(spec.Get("destination"))
	destination.Remove("server")
	destination.Set("name", rawjson.Quote(w.Agent.Name))
	spec.Set("destination", destination.Bytes())
	p.body.Set("spec", spec.Bytes())
	return p.item(k, engine.Key{}), true
}

// ReadReplica implements Kind. A replica that lacks the label of objects that are not replicated differs from what was
// sent.
func (ChildKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	if w.Side != Hub || w.Agent.Mode != Managed || !IsChildReplica(o) {
		return ReplicaItem{}, false
	}
	k, ok := hubKey(o, w)
	if !ok {
		return ReplicaItem{}, false
	}
	ownership := ReadOwnership(o, w)
	p := &payload{uid: ownership.Source}
	p.metadata(o, true, w)
	p.body.Set("spec", projectedSpec(o))
	if !ignored(o) {
		p.body.Set("replicated", []byte("true"))
	}
	return ReplicaItem{Key: k, Content: p.content(), Ownership: ownership}, true
}

func (ChildKind) Key(o *Object, w *Env) (engine.Key, bool) { return localKey(o, w) }

func (ChildKind) Target(k engine.Key, w *Env) (Ref, error) { return localRef(k, w) }

// Merge implements Kind. The AppProject must be one of the hub that permits the Application, because it decides which users
// of the hub see it.
func (c ChildKind) Merge(local *Object, k engine.Key, content, _ []byte, ownership Ownership, w *Env) (*Object, error) {
	switch {
	case w.Side != Hub || w.Agent.Mode != Managed:
		return nil, errNotOwner("child Applications", w)
	case !w.Agent.Children:
		return nil, reject(engine.NotAllowed, "the hub does not show child Applications of this agent (spec.childApplications of its Agent)")
	}
	ref, err := c.Target(k, w)
	if err != nil {
		return nil, err
	}
	p, err := readPayload(content)
	if err != nil {
		return nil, err
	}
	if err := checkSent(p); err != nil {
		return nil, err
	}
	if err := p.checkSelected(k.String(), w); err != nil {
		return nil, err
	}
	spec := p.body.Get("spec")
	if !isObject(spec) {
		return nil, reject(engine.Invalid, "an Application without a spec")
	}
	switch {
	case local == nil:
	case !IsChildReplica(local) || local.Annotation(AgentNameAnnotation) != w.Agent.Name || local.Annotation(SourceUID) == "":
		return nil, reject(engine.NameTaken, "%s/%s exists on the hub and is not a child Application of agent %s; rename one of the two", local.Namespace(), local.Name(), w.Agent.Name)
	case local.IsDeleting():
		return nil, reject(engine.Busy, "%s is being deleted on the hub, and will be created again", k)
	}
	d := createOrEdit(local, ref)
	p.annotations, p.finalizers = nil, nil
	p.apply(d, local, true, ownership, "", w)
	annotations, labels := members(d.meta.Get("annotations")), members(d.meta.Get("labels"))
	setText(&annotations, ChildAnnotation, "true")
	setText(&labels, IgnoreSync, "true")
	setList(&d.meta, "annotations", annotations)
	setList(&d.meta, "labels", labels)
	if local == nil || !sameJSON(projectedSpec(local), spec) {
		d.top.Set("spec", spec)
	}
	merged, err := d.done()
	if err != nil {
		return nil, reject(engine.Invalid, "%v", err)
	}
	switch placement, why := placeChild(merged, w); placement {
	case Undecided:
		return nil, reject(engine.Busy, "AppProjects of the hub are not read yet")
	case Frozen:
		return nil, reject(engine.NotAllowed, "%s", why)
	}
	return merged, nil
}

// placeChild decides about a replica of a child on the hub.
func placeChild(o *Object, w *Env) (p Placement, why string) {
	to, project := readDestination(o), ProjectOf(o)
	if to.name != w.Agent.Name || to.server != "" || !to.matches(w.Agent) {
		return Frozen, to.notAgent(w)
	}
	rules, known := w.rules(project)
	if !known {
		return Undecided, ""
	}
	if why := rules.violation(o, to, project, w); why != "" {
		return Frozen, why
	}
	return Placed, ""
}

func (ChildKind) Release(o *Object, _ *Env) *Object { return release(o) }

// Keeps implements Remover. A replica of a child never existed before.
func (ChildKind) Keeps(*Object) bool { return false }
