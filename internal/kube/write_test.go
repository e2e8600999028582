package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func parsed(t *testing.T, text string) *kind.Object {
	t.Helper()
	o, err := kind.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWriter_QueuedWritesNeedNoGoroutine(t *testing.T) {
	release := make(chan struct{})
	c := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		fmt.Fprint(w, project("a", "2"))
	})
	const writes = 1000
	answers := make(chan reconcile.Input, writes)
	w := NewWriter(c, func(_ context.Context, in reconcile.Input) error { answers <- in; return nil }, NamespacePolicy{}, 2, unhurried, slog.New(slog.DiscardHandler))
	before := runtime.NumGoroutine()
	for i := range writes {
		o := parsed(t, project(fmt.Sprintf("p-%d", i), "1"))
		w.Write(t.Context(), reconcile.Write{ID: uint64(i), Verb: reconcile.Update, Ref: refTo(o), Object: o})
	}
	if more := runtime.NumGoroutine() - before; more > 50 {
		t.Errorf("%d goroutines for %d writes", more, writes)
	}
	close(release)
	w.Wait()
	if len(answers) != writes {
		t.Errorf("%d answers to %d writes", len(answers), writes)
	}
}

func TestWriter_LogsAFailureOnce(t *testing.T) {
	broken := true
	c := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
		if broken {
			refuse(w, http.StatusForbidden)
			return
		}
		fmt.Fprint(w, project("a", "2"))
	})
	var log bytes.Buffer
	w := NewWriter(c, func(context.Context, reconcile.Input) error { return nil }, NamespacePolicy{}, 1, unhurried, slog.New(slog.NewTextHandler(&log, nil)))
	o := parsed(t, project("a", "1"))
	write := func() {
		w.Write(t.Context(), reconcile.Write{Verb: reconcile.Update, Ref: refTo(o), Object: o, Reason: "apply x"})
		w.Wait()
	}
	write()
	write()
	if n := strings.Count(log.String(), "Failed to write object"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	broken = false
	write()
	broken = true
	write()
	if n := strings.Count(log.String(), "Failed to write object"); n != 2 {
		t.Errorf("a failure after a success is news; logged %d times:\n%s", n, log.String())
	}
}

func TestWriter_CreatesOnlyAMissingNamespace(t *testing.T) {
	var made []string
	missing := `{"kind":"Status","status":"Failure","reason":"NotFound","message":"namespaces \"team\" not found","details":{"name":"team","kind":"namespaces"},"code":404}`
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/api/v1/namespaces"):
			made = append(made, "x")
			fmt.Fprint(w, `{"metadata":{"name":"team"}}`)
		case len(made) > 0:
			fmt.Fprint(w, project("a", "2"))
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, missing)
		}
	})
	o := parsed(t, project("a", ""))
	write := func(namespaces NamespacePolicy) reconcile.WriteResult {
		answers := make(chan reconcile.Input, 1)
		w := NewWriter(c, func(_ context.Context, in reconcile.Input) error { answers <- in; return nil }, namespaces, 1, unhurried, slog.New(slog.DiscardHandler))
		w.Write(t.Context(), reconcile.Write{Verb: reconcile.Create, Ref: refTo(o), Object: o})
		w.Wait()
		return (<-answers).(reconcile.WriteResult)
	}
	create := func(string) (map[string]string, bool) { return map[string]string{"a": "b"}, true }

	got := write(NamespacePolicy{Hint: "make it"})
	if got.Failure == nil || got.Failure.Code != engine.Unavailable || !strings.Contains(got.Failure.Message, "make it") {
		t.Errorf("not allowed: %+v", got.Failure)
	}
	missing = `{"kind":"Status","message":"the server could not find the requested resource","details":{},"code":404}`
	got = write(NamespacePolicy{Hint: "make it", Create: create})
	if got.Failure == nil || got.Failure.Code != engine.Unavailable || strings.Contains(got.Failure.Message, "make it") || len(made) > 0 {
		t.Errorf("no CRD: %+v, %d namespaces made", got.Failure, len(made))
	}
	missing = `{"kind":"Status","status":"Failure","reason":"NotFound","message":"namespaces \"team\" not found","details":{"name":"team","kind":"namespaces"},"code":404}`
	if got = write(NamespacePolicy{Create: create}); got.Failure != nil || len(made) != 1 {
		t.Errorf("allowed: %+v, %d namespaces made", got.Failure, len(made))
	}
}

// The next process has to know of a removal before it is made, or it may be
// undone. What cannot be remembered is not done, whatever the reason.
func TestWriter_RemembersBeforeTheWrite(t *testing.T) {
	for title, test := range map[string]struct {
		fails error
		asked int
	}{
		"remembered": {nil, 1},
		"forbidden":  {&apiError{status: http.StatusForbidden, reason: "Forbidden", message: "no"}, 0},
		"gone":       {&apiError{status: http.StatusNotFound, reason: metav1.StatusReasonNotFound, details: metav1.StatusDetails{Kind: "leases", Name: "x"}, path: "/leases/x"}, 0},
	} {
		asked := 0
		c := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			fmt.Fprint(w, `{"kind":"Status","status":"Success"}`)
		})
		answers := make(chan reconcile.Input, 1)
		w := NewWriter(c, func(_ context.Context, in reconcile.Input) error { answers <- in; return nil }, NamespacePolicy{}, 1, unhurried, slog.New(slog.DiscardHandler))
		w.remember = func(_ context.Context, m reconcile.Memory) error {
			if asked != 0 || m.Store.Revision != 7 {
				t.Errorf("%s: %+v is remembered after %d requests", title, m, asked)
			}
			return test.fails
		}
		o := parsed(t, project("a", "1"))
		w.Write(t.Context(), reconcile.Write{Verb: reconcile.Delete, Ref: refTo(o), Object: o, Remember: &reconcile.Memory{Store: engine.Store{Revision: 7}}})
		w.Wait()
		got := (<-answers).(reconcile.WriteResult)
		if asked != test.asked || (got.Failure == nil) != (test.fails == nil) || got.Failure != nil && (got.Failure.Stale || got.Failure.Code != engine.Unavailable) {
			t.Errorf("%s: %d requests, %+v", title, asked, got.Failure)
		}
	}
}

// An API server with an older CRD answers with an object that lacks a field.
func TestWriter_WritesOnlyIfFieldsAreStored(t *testing.T) {
	const verified = `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"a","namespace":"argocd"},"spec":{"sourceIntegrity":{"git":{}}}}`
	for _, c := range []struct {
		name      string
		verb      reconcile.Verb
		mustStore []string
		answer    string
		requests  string
		written   bool
	}{
		{"stored", reconcile.Create, []string{"spec.sourceIntegrity"}, verified, "POST dryRun,POST", true},
		{"dropped", reconcile.Create, []string{"spec.sourceIntegrity"}, project("a", "2"), "POST dryRun", false},
		{"dropped in an update", reconcile.Update, []string{"spec.sourceIntegrity"}, project("a", "2"), "PUT dryRun", false},
		{"may be dropped", reconcile.Update, nil, project("a", "2"), "PUT", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var requests []string
			client := scripted(t, func(w http.ResponseWriter, r *http.Request) {
				request := r.Method
				if r.URL.Query().Get("dryRun") == "All" {
					request += " dryRun"
				}
				requests = append(requests, request)
				fmt.Fprint(w, c.answer)
			})
			var result reconcile.WriteResult
			w := NewWriter(client, func(_ context.Context, in reconcile.Input) error { result = in.(reconcile.WriteResult); return nil }, NamespacePolicy{}, 1, unhurried, slog.New(slog.DiscardHandler))
			o := parsed(t, verified)
			w.Write(t.Context(), reconcile.Write{ID: 1, Verb: c.verb, Ref: refTo(o), Object: o, MustStore: c.mustStore})
			w.Wait()
			if got := strings.Join(requests, ","); got != c.requests {
				t.Errorf("requests %s, want %s", got, c.requests)
			}
			if (result.Failure == nil) != c.written {
				t.Fatalf("failure %+v", result.Failure)
			}
			if f := result.Failure; f != nil && (f.Code != engine.NotAllowed || len(f.NotStored) != 1 || f.NotStored[0] != "spec.sourceIntegrity" || !strings.Contains(f.Message, "--dropped-fields")) {
				t.Errorf("failure %+v", f)
			}
		})
	}
}
