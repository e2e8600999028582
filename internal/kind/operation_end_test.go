package kind

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

func TestTerminate_IgnoresEndedOperation(t *testing.T) {
	for phase, want := range map[string]bool{"Running": true, "Terminating": false, "Succeeded": false, "Failed": false, "Error": false} {
		spoke := object(t, `{"metadata":{"name":"a","namespace":"argo","annotations":{`+ourMark+`}},
			"operation":{"sync":{},"info":[{"name":"argocd-agent/command","value":"c1"}]},
			"status":{"operationState":{"phase":"`+phase+`","startedAt":"2026-01-01T00:00:00Z"}}}`)
		x, err := Execute(spoke, []byte(`{"terminate":{"id":"c1","startedAt":"2026-01-01T00:00:00Z"},"uid":"s"}`), managedSpoke())
		if err != nil || (x.Object != nil) != want {
			t.Errorf("%s: %v, %v", phase, x.Object, err)
		}
	}
}

func TestTerminate_ShowsEndOfOperation(t *testing.T) {
	local := object(t, `{"metadata":{"name":"a","namespace":"one-ns"},"spec":{"destination":{"name":"one"}},
		"status":{"operationState":{"phase":"Terminating","startedAt":"2026-01-01T00:00:00Z","operation":{"sync":{}}}}}`)
	for phase, want := range map[string]string{"Running": "Terminating", "Failed": "Failed", "Succeeded": "Succeeded"} {
		content := `{"status":{"operationState":{"phase":"` + phase + `","startedAt":"2026-01-01T00:00:00Z","operation":{"sync":{}}}}}`
		o, err := StatusKind{}.Merge(local, named("a"), []byte(content), nil, Ownership{}, managedHub())
		if err != nil {
			t.Fatal(err)
		}
		if got := string(o.Get("status", "operationState", "phase")); got != `"`+want+`"` {
			t.Errorf("%s is shown as %s", phase, got)
		}
	}
}

func TestApplication_ReplicaContentIncludesDeletion(t *testing.T) {
	for rest, want := range map[string]bool{
		`"finalizers":["resources-finalizer.argocd.argoproj.io"],"deletionTimestamp":"2026-01-01T00:00:00Z"`: true,
		`"finalizers":["resources-finalizer.argocd.argoproj.io"]`:                                            false,
		`"finalizers":["example.org/x"],"deletionTimestamp":"2026-01-01T00:00:00Z"`:                          false,
	} {
		o := object(t, `{"metadata":{"name":"a","namespace":"argo","annotations":{`+ourMark+`},`+rest+`},"spec":{}}`)
		held, ok := ApplicationKind{}.ReadReplica(o, managedSpoke())
		if !ok || Deleting(held.Content) != want {
			t.Errorf("%s: %s", rest, held.Content)
		}
	}
}

func TestHydrate_EndsOnlyWithItsOwnResult(t *testing.T) {
	local := object(t, `{"metadata":{"name":"a","namespace":"one-ns","annotations":{"argocd.argoproj.io/refresh":"normal","argocd.argoproj.io/hydrate":"normal","argocd.argoproj.io/refresh-timestamp":"t","argocd.argoproj.io/hydrate-timestamp":"t"}},"spec":{"destination":{"name":"one"},"sourceHydrator":{}}}`)
	w := managedHub()
	w.RefreshNonce = func(engine.Key) string { return "second" }
	for extra, want := range map[string][2]bool{ // refresh and hydrate are still pending
		`{"refreshed":"first","hydrated":"first"}`:   {true, true},
		`{"refreshed":"second","hydrated":"first"}`:  {false, true},
		`{"refreshed":"first","hydrated":"second"}`:  {true, false},
		`{"refreshed":"second","hydrated":"second"}`: {false, false},
	} {
		o, err := StatusKind{}.Merge(local, named("a"), []byte(`{"status":{}}`), []byte(extra), Ownership{}, w)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]bool{RefreshPending(o), hydratePending(o)}; got != want {
			t.Errorf("%s: pending is %v", extra, got)
		}
		if got := [2]bool{o.Annotation(RefreshTimeAnnotation) != "", o.Annotation(HydrateTimeAnnotation) != ""}; got != want {
			t.Errorf("%s: times of requests are %v", extra, got)
		}
	}
}
