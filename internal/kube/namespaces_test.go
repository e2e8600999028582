package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func TestKindWatches_ApplicationsOfEachNamespace(t *testing.T) {
	of := func(anyNamespace bool, namespaces ...string) string {
		var out []string
		for _, w := range KindWatches("argocd", anyNamespace, namespaces) {
			if w.Resource == kind.Applications {
				out = append(out, w.Namespace+"/"+w.part())
			} else if w.Namespace != "argocd" || w.part() != "" {
				t.Errorf("%+v", w)
			}
		}
		return strings.Join(out, ", ")
	}
	for want, got := range map[string]string{"argocd/": of(false), "/": of(true), "w1/w1, w2/w2": of(true, "w1", "w2"), "argocd/argocd": of(true, "argocd")} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// isReady reports whether all watches of a Readiness were answered.
func isReady(r *Readiness) bool {
	select {
	case <-r.Ready():
		return true
	default:
		return false
	}
}

// A standby reads Secrets in two namespaces if its CA has a namespace of its own, and no resource that only agents have.
func TestReadiness_WatchesOfStandby(t *testing.T) {
	r := NewReadiness(StandbyWatches("argocd", "pki", nil))
	for _, w := range StandbyWatches("argocd", "pki", nil) {
		if isReady(r) {
			t.Errorf("it is ready before %s in %q was read", w.Resource.Plural, w.Namespace)
		}
		r.Follow(reconcile.List{Resource: w.Resource, Namespace: w.part()})
	}
	if err := r.Check(); !isReady(r) || err != nil {
		t.Errorf("ready: %v, %v", isReady(r), err)
	}
}

func TestReadiness_WaitsForEveryNamespace(t *testing.T) {
	r := NewReadiness(KindWatches("", true, []string{"w1", "w2"}))
	for _, other := range reconcile.Resources() {
		r.Follow(reconcile.List{Resource: other}) // that of Applications has no namespace and does not count
	}
	r.Follow(reconcile.List{Resource: kind.Applications, Namespace: "w1"})
	if isReady(r) {
		t.Error("it is ready before w2 was read")
	}
	r.Follow(reconcile.Unreadable{Resource: kind.Applications, Namespace: "w2"})
	if err := r.Check(); !isReady(r) || err == nil || err.Error() != "cannot read applications in namespace w2" {
		t.Errorf("ready: %v, %v", isReady(r), err)
	}
	r.Follow(reconcile.List{Resource: kind.Applications, Namespace: "w2"})
	if err := r.Check(); err != nil {
		t.Error(err)
	}
}

// A namespace that cannot be read is reported as that, and the others are read.
func TestRunner_NamespaceThatCannotBeRead(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/namespaces/w1/applications"):
			refuse(w, http.StatusForbidden)
		case isWatch(r):
			<-r.Context().Done()
		default:
			fmt.Fprint(w, `{"kind":"ApplicationList","metadata":{"resourceVersion":"5"},"items":[{"kind":"Application","metadata":{"name":"a","namespace":"w1","resourceVersion":"1"}}]}`)
		}
	})
	var watches []Watch
	for _, w := range KindWatches("argocd", true, []string{"w1", "w2"}) {
		if w.Resource == kind.Applications {
			watches = append(watches, w)
		}
	}
	h := NewRunner(c, RunnerConfig{Reconciler: reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd", ApplicationNamespaces: []string{"w1", "w2"}}),
		Watches: watches, Jitter: func() float64 { return 0 }, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	inputs, done := make(chan string, 100), make(chan error, 1)
	go func() {
		done <- h.Run(ctx, Handlers{ToPeer: func(reconcile.ToPeer) {}, Report: func(reconcile.Report) {}, Applied: func(in reconcile.Input) {
			switch in := in.(type) {
			case reconcile.List:
				inputs <- fmt.Sprint("list of ", in.Namespace, ": ", len(in.Objects))
			case reconcile.Unreadable:
				inputs <- "unreadable: " + in.Namespace
			}
		}})
	}()
	got := map[string]bool{<-inputs: true, <-inputs: true}
	cancel()
	<-done
	if !got["list of w1: 1"] || !got["unreadable: w2"] {
		t.Errorf("%v", got)
	}
}
