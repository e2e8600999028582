package principal

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/node"
)

func TestAPrincipalIsGoneWhenItsLeaseIsNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(nil, "argocd", "here", "", slog.New(slog.DiscardHandler))
		lease := func(revision int) *kind.Object {
			return parsed(t, map[string]any{"metadata": map[string]any{"name": "l", "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
				"annotations": map[string]string{replicaAnnotation: "there"}}})
		}
		give := func(in node.Input) {
			t.Helper()
			if err := r.take(t.Context(), in); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(want bool, when string) {
			t.Helper()
			if r.alive("there") != want || !r.alive("here") {
				t.Errorf("%s: alive %v, want %v", when, !want, want)
			}
		}
		expect(false, "never heard of")
		give(node.List{Resource: kube.Leases, Objects: []*kind.Object{lease(1)}})
		expect(true, "listed")
		time.Sleep(20 * time.Second)
		give(node.Seen{Resource: kube.Leases, Object: lease(2)})
		time.Sleep(20 * time.Second)
		expect(true, "renewed")
		time.Sleep(20 * time.Second)
		give(node.List{Resource: kube.Leases, Objects: []*kind.Object{lease(2)}})
		expect(false, "listed again, and not renewed")
		give(node.Seen{Resource: kube.Leases, Object: lease(3)})
		expect(true, "back")
		give(node.Lost{Ref: kind.Ref{Resource: kube.Leases, Name: "l"}})
		expect(false, "ended")
	})
}
