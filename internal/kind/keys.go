package kind

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// The keys of Applications are relative: where the scope implies a namespace, the key has none, so that no agent can
// name another's object. A key has a namespace
//
//   - in destination mapping: the Application's, which is the same on both sides;
//   - in autonomous mode, for an Application outside the spoke's Argo CD namespace: the spoke's.

// allowed reports whether Applications may be in a namespace of this side. If nothing is configured, the mapping
// decides. Otherwise Argo CD's namespace and the list are allowed.
func (w *Env) allowed(namespace string) bool {
	argo, implied := w.SpokeArgoNamespace, w.SpokeArgoNamespace
	if w.Side == Hub {
		argo, implied = w.HubArgoNamespace, w.HubArgoNamespace
		if w.Agent.Mode == Autonomous || w.Agent.Mapping == ByNamespace {
			implied = w.Agent.HubNamespace
		}
	}
	if len(w.Settings.AllowedNamespaces) == 0 {
		return namespace == implied
	}
	return namespace == argo || matchesAny(w.Settings.AllowedNamespaces, namespace)
}

// byDestination reports whether key and namespace are the same on both sides.
func (w *Env) byDestination() bool {
	return w.Agent.Mode == Managed && w.Agent.Mapping == ByDestination
}

// hubKey returns the key of an Application on the hub. It returns false if it cannot be one of this agent's.
func hubKey(o *Object, w *Env) (engine.Key, bool) {
	if !w.allowed(o.Namespace()) {
		return engine.Key{}, false
	}
	if w.byDestination() {
		return engine.Key{Namespace: o.Namespace(), Name: o.Name()}, true
	}
	if o.Namespace() != w.Agent.HubNamespace {
		return engine.Key{}, false
	}
	if w.Agent.Mode == Managed {
		return engine.Key{Name: o.Name()}, true
	}
	k := engine.Key{Name: o.Name()}
	if source := o.Annotation(SourceNameAnnotation); source != "" {
		k = parseSourceName(source)
	}
	return k, checkKey(k) == nil && hubName(k) == o.Name()
}

// PlacedApplication returns the hub's Application that is placed on a managed agent under an instance name: NAME, or
// NAMESPACE_NAME outside of Argo CD's namespace. It returns nil if there is none.
func PlacedApplication(instance string, w *Env) *Object {
	if w.Side != Hub || w.Agent.Mode != Managed {
		return nil
	}
	namespace, name, qualified := strings.Cut(instance, "_")
	if !qualified {
		namespace, name = w.SpokeArgoNamespace, instance
	}
	k := engine.Key{Name: name}
	if w.byDestination() {
		k.Namespace = namespace
	} else if qualified {
		return nil // there it is in Argo CD's namespace
	}
	ref, err := hubRef(k, w)
	if err != nil {
		return nil
	}
	o := w.find(ref.Resource, ref.Namespace, ref.Name)
	if o == nil {
		return nil
	}
	if _, p, _ := Place(o, w); p != Placed {
		return nil
	}
	return o
}

// hubRef returns the Application on the hub for a key.
func hubRef(k engine.Key, w *Env) (Ref, error) {
	if err := checkKey(k); err != nil {
		return Ref{}, err
	}
	ref := Ref{Applications, w.Agent.HubNamespace, k.Name}
	switch {
	case w.Agent.Mode == Autonomous:
		ref.Name = hubName(k)
	case w.byDestination():
		ref.Namespace = k.Namespace
	}
	if err := checkNamespace(k, ref.Namespace, w); err != nil {
		return Ref{}, err
	}
	return ref, nil
}

// spokeKey returns the key of an Application on the spoke.
func spokeKey(o *Object, w *Env) (engine.Key, bool) {
	k := engine.Key{Namespace: o.Namespace(), Name: o.Name()}
	switch {
	case !w.allowed(o.Namespace()):
		return engine.Key{}, false
	case w.byDestination():
		return k, true
	case o.Namespace() == w.SpokeArgoNamespace:
		k.Namespace = ""
		return k, true
	default:
		return k, w.Agent.Mode == Autonomous
	}
}

// spokeRef returns the Application on the spoke for a key.
func spokeRef(k engine.Key, w *Env) (Ref, error) {
	if err := checkKey(k); err != nil {
		return Ref{}, err
	}
	ref := Ref{Applications, w.SpokeArgoNamespace, k.Name}
	if k.Namespace != "" && (w.byDestination() || w.Agent.Mode == Autonomous) {
		ref.Namespace = k.Namespace
	}
	if err := checkNamespace(k, ref.Namespace, w); err != nil {
		return Ref{}, err
	}
	return ref, nil
}

// checkNamespace rejects a key that does not fit the mapping, and a namespace that this side does not allow.
func checkNamespace(k engine.Key, namespace string, w *Env) error {
	switch {
	case w.byDestination() && k.Namespace == "":
		return reject(engine.Invalid, "key %q has no namespace, which destination mapping needs", k)
	case !w.byDestination() && w.Agent.Mode == Managed && k.Namespace != "":
		return reject(engine.Invalid, "key %q has a namespace, which namespace mapping implies", k)
	case w.Side == Spoke && w.Agent.Mode == Autonomous && k.Namespace == w.SpokeArgoNamespace:
		return reject(engine.Invalid, "key %q names the namespace that is implied", k)
	case !w.allowed(namespace):
		return reject(engine.NotAllowed, "namespace %q is not among the allowed namespaces", namespace)
	}
	return nil
}

// localKey and localRef are those of the Env's side.
func localKey(o *Object, w *Env) (engine.Key, bool) {
	if w.Side == Hub {
		return hubKey(o, w)
	}
	return spokeKey(o, w)
}

func localRef(k engine.Key, w *Env) (Ref, error) {
	if w.Side == Hub {
		return hubRef(k, w)
	}
	return spokeRef(k, w)
}

// hubName returns an autonomous Application's name on the hub.
func hubName(k engine.Key) string {
	if k.Namespace == "" {
		return truncateName(k.Name)
	}
	return truncateName(k.Namespace + "." + k.Name)
}

// sourceName returns what must be recorded on the hub's replica, because its name alone does not show its source.
func sourceName(k engine.Key) string {
	if k.Namespace == "" && hubName(k) == k.Name {
		return ""
	}
	return k.String()
}

func parseSourceName(s string) engine.Key {
	if namespace, name, ok := strings.Cut(s, "/"); ok {
		return engine.Key{Namespace: namespace, Name: name}
	}
	return engine.Key{Name: s}
}

// HubNameOf returns the hub's name of an autonomous agent's Application, or of a child Application of a managed agent. It
// returns false if the Application is not published.
func (w *Env) HubNameOf(namespace, name string) (hubNamespace, hubAppName string, ok bool) {
	if w.Agent.Mode == Managed {
		return w.Agent.HubNamespace, name, namespace == w.SpokeArgoNamespace && checkKey(engine.Key{Name: name}) == nil
	}
	k := engine.Key{Name: name}
	if namespace != w.SpokeArgoNamespace {
		if w.Side == Spoke && !w.allowed(namespace) {
			return "", "", false
		}
		k.Namespace = namespace
	}
	if checkKey(k) != nil {
		return "", "", false
	}
	return w.Agent.HubNamespace, hubName(k), true
}
