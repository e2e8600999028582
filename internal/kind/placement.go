package kind

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file decides whether an Application of the hub may run on an agent.
//
// argocd-server reads the resource tree of an Application from its agent and
// then sends requests to the cluster that spec.destination names. If these were
// two clusters, a user could let one cluster say which objects of the other one
// belong to the Application. So an Application is bound to its agent: the
// destination must be the agent's cluster. The hub has no application controller
// for it, so the rules of its AppProject are enforced here as well.

// Placement is what the hub decides about an Application and an agent.
type Placement uint8

// The placements.
const (
	NotPlaced Placement = iota // it is not this agent's
	Undecided                  // AppProjects have not been read yet
	Frozen                     // it is this agent's by mapping, and must not run there
	Placed                     // it runs there
)

func (p Placement) String() string {
	return [...]string{"not placed", "undecided", "frozen", "placed"}[p]
}

// Place decides about an Application of the hub and an agent. If it is frozen,
// why says which rule it breaks and what to do.
//
// Frozen means: nothing is created, updated or deleted on the spoke for it, its
// status is not taken, no tree is served and no command is delivered. The hub
// cannot know whether the spoke has the Application already (from before an edit
// of the destination or of an AppProject, or from an older release), and to
// withdraw it would delete it there.
func Place(o *Object, w *Env) (k engine.Key, p Placement, why string) {
	if w.Side != Hub || ignored(o) {
		return engine.Key{}, NotPlaced, ""
	}
	k, ok := hubKey(o, w)
	if !ok {
		return engine.Key{}, NotPlaced, ""
	}
	to := readDestination(o)
	if w.Agent.Mode == Autonomous {
		// A replica is written with this destination. An edit is undone; until
		// then there is no tree for it.
		switch {
		case !ReadOwnership(o, w).Owned:
			return engine.Key{}, NotPlaced, ""
		case to.name != w.Agent.Name || to.server != "" || !to.matches(w.Agent):
			return k, Frozen, to.notAgent(w)
		}
		return k, Placed, ""
	}
	if !selected(o, w) || w.byDestination() && !to.namesCluster(w.Agent) {
		return engine.Key{}, NotPlaced, ""
	}
	if !to.matches(w.Agent) {
		return k, Frozen, to.notAgent(w)
	}
	project := ProjectOf(o)
	rules, known := w.rules(project)
	if !known {
		return k, Undecided, ""
	}
	if why := rules.violation(o, to, project, w); why != "" {
		return k, Frozen, why
	}
	return k, Placed, ""
}

// target is the destination of an Application.
type target struct{ name, server, namespace string }

func readDestination(o *Object) target {
	d := o.Get("spec", "destination")
	return target{rawjson.Text(d, "name"), rawjson.Text(d, "server"), rawjson.Text(d, "namespace")}
}

// DestinationOf returns what an Application in destination mapping is placed by:
// the name of its destination cluster or, if there is none, the server URL. An
// agent's name is never a URL.
func DestinationOf(o *Object) string {
	to := readDestination(o)
	if to.name != "" {
		return to.name
	}
	return to.server
}

// ClusterURL returns the server URL of an agent's cluster as Argo CD looks it
// up; empty: Applications cannot name the cluster by URL.
func (a Agent) ClusterURL() string {
	url := strings.TrimRight(a.Server, "/")
	if url == inClusterServer {
		return "" // that is the hub, whatever the agent's Secret says
	}
	return url
}

// namesCluster reports whether the destination names the agent, by name or else by
// URL, even if it is not valid otherwise.
func (t target) namesCluster(a Agent) bool {
	if t.name != "" {
		return t.name == a.Name
	}
	return t.server != "" && t.server == a.ClusterURL()
}

// matches reports whether Argo CD takes the destination for the agent's cluster. It
// refuses one with both a name and a server.
func (t target) matches(a Agent) bool {
	if t.name != "" && t.server != "" || t.name == inClusterName {
		return false
	}
	return t.namesCluster(a)
}

// DestinedFor reports whether the destination of an Application is the cluster of
// an agent.
func DestinedFor(o *Object, a Agent) bool { return readDestination(o).matches(a) }

// notAgent says why the destination is not the agent's cluster.
func (t target) notAgent(w *Env) string {
	what := fmt.Sprintf("is %.100q", t.name+t.server)
	switch {
	case t.name != "" && t.server != "":
		what = fmt.Sprintf("has both a name (%.100q) and a server (%.100q)", t.name, t.server)
	case t.name == "" && t.server == "":
		what = "has neither a name nor a server"
	}
	advice := fmt.Sprintf("Set spec.destination.name to %q and remove spec.destination.server", w.Agent.Name)
	if !w.byDestination() {
		advice += ", or move the Application to another namespace"
	}
	return fmt.Sprintf("spec.destination %s, which is not the cluster of agent %q. %s.", what, w.Agent.Name, advice)
}

// ProjectRules are the parts of a hub's AppProject that decide about
// Applications, read once: an AppProject has many of them.
type ProjectRules struct {
	destinations []destination // with those of global projects
	namespaces   patterns      // sourceNamespaces
	scopedOnly   bool          // permitOnlyProjectScopedClusters
	sent         bool          // to agents at all: label selector, ignore-sync
}

// ReadProjectRules reads the rules of an AppProject of the hub; nil: there is no
// such AppProject.
func ReadProjectRules(name string, w *Env) *ProjectRules {
	o := w.find(AppProjects, w.HubArgoNamespace, name)
	if o == nil {
		return nil
	}
	spec := members(o.Get("spec"))
	flatten(o, &spec, w)
	r := &ProjectRules{destinations: readDestinations(spec.Get("destinations")), sent: selected(o, w),
		scopedOnly: string(spec.Get("permitOnlyProjectScopedClusters")) == "true"}
	list, _ := rawjson.Strings(spec.Get("sourceNamespaces"))
	for _, item := range list {
		r.namespaces.addNamespace(item)
	}
	return r
}

// rules returns the rules of an AppProject; false: they are not known yet.
func (w *Env) rules(project string) (*ProjectRules, bool) {
	if w.Rules != nil {
		return w.Rules(project)
	}
	return ReadProjectRules(project, w), true
}

// violation says why an Application must not run on the agent, to whose cluster its
// destination points; empty: it may. These are Argo CD's rules. That the
// AppProject itself goes to the agent (PlacedProject) follows from them, except
// for the settings of this side.
func (r *ProjectRules) violation(o *Object, to target, project string, w *Env) string {
	agent := w.Agent
	switch {
	case r == nil:
		return fmt.Sprintf("AppProject %.100q does not exist on the hub. Create it, or set spec.project to another one.", project)
	case o.Namespace() != w.HubArgoNamespace && !r.namespaces.match(o.Namespace()):
		return fmt.Sprintf("AppProject %q does not permit Applications in namespace %q. Add the namespace to spec.sourceNamespaces of the AppProject.", project, o.Namespace())
	case !(cluster{name: agent.Name, server: agent.Server}).permits(r.destinations, to.namespace):
		return fmt.Sprintf("AppProject %q does not permit namespace %.100q of the cluster of agent %q. Add the agent to spec.destinations of the AppProject.", project, to.namespace, agent.Name)
	case r.scopedOnly && agent.Project != project:
		return fmt.Sprintf("AppProject %q permits only clusters of its own, and the cluster of agent %q is not one of them. Set project to %q in the cluster Secret of the agent, or remove spec.permitOnlyProjectScopedClusters of the AppProject.", project, agent.Name, project)
	case !r.sent:
		return fmt.Sprintf("AppProject %q is not sent to agents. Give it labels that match --label-selector of the principal, and remove its label %s.", project, IgnoreSync)
	}
	return ""
}

// SameRules reports whether two states of an AppProject decide alike about
// Applications.
func SameRules(a, b *Object) bool {
	for _, path := range [][]string{
		{"spec", "destinations"}, {"spec", "sourceNamespaces"}, {"spec", "permitOnlyProjectScopedClusters"}, {"metadata", "labels"},
	} {
		if !bytes.Equal(a.Get(path...), b.Get(path...)) {
			return false
		}
	}
	return true
}

// frozenContent is what the owner publishes in place of an object that it does
// not send: enough that the replica leaves alone what it has under that key, and
// nothing that could be written there. An agent that does not know frozen items
// refuses it, because it has no spec. The annotation is for such an agent: without
// it, an agent that replaces Applications of another UID would delete the one it
// has first.
func frozenContent(uid, reason string) []byte {
	p := &payload{uid: uid}
	p.annotations.Set(UIDMismatchPolicy, rawjson.Quote("upsert"))
	p.body.Set("frozen", []byte("true"))
	if reason != "" {
		p.body.Set("reason", rawjson.Quote(reason))
	}
	return p.content()
}

// FrozenContent is the content of an Application of the hub while it is frozen.
func FrozenContent(o *Object) []byte { return frozenContent(o.UID(), "") }

// IsFrozen reports whether content is that of a frozen Application.
func IsFrozen(content []byte) bool { return string(rawjson.Get(content, "frozen")) == "true" }

// frozenPrefix begins the message of a condition that the hub itself has set, so
// that every replica of the principal can remove it.
const frozenPrefix = "Frozen: "

// FrozenMessage returns the message of the condition of a frozen Application.
func FrozenMessage(o *Object, why string) string {
	message := frozenPrefix + why + " Until then nothing of it is sent to the agent, and what the agent has of it stays as it is."
	if o.IsDeleting() && HasCascade(o) {
		message += " Its deletion waits for that too. To delete it and leave its resources on the cluster, remove its finalizer " + cascadeFinalizer + "."
	}
	return message
}

// ShowsFrozen reports whether an Application has the condition of a frozen one.
func ShowsFrozen(o *Object) bool {
	for _, c := range ourConditions(o.Get("status", "conditions")) {
		if rawjson.Text(c, "type") == ConditionError && strings.HasPrefix(rawjson.Text(c, "message"), frozenPrefix) {
			return true
		}
	}
	return false
}
