package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// bench is a real API server behind a fault proxy. The client has all permissions.
type bench struct {
	t      *testing.T
	api    *lab.FaultyAPI
	client *Client
	name   string // of this test's objects
}

func setUp(t *testing.T) *bench {
	t.Helper()
	l := lab.Get(t)
	api, err := l.Hub().FaultyAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	config := api.Config()
	config.BearerToken, config.BearerTokenFile = adminToken(t, l.Hub()), ""
	c, err := NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	name := "kube-" + strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))
	return &bench{t: t, api: api, client: c, name: name[:min(len(name), 50)]}
}

// adminToken returns a token with all permissions: the tests use verbs that neither principal nor agent needs for these
// objects. The proxy in front of the API server passes no client certificate on.
func adminToken(t *testing.T, c *lab.Cluster) string {
	t.Helper()
	if err := c.Apply(t.Context(), `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: kube-test, namespace: argocd}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: kube-test},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: ServiceAccount, name: kube-test, namespace: argocd}]}
`); err != nil {
		t.Fatal(err)
	}
	answer, err := c.Client().CoreV1().ServiceAccounts("argocd").CreateToken(t.Context(), "kube-test", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func (b *bench) ref(suffix string) kind.Ref {
	return kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: strings.Trim(b.name+suffix, "-")}
}

// project creates an AppProject that goes with the test.
func (b *bench) project(suffix string) *kind.Object {
	b.t.Helper()
	ref := b.ref(suffix)
	o, err := b.client.Create(b.t.Context(), ref, map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": ref.Name, "namespace": ref.Namespace, "labels": map[string]string{"test": b.name}},
		"spec":     map[string]any{"description": "one"},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_, _ = b.client.deleteIf(context.Background(), ref, nil)
	})
	return o
}

// watch starts a watcher of this test's projects.
func (b *bench) watch() (<-chan reconcile.Input, *Watcher) {
	ctx, cancel := context.WithCancel(b.t.Context())
	inputs := make(chan reconcile.Input, 100)
	w := NewWatcher(b.client, Watch{Resource: kind.AppProjects, Namespace: "argocd", Selector: "test=" + b.name},
		func(_ context.Context, in reconcile.Input) error { inputs <- in; return nil },
		slog.New(slog.DiscardHandler), func() float64 { return 0.1 })
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done })
	return inputs, w
}

// next returns the next input that is no bookmark, as a line.
func next(t *testing.T, inputs <-chan reconcile.Input) string {
	t.Helper()
	for {
		select {
		case in := <-inputs:
			switch in := in.(type) {
			case reconcile.List:
				var names []string
				for _, o := range in.Objects {
					names = append(names, o.Name())
				}
				return fmt.Sprintf("list %v", names)
			case reconcile.Observed:
				return "seen " + in.Object.Name() + " " + rawjson.Text(in.Object.Get("spec"), "description")
			case reconcile.Deleted:
				return "lost " + in.Ref.Name
			case reconcile.Unreadable:
				return "blind " + in.Reason
			}
		case <-t.Context().Done():
			t.Fatal("nothing more came")
		}
	}
}

func expect(t *testing.T, inputs <-chan reconcile.Input, want string) {
	t.Helper()
	if got := next(t, inputs); got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func (b *bench) describe(o *kind.Object, text string) *kind.Object {
	b.t.Helper()
	changed, err := b.client.Patch(b.t.Context(), refTo(o), map[string]any{"spec": map[string]any{"description": text}})
	if err != nil {
		b.t.Fatal(err)
	}
	return changed
}

func refTo(o *kind.Object) kind.Ref {
	return kind.Ref{Resource: kind.AppProjects, Namespace: o.Namespace(), Name: o.Name()}
}

func (b *bench) delete(o *kind.Object) {
	b.t.Helper()
	if _, err := b.client.deleteIf(b.t.Context(), refTo(o), nil); err != nil {
		b.t.Fatal(err)
	}
}

func TestWatcher_ListsOnceThenSeesEveryChange(t *testing.T) {
	b := setUp(t)
	first := b.project("-a")
	inputs, _ := b.watch()
	expect(t, inputs, "list ["+first.Name()+"]")
	b.describe(first, "two")
	expect(t, inputs, "seen "+first.Name()+" two")
	second := b.project("-b")
	expect(t, inputs, "seen "+second.Name()+" one")
	b.delete(first)
	expect(t, inputs, "lost "+first.Name())
	if n := b.api.Count(faultproxy.Match{Verbs: []string{"list"}, Path: regexp.MustCompile("/appprojects")}); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
}

func TestWatcher_ResumesAnInterruptedWatch(t *testing.T) {
	b := setUp(t)
	o := b.project("")
	inputs, _ := b.watch()
	expect(t, inputs, "list ["+o.Name()+"]")
	b.describe(o, "two")
	expect(t, inputs, "seen "+o.Name()+" two")
	b.api.CutWatches(faultproxy.Match{})
	b.describe(o, "three")
	expect(t, inputs, "seen "+o.Name()+" three")
	// One list, and one question how far the store is: it might have been put back.
	if n := b.api.Count(faultproxy.Match{Verbs: []string{"list"}, Path: regexp.MustCompile("/appprojects")}); n > 2 {
		t.Errorf("%d lists, want 1 and a question", n)
	}
}

func TestWatcher_ListsAgainAfterExpiredRevision(t *testing.T) {
	b := setUp(t)
	o, gone := b.project("-a"), b.project("-b")
	inputs, _ := b.watch()
	next(t, inputs)
	lab.Await(t, "an open watch", func(context.Context) error {
		if b.api.OpenWatches(faultproxy.Match{}) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	// No new watch until both changes are made: they happen unseen.
	noWatch := b.api.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"list", "watch"}, Path: regexp.MustCompile("/appprojects")}, Do: faultproxy.Unavailable()})
	b.api.ExpireWatches(faultproxy.Match{})
	b.delete(gone)
	b.describe(o, "two")
	noWatch.Remove()
	for {
		got := next(t, inputs)
		if strings.HasPrefix(got, "blind ") {
			continue
		}
		if want := "list [" + o.Name() + "]"; got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		return
	}
}

func TestWatcher_ReportsUnreadableAndRecovers(t *testing.T) {
	b := setUp(t)
	o := b.project("")
	b.api.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"list"}, Path: regexp.MustCompile("/appprojects")}, Do: faultproxy.TooManyRequests(1), Times: 2})
	inputs, _ := b.watch()
	if got := next(t, inputs); !strings.HasPrefix(got, "blind API server responded 429") {
		t.Fatalf("got %q", got)
	}
	expect(t, inputs, "list ["+o.Name()+"]") // the second refusal is no news
}

func TestRelist_EndsTheWatchAndListsAgain(t *testing.T) {
	b := setUp(t)
	o := b.project("")
	inputs, w := b.watch()
	expect(t, inputs, "list ["+o.Name()+"]")
	w.Relist()
	expect(t, inputs, "list ["+o.Name()+"]")
}

// write has the writer carry out one write and returns its answer.
func (b *bench) write(w reconcile.Write, createNamespaces bool) reconcile.WriteResult {
	namespaces := NamespacePolicy{Hint: "make one"}
	if createNamespaces {
		namespaces.Create = func(string) (map[string]string, bool) { return nil, true }
	}

	b.t.Helper()
	answers := make(chan reconcile.Input, 1)
	writer := NewWriter(b.client, func(_ context.Context, in reconcile.Input) error { answers <- in; return nil },
		namespaces, 1, unhurried, slog.New(slog.DiscardHandler))
	writer.Write(b.t.Context(), w)
	writer.Wait()
	return (<-answers).(reconcile.WriteResult)
}

func TestWriter_WritesAreConditional(t *testing.T) {
	b := setUp(t)
	o := b.project("")
	b.describe(o, "two")
	if got := b.write(reconcile.Write{ID: 1, Verb: reconcile.Update, Ref: refTo(o), Object: o}, false); got.Failure == nil || !got.Failure.Stale {
		t.Errorf("update of an old version: %+v", got.Failure)
	}
	if got := b.write(reconcile.Write{ID: 2, Verb: reconcile.Delete, Ref: refTo(o), Object: o}, false); got.Failure == nil || !got.Failure.Stale {
		t.Errorf("delete of an old version: %+v", got.Failure)
	}
	if got := b.write(reconcile.Write{ID: 3, Verb: reconcile.Create, Ref: refTo(o), Object: o}, false); got.Failure == nil {
		t.Error("create of what is there")
	}
	fresh, err := b.client.Get(t.Context(), refTo(o))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.write(reconcile.Write{ID: 4, Verb: reconcile.Delete, Ref: refTo(o), Object: fresh}, false); got.Failure != nil || got.Object != nil {
		t.Errorf("delete: %+v", got)
	}
	if got := b.write(reconcile.Write{ID: 5, Verb: reconcile.Update, Ref: refTo(o), Object: fresh}, false); got.Failure == nil || !got.Failure.Stale {
		t.Errorf("update of what is gone: %+v", got.Failure)
	}
}

func TestWriter_ReturnsTheServersFailure(t *testing.T) {
	b := setUp(t)
	o := b.project("")
	for _, c := range []struct {
		name string
		do   faultproxy.Action
		want engine.Code
	}{
		{"too many requests", faultproxy.TooManyRequests(7), engine.Unavailable},
		{"internal error", faultproxy.InternalError(), engine.Unavailable},
		{"connection lost", faultproxy.Abort(), engine.Unavailable},
	} {
		fault := b.api.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"update"}}, Do: c.do})
		got := b.write(reconcile.Write{ID: 1, Verb: reconcile.Update, Ref: refTo(o), Object: o}, false)
		fault.Remove()
		if got.Failure == nil || got.Failure.Code != c.want || got.Failure.Stale {
			t.Errorf("%s: %+v", c.name, got.Failure)
		}
		if c.name == "too many requests" && got.Failure != nil && got.Failure.RetryAfter != 7*engine.Second {
			t.Errorf("retry after %d ms", got.Failure.RetryAfter)
		}
	}
	bad, err := kind.Parse([]byte(strings.Replace(string(o.Raw()), `"description":"one"`, `"description":7`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.write(reconcile.Write{ID: 2, Verb: reconcile.Update, Ref: refTo(o), Object: bad}, false); got.Failure == nil || got.Failure.Code != engine.Invalid {
		t.Errorf("invalid: %+v", got.Failure)
	}
}

func TestWriter_NamesTheMissingNamespace(t *testing.T) {
	b := setUp(t)
	ref := kind.Ref{Resource: kind.Applications, Namespace: b.name, Name: "a"}
	o, err := kind.Parse(fmt.Appendf(nil, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"a","namespace":%q},"spec":{"project":"default","destination":{}}}`, b.name))
	if err != nil {
		t.Fatal(err)
	}
	got := b.write(reconcile.Write{ID: 1, Verb: reconcile.Create, Ref: ref, Object: o}, false)
	if got.Failure == nil || got.Failure.Code != engine.Unavailable || !strings.Contains(got.Failure.Message, b.name) {
		t.Errorf("%+v", got.Failure)
	}
}

func TestParse_DropsManagedFieldsOnlyInMemory(t *testing.T) {
	b := setUp(t)
	o := b.project("")
	if o.Get("metadata", "managedFields") != nil {
		t.Error("managedFields are kept in memory")
	}
	changed, err := rawjson.Set(o.Raw(), rawjson.Quote("two"), "spec", "description")
	if err != nil {
		t.Fatal(err)
	}
	update, err := kind.Parse(changed)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.write(reconcile.Write{ID: 1, Verb: reconcile.Update, Ref: refTo(o), Object: update}, false); got.Failure != nil {
		t.Fatal(got.Failure.Message)
	}
	stored, err := b.client.send(t.Context(), "GET", b.client.urlOf(kind.AppProjects, o.Namespace(), o.Name(), nil), mediaTypeJSON, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if rawjson.Get(stored, "metadata", "managedFields") == nil {
		t.Error("an update wiped managedFields on the server")
	}
}

func TestIsNotFound_WithARealAPIServer(t *testing.T) {
	b := setUp(t)
	if o, err := b.client.Get(t.Context(), b.ref("-none")); o != nil || err != nil {
		t.Errorf("no such object: %v, %v", o, err)
	}
	missing := kind.Ref{Resource: kind.Resource{Group: "argoproj.io", Version: "v1alpha1", Plural: "nothings", Kind: "Nothing"}, Namespace: "argocd", Name: "x"}
	if o, err := b.client.Get(t.Context(), missing); o != nil || err == nil || IsNotFound(err) {
		t.Errorf("no such resource: %v, %v", o, err)
	}
	o := b.project("")
	if err := b.client.Delete(t.Context(), refTo(o), o); err != nil {
		t.Errorf("deletion: %v", err)
	}
	if err := b.client.Delete(t.Context(), refTo(o), o); err != nil {
		t.Errorf("deletion of what is gone: %v", err)
	}
	if _, err := b.client.Patch(t.Context(), refTo(o), map[string]any{}); !IsNotFound(err) {
		t.Errorf("a patch of what is gone: %v", err)
	}
	elsewhere := kind.Ref{Resource: kind.AppProjects, Namespace: b.name + "-none", Name: "x"}
	_, err := b.client.Create(t.Context(), elsewhere, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": "x", "namespace": elsewhere.Namespace}, "spec": map[string]any{}})
	if !isNamespaceMissing(err) || IsNotFound(err) {
		t.Errorf("no such namespace: %v", err)
	}
}
