package reconcile

import (
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Input is one of the types below.
type Input interface{ input() }

// Observed says that the cluster has this object: from a watch, or read on request.
type Observed struct {
	Resource kind.Resource
	Object   *kind.Object
	Read     bool   // answers a Read, and says nothing of how far the watch has come
	ID       uint64 // of that
}

// Deleted says that an object was watched going away, or could not be read.
type Deleted struct {
	Ref      kind.Ref
	UID      string // of a Read: what that names
	Revision uint64
	Read     bool
	ID       uint64 // of a Read: its own
}

// List is a complete and consistent list of a resource. What the cache has
// beyond it has gone while nobody watched.
type List struct {
	Resource kind.Resource
	Objects  []*kind.Object
	Revision uint64
}

// Unreadable says that a resource cannot be read, and why; the next List ends that.
type Unreadable struct {
	Resource kind.Resource
	Reason   string
}

// Bookmark says that the watch of a resource has come this far.
type Bookmark struct {
	Resource kind.Resource
	Revision uint64
}

// WriteResult answers a Write.
type WriteResult struct {
	ID      uint64
	Object  *kind.Object // as stored; nil after a deletion that left nothing
	Failure *Failure     // nil: it was done
}

// Failure says why a write was not done, or not known to be.
type Failure struct {
	Code       engine.Code // of those for items
	Stale      bool        // the object is not (or not any more) as the cache has it
	Message    string
	RetryAfter engine.Time
}

// Register makes the hub know an agent, or changes what it knows.
type Register struct {
	Agent        kind.Agent
	KnownCluster string
	KnownStore   engine.Store
	StoreUntrusted      bool
}

// Unregister makes the hub forget an agent.
type Unregister struct{ Agent string }

// ArgoSettings says what the hub's Argo CD is set to, as far as it decides on
// what agents get.
type ArgoSettings struct {
	GlobalProjects []kind.GlobalProject // in their order
	InstanceLabel  string               // empty: the default
}

// Schema says how the API server defines a resource. Without it, what is stored
// differently from what was written is checked by time alone.
type Schema struct {
	Resource kind.Resource
	Version  string // another text when the definition is another; empty: it cannot be read
}

// FromPeer carries a connection's events: engine.Connected, Disconnected, Received.
type FromPeer struct {
	Agent string // empty on a spoke
	Input engine.Input
}

// Confirm is a person's word on something held.
type Confirm struct{ Agent, ID string }

// Tick says that the time from NextWake has come.
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

func (ArgoSettings) input() {}
func (Schema) input()       {}
func (Confirm) input()      {}
func (Tick) input()         {}

// Effect is one of the types below.
type Effect interface{ effect() }

// Verb of a Write.
type Verb uint8

// The verbs.
const (
	Create Verb = iota
	Update
	Delete
)

func (v Verb) String() string { return [...]string{"create", "update", "delete"}[v] }

// Write changes one object; answer with Wrote. Update and Delete are conditional
// on the resource version that the object carries, Delete also on its UID.
type Write struct {
	ID     uint64
	Verb   Verb
	Ref    kind.Ref
	Object *kind.Object // to be stored; of a Delete: the one to be deleted
	Reason    string       // for the log

	// WhileOpen says that the session with Agent has asked for it: when that ends
	// before it was begun it is not to be done any more, but answered as failed.
	WhileOpen bool

	// Remember is what has to be written down before this is done, where the next
	// process of this agent finds it; nil: nothing. See Memory.
	Remember *Memory

	// For who looks at where time goes.
	Agent   string // whom it is about; empty on a spoke
	Origin  Origin
	Attempt int // 1, 2, … of the same task
}

// Origin is the item that a write applies or removes.
type Origin struct {
	Scope   string // empty: it is about none
	Key     engine.Key
	Version engine.Version // zero: it is removed
}

// Read asks for one object as it is now; answer with Seen or Lost.
type Read struct {
	ID  uint64
	Ref kind.Ref
	UID string // of the object that is believed to be there; empty: none
}

// Abandon gives up the writes about an agent that were not begun: its registration
// has ended. Each is answered as failed.
type Abandon struct{ Agent string }

// Relist asks for a fresh List: the watch is behind what the peer has seen.
type Relist struct{ Resource kind.Resource }

// ToPeer carries out engine.Send and engine.Cut.
type ToPeer struct {
	Agent  string
	Effect engine.Effect
}

// Report passes on a fact about an agent.
type Report struct {
	Agent string
	Event  engine.Event
}

func (Write) effect()   {}
func (Read) effect()    {}
func (Abandon) effect() {}

func (Relist) effect() {}
func (ToPeer) effect() {}
func (Report) effect() {}
