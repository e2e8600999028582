package fleet

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

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
