package reconcile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// Replica is an object of a workload cluster that its hub wrote, as the item that it contains.
type Replica struct {
	Scope     string          `json:"scope"`
	Namespace string          `json:"namespace,omitempty"` // of the key
	Name      string          `json:"name"`
	Content   json.RawMessage `json:"content"`
	Written   string          `json:"written,omitempty"` // version that the hub wrote, if the content is stored in another form
	Deleting  bool            `json:"deleting,omitempty"`
	Changed   bool            `json:"changed,omitempty"` // differs from what the hub wrote
	Lost      []string        `json:"lost,omitempty"`    // fields of the hub's object that the cluster does not store
}

// Key returns the key of the item.
func (r *Replica) Key() engine.Key { return engine.Key{Namespace: r.Namespace, Name: r.Name} }

// ReplicaPage is a part of the replicas of one hub, in a fixed order.
type ReplicaPage struct {
	Session   string         `json:"session"`             // identity of the hub with which the agent has or had its last session
	StoreHold string         `json:"storeHold,omitempty"` // ID of the hold on that hub's store; empty if it is trusted
	Hubs      map[string]int `json:"hubs"`                // number of replicas by identity of the hub
	// Generation is the latest generation of the requested hub that the agent has followed or replicas record; 0 if there is
	// none.
	Generation uint64    `json:"generation,omitempty"`
	Items      []Replica `json:"items,omitempty"`
	Next       string    `json:"next,omitempty"`     // continues after this page; empty at the end
	Withheld   int       `json:"withheld,omitempty"` // objects that the workload cluster does not send, on this page
}

// maxHubs bounds the identities of a page: others are not counted.
const maxHubs = 16

// Replicas returns replicas that a hub wrote on this workload cluster: those whose ownership annotations have its identity. If
// identity is empty, it only counts. A page starts after Next of the page before it. It has up to size bytes of content, but at
// least one item. Without credentials, these are counted instead. So are all objects of another hub, unless the store of the
// hub of the session is untrusted: then it may be a new hub in the place of a lost one.
func (n *Reconciler) Replicas(identity, after string, size int, credentials bool) ReplicaPage {
	page := ReplicaPage{Hubs: map[string]int{}}
	l := n.syncs[""]
	if l == nil || n.cfg.Side != kind.Spoke {
		return page
	}
	page.Generation = l.peer.LatestGeneration(identity)
	if !l.known || l.env.Agent.Mode != kind.Managed {
		return page
	}
	page.Session, page.StoreHold = l.env.PrincipalUID, l.peer.Status().StoreHoldID
	type candidate struct {
		position string
		scope    *scope
		object   *kind.Object
	}
	var all []candidate
	env := l.env
	for i := range l.scopes {
		s := &l.scopes[i]
		if s.cfg.Role != engine.Replica || s.cfg.Style != engine.Mirror {
			continue
		}
		for _, o := range n.cache.tables[s.kind.Resource()].objects {
			env.PrincipalUID = o.Annotation(kind.PrincipalUID)
			ownership := kind.ReadOwnership(o, &env)
			if !s.kind.Matches(o) || !ownership.Owned {
				continue
			}
			if env.PrincipalUID == identity {
				page.Generation = max(page.Generation, ownership.SourceGeneration)
			}
			if page.Hubs[env.PrincipalUID] > 0 || len(page.Hubs) < maxHubs {
				page.Hubs[env.PrincipalUID]++
			}
			position := fmt.Sprintf("%02d/%s/%s", i, o.Namespace(), o.Name())
			if identity != "" && env.PrincipalUID == identity && position > after {
				all = append(all, candidate{position, s, o})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return strings.Compare(a.position, b.position) })
	env.PrincipalUID = identity
	for i, c := range all {
		r, ok := l.replica(c.scope, c.object, &env)
		switch {
		case !ok:
			continue
		case c.scope.kind.Traits().Credentials && !credentials, identity != page.Session && page.StoreHold == "":
			page.Withheld++
			continue
		case len(page.Items) > 0 && len(r.Content) > size:
			page.Next = all[i-1].position
			return page
		}
		size -= len(r.Content)
		page.Items = append(page.Items, r)
	}
	return page
}

func (l *agentSync) replica(s *scope, o *kind.Object, env *kind.Env) (Replica, bool) {
	item, ok := s.kind.ReadReplica(o, env)
	if !ok || item.Content == nil {
		return Replica{}, false
	}
	version, alias := engine.VersionOf(item.Content), item.Ownership.Alias
	r := Replica{Scope: s.cfg.Name, Namespace: item.Key.Namespace, Name: item.Key.Name, Content: item.Content, Deleting: o.IsDeleting(), Lost: alias.Lost}
	written := version
	if alias.Stored == version {
		written, r.Written = alias.Written, alias.Written.String()
	}
	r.Changed = !item.Ownership.Version.IsZero() && item.Ownership.Version != written
	return r, true
}
