package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Input is one of the types below.
type Input interface{ input() }

// Observed reports an object of the cluster, from a watch or a Read.
type Observed struct {
	Resource kind.Resource
	Object   *kind.Object
	Read     bool   // answers a Read, and does not show how far the watch is
	ID       uint64 // of that Read
}

// Deleted reports that an object was deleted, or that a Read did not find it.
type Deleted struct {
	Ref      kind.Ref
	UID      string // of a Read: as in the Read
	Revision uint64
	Read     bool
	ID       uint64 // of a Read: its ID
}

// List is a complete and consistent list of a resource. Other cached objects are gone. It can come in pages: then it is
// complete with the last one.
type List struct {
	Resource  kind.Resource
	Namespace string // if not empty, of this namespace only, which has its own watch
	Objects   []*kind.Object
	Revision  uint64
	Continues bool // this page continues the one before
	More      bool // another page follows
}

// Unreadable reports that a resource cannot be read, and why. It ends with the next List.
type Unreadable struct {
	Resource  kind.Resource
	Namespace string // as in List
	Reason    string
}

// Bookmark reports how far the watch of a resource is.
type Bookmark struct {
	Resource  kind.Resource
	Namespace string // as in List
	Revision  uint64
}

// WriteResult answers a Write.
type WriteResult struct {
	ID      uint64
	Object  *kind.Object // as stored; nil after a deletion that left nothing
	Failure *Failure     // nil on success
}

// Failure is why a write failed, or has an unknown result.
type Failure struct {
	Code       engine.Code // one of the codes for items
	Stale      bool        // the cached object is stale
	Message    string
	RetryAfter engine.Time
	NotStored  []string // fields of Write.MustStore that the API server does not store; it was not written
}

// Register registers an agent on the hub, or changes its registration.
type Register struct {
	Agent          kind.Agent
	KnownCluster   string
	KnownStore     engine.Store
	StoreUntrusted bool
}

// Unregister removes the registration of an agent on the hub.
type Unregister struct{ Agent string }

// ArgoSettings has the settings of the hub's Argo CD that decide what agents get.
type ArgoSettings struct {
	GlobalProjects []kind.GlobalProject
	InstanceLabel  string // if empty, the default
}

// Schema reports the schema of a resource. Without it, what is stored differently from what was written is checked by
// time alone.
type Schema struct {
	Resource kind.Resource
	Version  string // changes with the CRD; empty if it cannot be read
}

// FromPeer has a connection's input: engine.Connected, Disconnected, Received, Marked.
type FromPeer struct {
	Agent     string // empty on a spoke
	Input     engine.Input
	ClockSkew engine.Time // hub, with Connected: how far the agent's clock is ahead; zero if unknown
}

// Confirm is a user's confirmation of a hold.
type Confirm struct{ Agent, ID string }

// WriteOutage reports on an agent that its API server does not accept writes. If Reason is empty, it accepts them.
type WriteOutage struct{ Reason string }

// PolicyChanged has what the workload cluster allows its hub. Before the first one, everything is allowed.
type PolicyChanged struct {
	ID     string // changes with Policy
	Policy SpokePolicy
	Frozen string // why nothing from the hub is changed now; empty if it is
}

// Remembered reports on an agent what its Lease contains now, before a connection. Another process of the agent may have
// written it.
type Remembered struct {
	Memory
	LaterGenerations []uint64 // as Reconciler.LaterGenerations returned them before the Lease was read
}

// Tick reports that the time of NextWake has come.
type Tick struct{}

func (Observed) input()    {}
func (Deleted) input()     {}
func (List) input()        {}
func (Unreadable) input()  {}
func (Bookmark) input()    {}
func (WriteResult) input() {}
func (Register) input()    {}
func (Unregister) input()  {}
func (FromPeer) input()    {}

func (ArgoSettings) input()  {}
func (Schema) input()        {}
func (Confirm) input()       {}
func (WriteOutage) input()   {}
func (PolicyChanged) input() {}
func (Remembered) input()    {}
func (Tick) input()          {}

// Effect is one of the types below.
type Effect interface{ effect() }

// Verb is the verb of a Write.
type Verb uint8

const (
	Create Verb = iota
	Update
	Delete
)

func (v Verb) String() string { return [...]string{"create", "update", "delete"}[v] }

// Write changes one object. The caller answers with WriteResult. Update and Delete are conditional on the object's
// resourceVersion, Delete also on its UID.
type Write struct {
	ID     uint64
	Verb   Verb
	Ref    kind.Ref
	Object *kind.Object // to be stored, or to be deleted
	Reason string       // for the log

	// WhileOpen binds the write to the session with Agent. If the session ends before the write starts, the write is
	// not done and fails.
	WhileOpen bool

	// Offline marks a write without a session. It is done only if no session has begun and no later process of this agent
	// has started: the hub may have given up the object since.
	Offline bool

	// MustStore are fields that the API server must store as they are. Otherwise the write is not done and fails.
	MustStore []string

	// Remember must be stored before the write, where the next process of this agent finds it. If nil, nothing is. See
	// Memory.
	Remember *Memory

	// For traces.
	Agent   string // empty on a spoke
	Origin  Origin
	Attempt int // 1, 2, … of the same job
}

// Origin is the item that a write applies or removes.
type Origin struct {
	Scope   string // empty if there is none
	Key     engine.Key
	Version engine.Version // zero if the item is removed
}

// Read reads one object. The caller answers with Observed or Deleted.
type Read struct {
	ID  uint64
	Ref kind.Ref
	UID string // of the cached object; empty if there is none
}

// Abandon cancels the writes for an agent that have not started, because its registration has ended. Each fails.
type Abandon struct{ Agent string }

// Relist requests a new List, because the watch is behind what the peer has seen.
type Relist struct{ Resource kind.Resource }

// ToPeer carries engine.Send and engine.CloseSession.
type ToPeer struct {
	Agent  string
	Effect engine.Effect
}

// Report passes on an event of an agent.
type Report struct {
	Agent string
	Event engine.Event
}

func (Write) effect()   {}
func (Read) effect()    {}
func (Abandon) effect() {}

func (Relist) effect() {}
func (ToPeer) effect() {}
func (Report) effect() {}
