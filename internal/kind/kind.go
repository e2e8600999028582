// Package kind has what is specific to each replicated kind: which objects belong to it, which agent gets them, how an
// object is projected for the other side, and how received content is merged into a local object.
//
// All functions are pure and work on raw objects. Unknown fields are kept verbatim, so that fields of another Argo CD
// release survive. A kind is one file, and one line in All.
package kind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// Side is the cluster of an object.
type Side uint8

const (
	Hub Side = iota
	Spoke
)

// Mode determines which side owns an agent's configuration.
type Mode string

const (
	Managed    Mode = "managed"
	Autonomous Mode = "autonomous"

	// Standby is a standby hub, which gets all objects of the active hub. See StandbyKinds.
	Standby Mode = "standby"
)

// Mapping determines how Applications on the hub are assigned to agents.
type Mapping string

const (
	ByNamespace   Mapping = "namespace"
	ByDestination Mapping = "destination"
)

// Resource names an API resource.
type Resource struct {
	Group, Version, Plural, Kind string
}

// Resources that kinds read and write.
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

// Agent is the hub's registration of an agent, as both sides know it.
type Agent struct {
	Name           string
	Mode           Mode
	Mapping        Mapping
	HubNamespace   string // of its Applications on the hub
	Server         string // URL in its cluster Secret; AppProjects match on it
	Project        string // hub: AppProject of its cluster, from the cluster Secret; empty if none
	ExcludedScopes string // hub: scopes that are not replicated, each between commas
	Children       bool   // the hub shows child Applications of a managed agent
	Allow          Allow  // hub: what an autonomous agent may set on its replicas
	Limits         Limits // hub
}

// Limits bound what the hub stores for an agent. They apply to each kind. Zero means the default.
type Limits struct{ Items, Bytes int }

// Or returns the limits with those of other where they are zero.
func (l Limits) Or(other Limits) Limits {
	return Limits{Items: cmp.Or(l.Items, other.Items), Bytes: cmp.Or(l.Bytes, other.Bytes)}
}

// Excludes reports whether a scope is not replicated for an agent.
func (a Agent) Excludes(scope string) bool { return strings.Contains(a.ExcludedScopes, ","+scope+",") }

// RenamesApplications reports whether Applications that others deploy have other names on the hub.
func (a Agent) RenamesApplications() bool {
	return a.Mode == Autonomous || a.Mode == Managed && a.Children && a.Mapping == ByNamespace
}

// Env is what a kind knows in addition to the object: both ends and their settings. It belongs to one agent and one
// side.
type Env struct {
	Side               Side
	Agent              Agent
	HubArgoNamespace   string        // of Argo CD on the hub
	SpokeArgoNamespace string        // of Argo CD on the workload cluster
	PrincipalUID       string        // part of the ownership annotations
	PKINamespace       string        // of the hub's CA and join tokens, for a standby; if empty, only Argo CD's namespace
	Received           uint64        // standby: revision of its cluster up to which the active hub has received its objects; 0 if unknown
	Projection         int           // negotiated projection version
	InstanceLabel      string        // Argo CD's application.instanceLabelKey; if empty, the default
	ClockSkew          time.Duration // hub: how far the agent's clock is ahead; zero if unknown
	Settings           Settings

	// Find returns another object of the local cluster, or nil. A repository needs its project.
	Find func(Ref) *Object

	// RefreshNonce (hub) returns the name of the pending refresh of an Application, or "". It is sent with the command.
	// The status that returns it clears the hub's annotations.
	RefreshNonce func(engine.Key) string

	// Rules (hub) returns the rules of an AppProject, or nil if there is none. It returns false if AppProjects are not
	// read yet. If Rules is nil, Find is used.
	Rules func(project string) (*ProjectRules, bool)

	// RefusesOperation (spoke) returns why the workload cluster does not run an operation of the hub, or nil. If
	// RefusesOperation is nil, every operation runs.
	RefusesOperation func(app *Object, operation []byte) error

	// ProjectFields (spoke) returns the fields of an AppProject that the workload cluster does not store, for users. If
	// ProjectFields is nil, there are none.
	ProjectFields func(project string) []string

	// Pushing (hub) returns the Applications of an AppProject that have a source hydrator, and maybe others. If Pushing is nil,
	// there are none.
	Pushing func(project string) []*Object

	// GlobalProjects (hub) are those of Argo CD's settings, in order.
	GlobalProjects []GlobalProject
}

// GlobalProject is an AppProject that others inherit from: those whose labels the selector matches.
type GlobalProject struct {
	Name     string
	Selector Selector
}

func (w *Env) find(r Resource, namespace, name string) *Object {
	if w.Find == nil {
		return nil
	}
	return w.Find(Ref{r, namespace, name})
}

func (w *Env) refreshNonce(k engine.Key) string {
	if w.RefreshNonce == nil {
		return ""
	}
	return w.RefreshNonce(k)
}

func (w *Env) projectFields(project string) []string {
	if w.ProjectFields == nil {
		return nil
	}
	return w.ProjectFields(project)
}

func (w *Env) refusesOperation(app *Object, operation []byte) error {
	if w.RefusesOperation == nil {
		return nil
	}
	return w.RefusesOperation(app, operation)
}

// Settings of the local side.
type Settings struct {
	AllowedNamespaces         []string // globs of Application namespaces; if empty, only what the mapping implies
	LabelSelector             Selector // of what is replicated
	CreateNamespaces          bool
	ShareUnscopedRepositories bool
	SyncRepositoryTrust       bool
	SyncWriteCredentials      bool
	SyncArgoSettings          bool
	ObjectLimit               int // maximum bytes of an object; if 0, DefaultObjectLimit
}

// DefaultObjectLimit leaves room below etcd's default of 1.5 MB for what the API server adds.
const DefaultObjectLimit = 1_400_000

// Selector matches labels.
type Selector interface {
	Matches(labels map[string]string) bool
}

// Item is a local object as the owner publishes it.
type Item struct {
	Key       engine.Key
	Content   []byte     // canonical JSON; its hash is the version
	Extra     []byte     // not hashed; may be nil
	DependsOn engine.Key // the AppProject that should exist first; zero if none

	// Unsendable is why the object cannot be projected, or "". Content then asks the other side to leave what it has as
	// it is. If Content is nil, nothing is sent.
	Unsendable string
}

// ReplicaItem is a local object of the replica, read as the item it came from.
type ReplicaItem struct {
	Key       engine.Key
	Content   []byte
	Ownership Ownership
}

// Ownership is what our annotations record on objects that we created or adopted.
type Ownership struct {
	Owned          bool   // by this principal and, on the hub, for this agent
	Foreign        bool   // owned by another principal or agent
	Adopted        bool   // existed before we owned it
	Alias          Alias  // the content is stored differently from what was written
	Source         string // UID of the source object
	SourceRevision uint64 // resourceVersion of the source object in its own cluster; 0 if unknown

	SourceGeneration uint64 // spoke: of the hub that the source revision is of; 0 before its first promotion

	Version engine.Version // of the item that was written last; zero if unknown
}

// IsOlder reports whether an object came from an earlier state of the hub than another one.
func (o Ownership) IsOlder(other Ownership) bool {
	return cmp.Or(cmp.Compare(o.SourceGeneration, other.SourceGeneration), cmp.Compare(o.SourceRevision, other.SourceRevision)) < 0
}

// Alias records that content is stored differently from what was written.
type Alias struct {
	engine.Alias
	Lost    []string // fields that are not stored as they were written, as ShortFields returns them
	Release string   // of both sides when it was recorded; if empty, no other process may rely on it
	Schema  string   // of the resource when it was recorded; empty if unknown
}

func (a Alias) Equal(b Alias) bool {
	return a.Alias == b.Alias && slices.Equal(a.Lost, b.Lost) && a.Release == b.Release && a.Schema == b.Schema
}

// Kind is a replicated kind. Publish runs on the owner side, the rest on the replica side.
type Kind interface {
	// Scope returns the kind's name on the wire.
	Scope() string

	// Resource returns what it reads and writes.
	Resource() Resource

	// Traits returns what the other packages need to know. It is constant.
	Traits() Traits

	// Matches reports whether an object of that resource is of this kind.
	Matches(o *Object) bool

	// Key returns the key of an object on either side, whether or not it is published or owned. It returns false if it
	// cannot have one (wrong namespace). Target is its inverse.
	Key(o *Object, w *Env) (engine.Key, bool)

	// Publish projects an object for the other side. It returns false if it is not for this agent (placement, selector,
	// ignore-sync, settings). If the object cannot be projected, see Item.Unsendable.
	Publish(o *Object, w *Env) (Item, bool)

	// ReadReplica reads a local object of the replica as the item it contains. It returns false if it is not the target
	// of a key of this agent. Ownership shows whether it is ours.
	ReadReplica(o *Object, w *Env) (ReplicaItem, bool)

	// Target returns the local object of a key, on either side, or a RejectError.
	Target(k engine.Key, w *Env) (Ref, error)

	// Merge returns the local object with what the other side owns replaced by content, and with our ownership. If
	// local is nil, the object is created. What the local side owns stays. Content is hostile until checked. Errors are
	// RejectErrors.
	Merge(local *Object, k engine.Key, content, extra []byte, ownership Ownership, w *Env) (*Object, error)
}

// RejectError is shown to the other side's user.
type RejectError struct {
	Code    engine.Code
	Message string
}

func (r *RejectError) Error() string { return string(r.Code) + ": " + r.Message }

func reject(code engine.Code, format string, args ...any) *RejectError {
	return &RejectError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Remover is a Kind whose items are deleted on the replica when they leave. A kind that is attached to objects of
// others is not one.
type Remover interface {
	// Release returns the object without our ownership: it stays.
	Release(o *Object, w *Env) *Object
	// Keeps reports whether an adopted object is released instead of deleted.
	Keeps(o *Object) bool
}
