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
// argocd-server reads the resource tree of an Application from its agent and sends requests to the cluster that
// spec.destination names. If these were two clusters, a user could let one cluster decide which objects of the other
// belong to the Application. So the destination must be the agent's cluster. The hub has no application controller for
// it, so the rules of its AppProject are enforced here as well.

// Placement is the hub's decision about an Application and an agent.
type Placement uint8

const (
	NotPlaced Placement = iota // not this agent's
	Undecided                  // AppProjects are not read yet
	Frozen                     // this agent's by mapping, but must not run there
	Placed                     // runs there
)

func (p Placement) String() string {
	return [...]string{"not placed", "undecided", "frozen", "placed"}[p]
}

// Place decides about an Application of the hub and an agent. If it is frozen, why names the violated rule and the
// action.
//
// For a frozen Application nothing is created, updated or deleted on the spoke, its status is not accepted, no tree is
// served and no command is delivered. The hub cannot know whether the spoke has the Application already (from before an
// edit of the destination or of an AppProject, or from an older release), and withdrawing it would delete it there.
func Place(o *Object, w *Env) (k engine.Key, p Placement, why string) {
	child := IsChildReplica(o)
	if w.Side != Hub || ignored(o) && !child {
		return engine.Key{}, NotPlaced, ""
	}
	k, ok := hubKey(o, w)
	if !ok {
		return engine.Key{}, NotPlaced, ""
	}
	if child {
		if w.Agent.Mode != Managed || !w.Agent.Children || !ReadOwnership(o, w).Owned {
			return engine.Key{}, NotPlaced, ""
		}
		p, why = placeChild(o, w)
		return k, p, why
	}
	to := readDestination(o)
	if w.Agent.Mode == Autonomous {
		// A replica is written with this destination. An edit is undone, and until then it has no tree.
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

type target struct{ name, server, namespace string }

func readDestination(o *Object) target {
	d := o.Get("spec", "destination")
	return target{rawjson.Text(d, "name"), rawjson.Text(d, "server"), rawjson.Text(d, "namespace")}
}

// DestinationOf returns what places an Application in destination mapping: the name of its destination cluster or, if
// empty, the server URL. An agent's name is never a URL.
func DestinationOf(o *Object) string {
	to := readDestination(o)
	if to.name != "" {
		return to.name
	}
	return to.server
}

// ClusterURL returns the server URL of an agent's cluster as Argo CD looks it up. If empty, Applications cannot name
// the cluster by URL.
func (a Agent) ClusterURL() string {
	url := strings.TrimRight(a.Server, "/")
	if url == inClusterServer {
		return "" // this is the hub, whatever the agent's Secret has
	}
	return url
}

// namesCluster reports whether the destination names the agent, by name or by URL, even if it is invalid otherwise.
func (t target) namesCluster(a Agent) bool {
	if t.name != "" {
		return t.name == a.Name
	}
	return t.server != "" && t.server == a.ClusterURL()
}

// matches reports whether Argo CD resolves the destination to the agent's cluster. A destination with both a name and a
// server is invalid.
func (t target) matches(a Agent) bool {
	if t.name != "" && t.server != "" || t.name == inClusterName {
		return false
	}
	return t.namesCluster(a)
}

// OnHub reports whether the destination of an Application is the hub itself.
func OnHub(o *Object) bool {
	to := readDestination(o)
	return to.name == inClusterName && to.server == "" || to.name == "" && to.server == inClusterServer
}

// DestinedFor reports whether the destination of an Application is the cluster of an agent.
func DestinedFor(o *Object, a Agent) bool { return readDestination(o).matches(a) }

// notAgent returns why the destination is not the agent's cluster.
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

// ProjectRules are the parts of a hub's AppProject that decide about Applications, parsed once.
type ProjectRules struct {
	destinations []destination // including those of global projects
	namespaces   patterns      // sourceNamespaces
	scopedOnly   bool          // permitOnlyProjectScopedClusters
	sent         bool          // sent to agents at all: label selector, ignore-sync
}

// ReadProjectRules returns the rules of an AppProject of the hub, or nil if there is no such AppProject.
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

// rules returns the rules of an AppProject. It returns false if they are not known yet.
func (w *Env) rules(project string) (*ProjectRules, bool) {
	if w.Rules != nil {
		return w.Rules(project)
	}
	return ReadProjectRules(project, w), true
}

// violation returns why an Application must not run on the agent that its destination names, or "". These are Argo CD's
// rules. If they permit it, the AppProject itself is sent to the agent too (PlacedProject), except for the settings of
// this side.
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

// SameRules reports whether two states of an AppProject decide alike about Applications.
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

// frozenContent is published in place of an object that is not sent. It makes the replica leave what it has under that
// key, and has nothing that could be written. An agent of an older release rejects it, because it has no spec. The
// annotation is for such an agent: without it, an agent that replaces Applications of another UID would delete the one
// it has first.
func frozenContent(uid, reason string) []byte {
	p := &payload{uid: uid}
	p.annotations.Set(UIDMismatchPolicy, rawjson.Quote("upsert"))
	p.body.Set("frozen", []byte("true"))
	if reason != "" {
		p.body.Set("reason", rawjson.Quote(reason))
	}
	return p.content()
}

// FrozenContent returns the content of a frozen Application of the hub.
func FrozenContent(o *Object, w *Env) []byte { return frozenContent(PublishedUID(o, w), "") }

// IsFrozen reports whether content is of a frozen Application.
func IsFrozen(content []byte) bool { return string(rawjson.Get(content, "frozen")) == "true" }

// frozenPrefix starts the message of a condition that the hub itself has set, so that every principal replica can clear
// it.
const frozenPrefix = "Frozen: "

// FrozenMessage returns the condition message of a frozen Application.
func FrozenMessage(o *Object, why string) string {
	message := frozenPrefix + why + " Until then nothing of it is sent to the agent, and what the agent has of it stays as it is."
	if o.IsDeleting() && HasCascade(o) {
		message += " Its deletion waits for that too. To delete it and leave its resources on the cluster, remove its finalizer " + cascadeFinalizer + "."
	}
	return message
}

// ShowsFrozen reports whether an Application has the condition of a frozen one.
func ShowsFrozen(o *Object) bool {
	return hasCondition(o, ConditionError, func(message string) bool { return strings.HasPrefix(message, frozenPrefix) })
}
