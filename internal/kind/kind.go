// Package kind knows what is particular to each kind of object that principal
// and agent keep the same: which objects belong to it, which agent gets them,
// how an object is projected into content for the other side, and how received
// content merges into a local object.
//
// Everything here is a pure function of raw objects. Whatever a function does
// not know it carries along verbatim, so that fields of another Argo CD release
// survive. One file a kind, one line in All.
package kind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Side is where an object lives.
type Side uint8

// The two sides.
const (
	Hub Side = iota
	Spoke
)

// Mode says which side owns an agent's configuration.
type Mode string

// The modes, by the names users give them.
const (
	Managed    Mode = "managed"
	Autonomous Mode = "autonomous"
)

// Mapping says how Applications on the hub are assigned to agents.
type Mapping string

// The mappings.
const (
	ByNamespace   Mapping = "namespace"
	ByDestination Mapping = "destination"
)

// Resource names an API resource.
type Resource struct {
	Group, Version, Plural, Kind string
}

// The resources that the kinds read and write.
var (
	Applications = Resource{"argoproj.io", "v1alpha1", "applications", "Application"}
	AppProjects  = Resource{"argoproj.io", "v1alpha1", "appprojects", "AppProject"}
	Secrets      = Resource{"", "v1", "secrets", "Secret"}
	ConfigMaps   = Resource{"", "v1", "configmaps", "ConfigMap"}
)

// Ref names a local object.
type Ref struct {
	Resource  Resource
	Namespace string
	Name      string
}

// Agent is what both sides know of an agent: the hub's registration.
type Agent struct {
	Name           string
	Mode           Mode
	Mapping        Mapping
	HubNamespace   string // of its Applications on the hub
	Server         string // URL in its cluster Secret; AppProjects match on it
	Project        string // hub: AppProject that its cluster belongs to, of the cluster Secret; empty: none
	ExcludedScopes string // hub: scopes that are not exchanged with it, each between commas
}

// Excludes reports whether a scope is not exchanged with an agent.
func (a Agent) Excludes(scope string) bool { return strings.Contains(a.ExcludedScopes, ","+scope+",") }

// Env is what a kind may know beside the object: the two ends and their
// settings. A World belongs to one agent and one side.
type Env struct {
	Side               Side
	Agent              Agent
	HubArgoNamespace   string // of Argo CD on the hub
	SpokeArgoNamespace string // of Argo CD on the agent's cluster
	PrincipalUID       string // goes into the mark of what we create
	Projection         int    // negotiated version of the projections
	InstanceLabel      string // Argo CD's application.instanceLabelKey; empty: the default
	Settings           Settings

	// Find returns another object of the local cluster, nil if there is none:
	// a repository needs its project.
	Find func(Ref) *Object

	// RefreshNonce (hub) names the refresh that is pending for an Application,
	// empty if there is none. It goes out with the command; the status that
	// brings it back removes the hub's annotations.
	RefreshNonce func(engine.Key) string

	// Rules (hub) returns the rules of an AppProject, nil if there is none. False:
	// AppProjects have not been read yet. If Rules is nil, Find is used.
	Rules func(project string) (*ProjectRules, bool)

	// GlobalProjects (hub) are those of Argo CD's settings, in their order.
	GlobalProjects []GlobalProject
}

// GlobalProject is an AppProject that others inherit from: those whose labels
// the selector matches.
type GlobalProject struct {
	Name     string
	Selector Selector
}

// find looks another object up, if the world can.
func (w *Env) find(r Resource, namespace, name string) *Object {
	if w.Find == nil {
		return nil
	}
	return w.Find(Ref{r, namespace, name})
}

// refreshNonce returns the pending refresh's nonce, if there is one.
func (w *Env) refreshNonce(k engine.Key) string {
	if w.RefreshNonce == nil {
		return ""
	}
	return w.RefreshNonce(k)
}

// Settings of the local side.
type Settings struct {
	AllowedNamespaces         []string // globs; of Applications; empty: only what the mapping implies
	LabelSelector             Selector // of what is replicated
	CreateNamespaces          bool
	ShareUnscopedRepositories bool
	SyncRepositoryTrust       bool
	ObjectLimit               int // bytes that an object may have; 0: DefaultObjectLimit
}

// DefaultObjectLimit leaves room below etcd's customary 1.5 MB for what the API
// server adds.
const DefaultObjectLimit = 1_400_000

// Selector decides by labels.
type Selector interface {
	Matches(labels map[string]string) bool
}

// Item is a local object as the owner publishes it.
type Item struct {
	Key     engine.Key
	Content []byte     // canonical JSON; its hash is the version
	Extra   []byte     // travels along, outside the hash; may be nil
	DependsOn   engine.Key // of the AppProject that should be there first; zero: none

	// Unsendable says why the object cannot be projected; empty: it is. Then Content
	// asks the other side to leave what it has as it is; nil: nothing is sent.
	Unsendable string
}

// ReplicaItem is a local object of the replica, read as the item it came from.
type ReplicaItem struct {
	Key     engine.Key
	Content []byte
	Ownership    Ownership
}

// Ownership is what we write onto objects that we created or adopted.
type Ownership struct {
	Owned   bool   // carries this principal's (and, on the hub, this agent's) mark
	Foreign bool   // carries the mark of another principal or agent
	Adopted bool   // existed before it became ours
	Alias   Alias  // content as stored differs from what was written
	Source  string // UID of the object it came from
	SourceRevision    uint64 // revision that the object it came from had, in its own cluster; 0: unknown
}

// Alias is what is recorded of content that is stored differently from what was
// written.
type Alias struct {
	engine.Alias
	Lost    []string // fields that are not stored as they were written, as ShortFields returns them
	Release string   // of both sides, when it was recorded; empty: nobody may rely on it
	Schema  string   // likewise, of the resource; empty: unknown
}

// Equal reports whether two aliases say the same.
func (a Alias) Equal(b Alias) bool {
	return a.Alias == b.Alias && slices.Equal(a.Lost, b.Lost) && a.Release == b.Release && a.Schema == b.Schema
}

// Kind is a replicated kind. Its two halves run on different sides: Publish on
// the owner's, the rest on the replica's.
type Kind interface {
	// Scope is the kind's name on the wire.
	Scope() string

	// Resource is what it reads and writes.
	Resource() Resource

	// Matches reports whether an object of that resource is of this kind at all.
	Matches(o *Object) bool

	// Key is the name of an object on the wire, whether or not it is published
	// or ours, on either side; false: it cannot have one (wrong namespace).
	// Target is its inverse.
	Key(o *Object, w *Env) (engine.Key, bool)

	// Publish projects an object for the other side; false: not for this agent
	// (placement, selector, ignore-sync, settings). If the object cannot be
	// projected, that is another answer: see Item.Unsendable.
	Publish(o *Object, w *Env) (Item, bool)

	// ReadReplica reads a local object of the replica as the item it holds. False:
	// it is not the target of any key of this agent. The mark tells whose it is.
	ReadReplica(o *Object, w *Env) (ReplicaItem, bool)

	// Target names the local object for a key, on either side, or refuses the
	// key (a Refusal).
	Target(k engine.Key, w *Env) (Ref, error)

	// Merge returns the local object as it should be: local (nil: to be
	// created) with what the other side owns replaced by content, and marked as
	// ours. What the local side owns stays. Alias, if set, goes into the mark.
	// Content is hostile until checked; errors are Refusals.
	Merge(local *Object, k engine.Key, content, extra []byte, mark Ownership, w *Env) (*Object, error)
}

// RejectError is an error that the other side's user is shown.
type RejectError struct { //nolint:errname // a refusal is not a failure
	Code    engine.Code
	Message string
}

func (r *RejectError) Error() string { return string(r.Code) + ": " + r.Message }

func reject(code engine.Code, format string, args ...any) *RejectError {
	return &RejectError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Remover is a Kind whose items are deleted on the replica when they leave.
// (A kind that is attached to objects of others is none.)
type Remover interface {
	// Release returns the object without our mark: it stays, as not ours.
	Release(o *Object, w *Env) *Object
	// Keeps reports whether an adopted object is released rather than deleted.
	Keeps(o *Object) bool
}
