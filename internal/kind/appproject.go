package kind

import (
	"cmp"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// AppProjectKind is the scope of AppProjects. In managed mode an agent gets the hub's projects that permit its cluster,
// reduced to it. In autonomous mode the hub gets replicas under other names, which permit only the agent. The key is
// the project's name on the owner side.
type AppProjectKind struct{}

// AppProjectScope is the kind's name on the wire.
const AppProjectScope = "appproject"

func (AppProjectKind) Scope() string { return AppProjectScope }

func (AppProjectKind) Resource() Resource { return AppProjects }

func (AppProjectKind) Traits() Traits { return Traits{Name: "appprojects", Agents: matchProject} }

func (AppProjectKind) Matches(*Object) bool { return true }

// Publish implements Kind. A terminating project is still published: Applications need it until it is gone.
func (AppProjectKind) Publish(o *Object, w *Env) (Item, bool) {
	if !owner(w) || !selected(o, w) || o.Namespace() != argoNamespace(w) {
		return Item{}, false
	}
	spec := members(o.Get("spec"))
	switch {
	case w.Agent.Mode == Autonomous && ValidateAgentName(w.Agent.Name) == nil:
		projectForHub(o.Name(), &spec, w)
	case w.Agent.Mode == Managed && sendableProject(o, &spec, w):
	default:
		return Item{}, false
	}
	p := &payload{uid: PublishedUID(o, w), body: rawjson.Object{{Key: "spec", Value: spec.Bytes()}}}
	p.metadata(o, false, w)
	return p.item(engine.Key{Name: o.Name()}, engine.Key{}), true
}

// argoNamespace returns Argo CD's namespace on the Env's side.
func argoNamespace(w *Env) string {
	if w.Side == Hub {
		return w.HubArgoNamespace
	}
	return w.SpokeArgoNamespace
}

// PlacedProject reports whether a hub's AppProject is sent to this managed agent.
func PlacedProject(o *Object, w *Env) bool {
	if w.Side != Hub || w.Agent.Mode != Managed || !selected(o, w) || o.Namespace() != w.HubArgoNamespace {
		return false
	}
	spec := members(o.Get("spec"))
	return sendableProject(o, &spec, w)
}

// sendableProject rewrites a hub's project for a managed agent. It returns false if the project does not permit the
// agent.
func sendableProject(o *Object, spec *rawjson.Object, w *Env) bool {
	flatten(o, spec, w)
	hub := cluster{name: w.Agent.Name, server: w.Agent.Server}
	destinations := readDestinations(spec.Get("destinations"))
	if !hub.permitted(destinations) {
		return false
	}
	if w.Agent.Mapping == ByNamespace {
		list, _ := rawjson.Strings(spec.Get("sourceNamespaces"))
		if w.Agent.HubNamespace != w.HubArgoNamespace && !matchesAny(list, w.Agent.HubNamespace) {
			return false
		}
		spec.Remove("sourceNamespaces")
	}
	spec.Remove("roles")
	spec.Remove("permitOnlyProjectScopedClusters")
	spoke := cluster{name: inClusterName, server: inClusterServer}
	spec.Set("destinations", hub.rewriteDestinations(destinations, spoke))
	setOrRemove(spec, "syncWindows", hub.rewriteWindows(spec.Get("syncWindows"), spoke))
	setOrRemove(spec, "destinationServiceAccounts", hub.rewriteServiceAccounts(spec.Get("destinationServiceAccounts"), spoke))
	return true
}

// inherited lists the fields that a project inherits from global projects.
var inherited = []string{
	"clusterResourceWhitelist", "clusterResourceBlacklist", "namespaceResourceWhitelist", "namespaceResourceBlacklist",
	"syncWindows", "sourceRepos", "destinations",
}

// flatten adds what a project inherits from the hub's global projects, because the spoke's Argo CD does not know them.
func flatten(o *Object, spec *rawjson.Object, w *Env) {
	for _, global := range w.GlobalProjects {
		if global.Name == o.Name() || global.Selector == nil || !global.Selector.Matches(o.Labels()) {
			continue
		}
		g := w.find(AppProjects, o.Namespace(), global.Name)
		if g == nil {
			break // as in Argo CD: later ones are ignored
		}
		for _, field := range inherited {
			more, _ := rawjson.Elements(g.Get("spec", field))
			if len(more) == 0 {
				continue
			}
			own, _ := rawjson.Elements(spec.Get(field))
			spec.Set(field, rawjson.Join(append(slices.Clone(own), more...)))
		}
	}
}

// projectForHub rewrites a spoke's project for the hub. It permits the agent's namespace and the agent's cluster, by
// name only: a destination matches by name or by server, so a server pattern might permit other clusters.
func projectForHub(name string, spec *rawjson.Object, w *Env) {
	spoke := cluster{name: inClusterName, server: inClusterServer}
	spec.Set("sourceNamespaces", rawjson.AppendStrings(nil, []string{w.Agent.HubNamespace}))
	spec.Set("destinations", spoke.destinationsByName(readDestinations(spec.Get("destinations")), w.Agent.Name))
	setOrRemove(spec, "syncWindows", spoke.rewriteWindows(spec.Get("syncWindows"), cluster{name: w.Agent.Name}))
	setOrRemove(spec, "roles", rolesForHub(spec.Get("roles"), name, w))
	spec.Remove("permitOnlyProjectScopedClusters")
	spec.Remove("destinationServiceAccounts")
}

func (AppProjectKind) Key(o *Object, w *Env) (engine.Key, bool) {
	if o.Namespace() != argoNamespace(w) {
		return engine.Key{}, false
	}
	if w.Side == Spoke || w.Agent.Mode == Managed {
		return engine.Key{Name: o.Name()}, true
	}
	agent, project, ok := SplitProjectName(o.Name())
	if !ok || agent != w.Agent.Name {
		return engine.Key{}, false
	}
	if source := o.Annotation(SourceNameAnnotation); source != "" {
		project = source
	}
	k := engine.Key{Name: project}
	return k, checkKey(k) == nil && ProjectName(agent, project) == o.Name()
}

func (a AppProjectKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	k, ok := a.Key(o, w)
	if !ok || owner(w) || ignored(o) {
		return ReplicaItem{}, false
	}
	ownership := ReadOwnership(o, w)
	p := &payload{uid: ownership.Source, body: rawjson.Object{{Key: "spec", Value: members(o.Get("spec")).Bytes()}}}
	p.metadata(o, w.Side == Hub, w)
	return ReplicaItem{Key: k, Content: p.content(), Ownership: ownership}, true
}

func (AppProjectKind) Target(k engine.Key, w *Env) (Ref, error) {
	if err := checkKey(k); err != nil {
		return Ref{}, err
	}
	if k.Namespace != "" {
		return Ref{}, reject(engine.Invalid, "the key of a project has no namespace")
	}
	if w.Side == Spoke || w.Agent.Mode == Managed {
		return Ref{AppProjects, argoNamespace(w), k.Name}, nil
	}
	if err := ValidateAgentName(w.Agent.Name); err != nil {
		return Ref{}, err
	}
	return Ref{AppProjects, w.HubArgoNamespace, ProjectName(w.Agent.Name, k.Name)}, nil
}

// projectSource returns what must be recorded on the hub's replica because its name was truncated.
func projectSource(k engine.Key, w *Env) string {
	if _, project, ok := SplitProjectName(ProjectName(w.Agent.Name, k.Name)); ok && project == k.Name {
		return ""
	}
	return k.Name
}

func (a AppProjectKind) Merge(local *Object, k engine.Key, content, _ []byte, ownership Ownership, w *Env) (*Object, error) {
	ref, p, err := readItem(a, "AppProjects", k, content, w)
	if err != nil {
		return nil, err
	}
	if err := checkSent(p); err != nil {
		return nil, err
	}
	spec := p.body.Get("spec")
	if !isObject(spec) {
		return nil, reject(engine.Invalid, "a project without a spec")
	}
	source := ""
	if w.Side == Hub {
		source = projectSource(k, w)
		if err := checkHubProject(spec, ref.Name, w); err != nil {
			return nil, err
		}
		if w.refusesRoles() {
			spec = withoutRoles(spec)
		}
	}
	if local != nil && ignored(local) {
		return nil, errIgnored(k.String())
	}
	if local != nil && w.Side == Hub && !isFormerCopy(local, p, w) {
		if local.Annotation(AgentNameAnnotation) != w.Agent.Name || local.Annotation(SourceUID) == "" {
			return nil, reject(engine.NameTaken, "project %s exists on the hub and is not a copy from agent %s", ref.Name, w.Agent.Name)
		}
		if recorded := local.Annotation(SourceNameAnnotation); recorded != source {
			_, project, _ := SplitProjectName(ref.Name)
			return nil, reject(engine.NameTaken, "project %s on the hub is the copy of project %s, and the copy of project %s would have the same name; rename one of the two", ref.Name, cmp.Or(recorded, project), k)
		}
	}
	d := createOrEdit(local, ref)
	p.apply(d, local, w.Side == Hub, ownership, source, w)
	if local == nil || !sameJSON(local.Get("spec"), spec) {
		d.top.Set("spec", spec)
	}
	return d.done()
}

func (AppProjectKind) Release(o *Object, _ *Env) *Object { return release(o) }

func (AppProjectKind) Keeps(o *Object) bool { return o.Annotation(AdoptedAnnotation) == "true" }
