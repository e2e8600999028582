package reconcile

import (
	"maps"
	"slices"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// namesOf returns the replicas of all pages of a size.
func namesOf(t *testing.T, n *Reconciler, identity string, size int, credentials bool) (names []string, withheld int) {
	t.Helper()
	after := ""
	for range 100 {
		page := n.Replicas(identity, after, size, credentials)
		for i := range page.Items {
			names = append(names, page.Items[i].Scope+" "+page.Items[i].Key().String())
		}
		withheld += page.Withheld
		if page.Next == "" {
			return names, withheld
		}
		if page.Next <= after || len(page.Items) == 0 {
			t.Fatalf("page after %q continues after %q with %d items", after, page.Next, len(page.Items))
		}
		after = page.Next
	}
	t.Fatal("too many pages")
	return nil, 0
}

func TestReplicas_OfOneHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, projectRef("p0"), project("p0", `{}`, onlyW1))
	secret, body := repository("r0")
	p.user(kind.Hub, secret, body)
	for _, name := range []string{"a", "b", "c"} {
		p.user(kind.Hub, ref("w1", name), app("w1", name, "default", "v1"))
	}
	p.user(kind.Spoke, ref("argocd", "local"), app("argocd", "local", "default", "v1"))
	foreign := set(t, []byte(app("argocd", "foreign", "default", "v1")), `{"argocd.argoproj.io/source-uid":"s","argocd.argoproj.io/principal-uid":"principal-0","argocd-agent.argoproj-labs.io/source-generation":"7"}`, "metadata", "annotations")
	p.user(kind.Spoke, ref("argocd", "foreign"), string(foreign))

	spoke := p.sides[kind.Spoke]
	want := []string{"appproject default", "appproject p0", "application a", "application b", "application c", "repository r0"}
	for _, size := range []int{1, 500, 1 << 20} {
		names, _ := namesOf(t, spoke, "principal-1", size, true)
		if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
			t.Errorf("pages of %d bytes: %q", size, names)
		}
	}
	if names, withheld := namesOf(t, spoke, "principal-1", 1, false); len(names) != len(want)-1 || withheld != 1 || slices.Contains(names, "repository r0") {
		t.Errorf("without credentials: %q, %d withheld", names, withheld)
	}
	if names, withheld := namesOf(t, spoke, "principal-0", 1, true); len(names) > 0 || withheld != 1 {
		t.Errorf("of another hub: %q, %d withheld", names, withheld)
	}
	for identity, want := range map[string]uint64{"principal-0": 7, "principal-1": 1} {
		if got := spoke.Replicas(identity, "", 1, true).Generation; got != want {
			t.Errorf("generation of %s: %d, want %d", identity, got, want)
		}
	}
	counted := spoke.Replicas("", "", 1<<20, true)
	if !maps.Equal(counted.Hubs, map[string]int{"principal-1": len(want), "principal-0": 1}) || len(counted.Items) > 0 || counted.Session != "principal-1" || counted.StoreHold != "" {
		t.Errorf("counted: %+v", counted)
	}
	p.loseHub()
	p.connect()
	if page := spoke.Replicas("", "", 1, true); page.StoreHold == "" {
		t.Error("the hold on the new store is not shown")
	}
	if names, _ := namesOf(t, spoke, "principal-0", 1, true); !slices.Equal(names, []string{"application foreign"}) {
		t.Errorf("of another hub, to one with an untrusted store: %q", names)
	}
}

// The lost hub was promoted, and no user edited anything afterwards. A new hub took its place.
func TestReplicas_KnowTheGenerationOfTheLostHub(t *testing.T) {
	for _, mode := range []kind.Mode{kind.Managed, kind.Autonomous} {
		p := newPair(t, mode)
		p.connect()
		if mode == kind.Managed {
			p.user(kind.Hub, projectRef("p0"), project("p0", `{}`, onlyW1))
		}
		p.disconnect()
		memory := p.sides[kind.Spoke].Memory()
		memory.Generation.Number = 5
		p.sides[kind.Hub].cfg.PrincipalUID = "new"
		q := p.restartWith(memory, uint64(p.stores[kind.Hub].rev))
		q.connect()
		spoke := q.sides[kind.Spoke]
		for range 2 {
			if got := spoke.Replicas("principal-1", "", 1, true).Generation; got != 5 {
				t.Errorf("%s: generation of the lost hub: %d", mode, got)
			}
			q.disconnect()
			q = q.restartWith(spoke.Memory(), uint64(p.stores[kind.Hub].rev))
			spoke = q.sides[kind.Spoke]
		}
	}
}

// The content of a replica is what its hub publishes.
func TestReplicas_HaveTheContentOfTheHub(t *testing.T) {
	p := newPair(t, kind.Managed)
	p.connect()
	p.user(kind.Hub, ref("w1", "a"), app("w1", "a", "default", "v1"))
	hub := p.sides[kind.Hub].syncs["w1"]
	for _, r := range p.sides[kind.Spoke].Replicas("principal-1", "", 1<<20, true).Items {
		content, _, ok := hub.Content(r.Scope, r.Key())
		if !ok || string(content) != string(r.Content) || r.Changed || r.Deleting || len(r.Lost) > 0 {
			t.Errorf("%s %s: %+v, want %s", r.Scope, r.Key(), r, content)
		}
	}
	// A user changes the replica while the agent cannot correct it.
	p.hook = func(side kind.Side, _ Write) bool { return side == kind.Spoke }
	p.edit(kind.Spoke, ref("argocd", "a"), `"v2"`, "spec", "source", "targetRevision")
	for _, r := range p.sides[kind.Spoke].Replicas("principal-1", "", 1<<20, true).Items {
		if r.Changed != (r.Scope == kind.ApplicationScope) {
			t.Errorf("after an edit: %+v", r)
		}
	}
}

func TestReplicas_OnlyOfManagedAgents(t *testing.T) {
	p := newPair(t, kind.Autonomous)
	p.user(kind.Spoke, ref("argocd", "a"), app("argocd", "a", "default", "v1"))
	p.connect()
	if page := p.sides[kind.Spoke].Replicas("principal-1", "", 1<<20, true); len(page.Hubs) > 0 || len(page.Items) > 0 {
		t.Errorf("%+v", page)
	}
	if page := p.sides[kind.Hub].Replicas("principal-1", "", 1<<20, true); len(page.Hubs) > 0 || len(page.Items) > 0 {
		t.Errorf("the hub: %+v", page)
	}
}
