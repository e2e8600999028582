package fleet

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestReplicas_AliveWhileLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReplicas(nil, nil, "argocd", "here", "", slog.New(slog.DiscardHandler))
		lease := func(revision int) *kind.Object {
			return parsed(t, map[string]any{"metadata": map[string]any{"name": "l", "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
				"annotations": map[string]string{replicaAnnotation: "there"}}})
		}
		give := func(in reconcile.Input) {
			t.Helper()
			if err := r.Apply(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want bool, when string) {
			t.Helper()
			if r.Alive("there") != want || !r.Alive("here") {
				t.Errorf("%s: alive %v, want %v", when, !want, want)
			}
		}
		expect(false, "never heard of")
		give(reconcile.List{Resource: kube.Leases, Objects: []*kind.Object{lease(1)}})
		expect(true, "listed")
		time.Sleep(20 * time.Second)
		give(reconcile.Observed{Resource: kube.Leases, Object: lease(2)})
		time.Sleep(20 * time.Second)
		expect(true, "renewed")
		time.Sleep(20 * time.Second)
		give(reconcile.List{Resource: kube.Leases, Objects: []*kind.Object{lease(2)}})
		expect(false, "listed again, and not renewed")
		give(reconcile.Observed{Resource: kube.Leases, Object: lease(3)})
		expect(true, "back")
		give(reconcile.Deleted{Ref: kind.Ref{Resource: kube.Leases, Name: "l"}})
		expect(false, "ended")
	})
}

func TestReplicas_SumsUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReplicas(nil, nil, "argocd", "here", "", slog.New(slog.DiscardHandler))
		r.setFleet(reconcile.FleetStatus{Settings: "s1"})
		revision := 0
		lease := func(replica, agents string) *kind.Object {
			revision++
			return parsed(t, map[string]any{"metadata": map[string]any{"name": replica, "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
				"annotations": map[string]string{replicaAnnotation: replica, fleetAnnotation: agents}}})
		}
		is := func(when string, want reconcile.FleetOthers, known bool) {
			t.Helper()
			if got, ok := r.others(); got != want || ok != known {
				t.Errorf("%s: %+v, known %v", when, got, ok)
			}
		}
		give := func(objects ...*kind.Object) {
			t.Helper()
			if err := r.Apply(t.Context(), reconcile.List{Resource: kube.Leases, Objects: objects}); err != nil {
				t.Fatal(err)
			}
		}
		const mine, theirs = `{"Compared":9,"Affected":9,"Settings":"s1"}`, `{"Compared":5,"Opening":2,"Affected":3,"Items":7,"Settings":"s1"}`
		is("nothing was read", reconcile.FleetOthers{}, false)
		give(lease("here", mine))
		is("this one alone", reconcile.FleetOthers{}, true)
		both := reconcile.FleetOthers{FleetTotals: reconcile.FleetTotals{Compared: 10, Opening: 4, Affected: 6, Items: 14}}
		give(lease("here", mine), lease("b", theirs), lease("c", theirs))
		is("two others", both, true)
		give(lease("here", mine), lease("b", theirs), lease("c", `{"Settings":"s0"}`))
		is("one has other settings", reconcile.FleetOthers{FleetTotals: reconcile.FleetTotals{Compared: 5, Opening: 2, Affected: 3, Items: 7}, Differ: true}, true)
		give(lease("here", mine), lease("b", ""))
		is("one is of an older release", reconcile.FleetOthers{Differ: true}, true)
		time.Sleep(leaseDuration)
		is("they are gone", reconcile.FleetOthers{}, true)
	})
}

// Of three replicas exactly one exports what exists once for an agent, whether the agent is connected or not.
func TestReplicas_OneReportsAnAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"p-1", "p-2", "p-3"}
		var leases []*kind.Object
		for i, name := range append(names, "") { // the last one is not of a replica
			leases = append(leases, parsed(t, map[string]any{"metadata": map[string]any{"name": fmt.Sprint("l", i), "namespace": "argocd", "resourceVersion": fmt.Sprint(i + 1),
				"annotations": map[string]string{replicaAnnotation: name}}}))
		}
		registry := newTestRegistry(t)
		all := map[string]*Replicas{}
		for _, name := range names {
			all[name] = NewReplicas(nil, registry.Registry, "argocd", name, "", slog.New(slog.DiscardHandler))
		}
		give := func(present []*kind.Object, to ...string) {
			t.Helper()
			for _, name := range to {
				if err := all[name].Apply(t.Context(), reconcile.List{Resource: kube.Leases, Objects: present}); err != nil {
					t.Fatal(err)
				}
			}
		}
		expect := func(when, want string, alive ...string) {
			t.Helper()
			for _, name := range alive {
				if got := all[name].Reports("w1"); got != (name == want) {
					t.Errorf("%s: %s reports: %v", when, name, got)
				}
			}
		}
		give(leases, names...)
		expect("unknown", "p-1", names...)
		registry.see(agent("w1", 1, "managed"))
		expect("never connected", "p-1", names...)
		on := func(principal string) func(*v1alpha1.Agent) {
			return func(a *v1alpha1.Agent) { a.Status.Connected, a.Status.Principal = true, principal }
		}
		registry.see(agent("w1", 2, "managed", on("p-3")))
		expect("connected to the third", "p-3", names...)
		registry.see(agent("w1", 3, "managed", func(a *v1alpha1.Agent) { a.Status.Principal = "p-3" }))
		expect("disconnected from the third", "p-3", names...)
		registry.see(agent("w1", 4, "managed", on("p-1")))
		time.Sleep(leaseDuration) // the first has crashed
		for i, o := range leases[1:3] {
			leases[i+1] = parsed(t, map[string]any{"metadata": map[string]any{"name": o.Name(), "namespace": "argocd", "resourceVersion": "9", "annotations": o.Annotations()}})
		}
		give(leases, "p-2", "p-3")
		expect("its replica has crashed", "p-2", "p-2", "p-3")
	})
}
