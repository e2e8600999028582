package reconcile

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// byNamespace is a hub that watches Applications in namespaces argocd, w1 and w2, each by itself, with agents in w1, w2 and
// w3.
type byNamespace struct {
	*Reconciler
	t *testing.T
}

func newByNamespace(t *testing.T) *byNamespace {
	t.Helper()
	h := &byNamespace{t: t, Reconciler: New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p", ApplicationNamespaces: []string{"w2", "argocd", "w1"}})}
	for _, r := range Resources() {
		if r != kind.Applications {
			h.Step(1, List{Resource: r, Revision: 100})
		}
	}
	for _, name := range []string{"w1", "w2", "w3"} {
		h.Step(1, Register{Agent: kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name}})
	}
	return h
}

func (h *byNamespace) app(namespace, name string, rev int) *kind.Object {
	return object(h.t, fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q,"uid":"%s-%s","resourceVersion":"%d"},"spec":{}}`, namespace, name, namespace, name, rev))
}

func (h *byNamespace) list(namespace string, rev uint64, objects ...*kind.Object) {
	h.Step(1, List{Resource: kind.Applications, Namespace: namespace, Objects: objects, Revision: rev})
}

// known returns which of the agents have a complete view of their Applications, and the Applications in the cache.
func (h *byNamespace) known() (agents string, apps int) {
	for _, name := range []string{"w1", "w2", "w3"} {
		status, _ := h.Status(name)
		for _, s := range status.Scopes {
			if s.Name == kind.ApplicationScope && s.Complete {
				agents += name + " "
			}
		}
	}
	return agents, len(h.cache.tables[kind.Applications].objects)
}

func (h *byNamespace) wants(agents string, apps int) {
	h.t.Helper()
	if got, n := h.known(); got != agents || n != apps {
		h.t.Errorf("complete for %q with %d Applications, want %q with %d", got, n, agents, apps)
	}
}

func TestNamespaces_OneThatWasNotReadIsNotEmpty(t *testing.T) {
	h := newByNamespace(t)
	h.wants("", 0)
	h.list("w1", 110, h.app("w1", "a", 90), h.app("w1", "b", 91))
	h.wants("w1 ", 2)
	h.Step(1, Unreadable{Resource: kind.Applications, Namespace: "w2", Reason: "forbidden"})
	h.wants("w1 ", 2)
	h.list("w2", 120, h.app("w2", "a", 92))
	h.wants("w1 w2 ", 3)
	// A list of one namespace says nothing about others.
	h.list("w1", 130, h.app("w1", "a", 90))
	h.wants("w1 w2 ", 2)
	h.list("argocd", 140)
	h.wants("w1 w2 ", 2)
	// Nothing is concluded from what can no longer be read.
	h.Step(1, Unreadable{Resource: kind.Applications, Namespace: "w1", Reason: "forbidden"})
	h.wants("w2 ", 2)
	// No list makes a namespace known that is not watched.
	h.list("", 150)
	h.list("w3", 150, h.app("w3", "a", 93))
	h.Step(1, Bookmark{Resource: kind.Applications, Revision: 160})
	h.wants("w2 ", 2)
}

// The watch of a namespace may lag. What another namespace has shown does not make its view newer, and a view does not wait
// for other namespaces.
func TestNamespaces_ViewIsThatOfOwnNamespace(t *testing.T) {
	h := newByNamespace(t)
	for _, namespace := range []string{"argocd", "w1", "w2"} {
		h.list(namespace, 110)
	}
	h.Step(1, Observed{Resource: kind.Applications, Object: h.app("w1", "a", 150)})
	h.Step(1, Observed{Resource: kind.Applications, Object: h.app("w1", "b", 160)})
	h.Step(1, Deleted{Ref: ref("w1", "b"), UID: "w1-b", Revision: 170})
	h.Step(1, Bookmark{Resource: kind.Applications, Namespace: "argocd", Revision: 200})
	for agent, want := range map[string]uint64{"w1": 170, "w2": 110} {
		l := h.syncs[agent]
		if least, most := l.View(kind.ApplicationScope); least != want || most != want {
			t.Errorf("view of %s is from %d to %d, want %d", agent, least, most, want)
		}
		late := l.staleResources([]engine.Seen{{Scope: kind.ApplicationScope, Revision: 140}})
		if l.fresh.Revision = 1000; len(late) != 0 {
			t.Errorf("%s: %v", agent, late)
		}
		if late = l.staleResources([]engine.Seen{{Scope: kind.ApplicationScope, Revision: 140}}); (len(late) > 0) != (agent == "w2") {
			t.Errorf("view of %s is behind: %v", agent, late)
		}
	}
	if got := h.syncs["w2"].Revision(kind.ApplicationScope); got != 0 {
		t.Errorf("w2 has an object of revision %d", got)
	}
}

// An agent that is mapped by destination needs all namespaces.
func TestNamespaces_DestinationMappingNeedsAll(t *testing.T) {
	h := newByNamespace(t)
	h.Step(1, Register{Agent: kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByDestination, HubNamespace: "w1"}})
	h.list("argocd", 110)
	h.list("w1", 120)
	h.wants("", 0)
	h.list("w2", 130)
	h.wants("w1 w2 ", 0)
	if least, most := h.syncs["w1"].View(kind.ApplicationScope); least != 110 || most != 130 {
		t.Errorf("view from %d to %d", least, most)
	}
}

// The answer to a write is compared with the watch of its own namespace.
func TestNamespaces_ObjectKnownToBeGone(t *testing.T) {
	h := newByNamespace(t)
	h.list("w1", 110, h.app("w1", "a", 90))
	h.list("w2", 110, h.app("w2", "a", 90))
	h.knownGone(ref("w1", "a"), "w1-a", 120)
	h.list("w2", 130, h.app("w2", "a", 90)) // does not show that w1 has caught up
	h.list("w1", 115, h.app("w1", "a", 90)) // is older than the deletion
	h.wants("w1 w2 ", 1)
	h.Step(1, Deleted{Ref: ref("w1", "a"), UID: "w1-a", Revision: 120})
	for _, p := range h.cache.tables[kind.Applications].parts.all {
		if len(p.gone) != 0 {
			t.Errorf("%v is kept", p.gone)
		}
	}
}
