package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// What stands between this program and the API server answers too: a load
// balancer without a backend, a proxy with another route, a captive portal.
// Only the API server's own word about this very object says that it is gone.
var answers = map[string]struct {
	code int
	body string
	gone bool // API server responded that there is no AppProject a
}{
	"the API server, about the object": {404, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"appprojects.argoproj.io \"a\" not found",` +
		`"reason":"NotFound","details":{"name":"a","group":"argoproj.io","kind":"appprojects"},"code":404}`, true},
	"a load balancer":           {404, "<html>404 Not Found</html>", false},
	"an empty answer":           {404, "", false},
	"the resource is not there": {404, "404 page not found\n", false},
	"another program's JSON":    {404, `{"message":"no Route matched","code":404}`, false},
	"a Status without a reason": {404, `{"kind":"Status","status":"Failure","code":404}`, false},
	"about another name":        {404, `{"kind":"Status","status":"Failure","reason":"NotFound","details":{"name":"b","kind":"appprojects"},"code":404}`, false},
	"about another resource":    {404, `{"kind":"Status","status":"Failure","reason":"NotFound","details":{"name":"a","kind":"secrets"},"code":404}`, false},
	"a proxy's conflict":        {409, "<html>409 Conflict</html>", false},
	"a proxy's end":             {410, "<html>410 Gone</html>", false},
}

func TestIsNotFound_OnlyForTheAPIServersOwnStatus(t *testing.T) {
	for title, a := range answers {
		t.Run(title, func(t *testing.T) {
			c := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(a.code)
				fmt.Fprint(w, a.body)
			})
			o := parsed(t, project("a", "1"))
			if got, err := c.Get(t.Context(), refTo(o)); got != nil || (err == nil) != a.gone {
				t.Errorf("Get: %v, %v", got, err)
			}
			if err := c.Delete(t.Context(), refTo(o), o); (err == nil) != a.gone {
				t.Errorf("Delete: %v", err)
			}
			if _, err := c.PatchStatus(t.Context(), refTo(o), map[string]any{}); IsNotFound(err) != a.gone || IsConflict(err) {
				t.Errorf("PatchStatus: not found %v, conflict %v", IsNotFound(err), IsConflict(err))
			}
			if err := c.CreateNamespace(t.Context(), "team", nil); err == nil {
				t.Error("CreateNamespace: the namespace is taken for one that is there")
			}
		})
	}
}

// If a response does not come from the API server, the request is retried, and the object does not count as deleted.
func TestWriter_RetriesResponsesOfProxies(t *testing.T) {
	for title, a := range answers {
		t.Run(title, func(t *testing.T) {
			c := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(a.code)
				fmt.Fprint(w, a.body)
			})
			inputs := make(chan reconcile.Input, 1)
			w := NewWriter(c, func(_ context.Context, in reconcile.Input) error { inputs <- in; return nil }, NamespacePolicy{}, 1, unhurried, slog.New(slog.DiscardHandler))
			o := parsed(t, project("a", "1"))
			for _, verb := range []reconcile.Verb{reconcile.Update, reconcile.Delete} {
				w.Write(t.Context(), reconcile.Write{Verb: verb, Ref: refTo(o), Object: o})
				w.Wait()
				got := (<-inputs).(reconcile.WriteResult)
				if got.Failure == nil || got.Failure.Stale != a.gone || got.Failure.Code != engine.Unavailable {
					t.Errorf("%v: %+v", verb, got.Failure)
				}
			}
			w.Read(t.Context(), reconcile.Read{ID: 1, Ref: refTo(o)})
			w.Wait()
			select {
			case in := <-inputs:
				if _, lost := in.(reconcile.Deleted); !lost || !a.gone {
					t.Errorf("the read gave %#v", in)
				}
			default:
				if a.gone {
					t.Error("the read gave no input")
				}
			}
		})
	}
}

// A success that is not the API server's proves nothing either.
func TestDeleteAndList_RejectForeignSuccess(t *testing.T) {
	for title, body := range map[string]string{
		"a page":          "<html>Please log in</html>",
		"an empty object": "{}",
		"another object":  `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"other"}}`,
	} {
		t.Run(title, func(t *testing.T) {
			c := scripted(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
			inputs := make(chan reconcile.Input, 1)
			w := NewWriter(c, func(_ context.Context, in reconcile.Input) error { inputs <- in; return nil }, NamespacePolicy{}, 1, unhurried, slog.New(slog.DiscardHandler))
			o := parsed(t, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"a","namespace":"argocd","uid":"u1","resourceVersion":"1"}}`)
			w.Write(t.Context(), reconcile.Write{Verb: reconcile.Delete, Ref: refTo(o), Object: o})
			w.Wait()
			if got := (<-inputs).(reconcile.WriteResult); got.Failure == nil {
				t.Error("the object is taken for deleted")
			}
			if err := c.Delete(t.Context(), refTo(o), o); err == nil {
				t.Error("Delete: the object is taken for deleted")
			}
			if objects, err := c.List(t.Context(), Watch{Resource: kind.AppProjects, Namespace: "argocd"}); err == nil {
				t.Errorf("List: %d objects, and no error", len(objects))
			}
		})
	}
}

// A 404 or 409 of a proxy does not mean that another process deleted or changed the Secret.
func TestSecrets_ProxyNotFoundIsAnError(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusConflict} {
		s := Secrets{Client: scripted(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }), Namespace: "argocd"}
		if got, err := s.Get(t.Context(), "a"); got != nil || err == nil {
			t.Errorf("%d: Get: %v, %v", code, got, err)
		}
		if err := s.Put(t.Context(), &pki.Secret{Name: "a", Revision: "1"}); err == nil || errors.Is(err, pki.ErrBusy) {
			t.Errorf("%d: Put: %v", code, err)
		}
		if ok, err := s.Delete(t.Context(), &pki.Secret{Name: "a", Revision: "1"}); ok || err == nil {
			t.Errorf("%d: Delete: %v, %v", code, ok, err)
		}
	}
}
