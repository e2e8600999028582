package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// scripted is an API server of which a test says every word, for what a real
// one does once in a blue moon.
func scripted(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func project(name, revision string) string {
	return fmt.Sprintf(`{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":%q,"namespace":"argocd","resourceVersion":%q},"spec":{}}`, name, revision)
}

func listBody(revision, more string, items ...string) string {
	return fmt.Sprintf(`{"kind":"AppProjectList","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, revision, more, strings.Join(items, ","))
}

func refuse(w http.ResponseWriter, code int) {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","message":"scripted","code":%d}`, code)
}

// cut ends an answer in the middle.
func cut() { panic(http.ErrAbortHandler) }

func isWatch(r *http.Request) bool { return r.URL.Query().Has("watch") }

// asksRevision reports whether a request reads only the store's revision.
func asksRevision(r *http.Request) bool { return r.URL.Query().Get("limit") == "1" }

// runWatcher runs a watcher until the test ends; what Run returned is then in
// the channel of errors.
func runWatcher(t *testing.T, c *Client) (<-chan reconcile.Input, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	inputs, ended := make(chan reconcile.Input, 100), make(chan error, 1)
	w := NewWatcher(c, Watch{Resource: kind.AppProjects, Namespace: "argocd"},
		func(_ context.Context, in reconcile.Input) error { inputs <- in; return nil },
		slog.New(slog.DiscardHandler), func() float64 { return 0 })
	done := make(chan struct{})
	go func() { defer close(done); ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return inputs, ended
}

func TestList_ReadsWithoutPagesAfterExpiry(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case isWatch(r):
			<-r.Context().Done()
		case q.Has("continue"):
			refuse(w, http.StatusGone)
		case q.Has("limit"):
			fmt.Fprint(w, listBody("5", "more", project("a", "1")))
		default:
			fmt.Fprint(w, listBody("9", "", project("a", "1"), project("b", "2")))
		}
	})
	inputs, _ := runWatcher(t, c)
	expect(t, inputs, "list [a b]")
}

func TestWatcher_PausesAfterAShortWatch(t *testing.T) {
	watches := make(chan time.Time, 100)
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			watches <- time.Now()
			return
		}
		fmt.Fprint(w, listBody("5", ""))
	})
	runWatcher(t, c)
	first := <-watches
	<-watches
	<-watches
	if took := (<-watches).Sub(first); took < 500*time.Millisecond {
		t.Errorf("four watches in %v", took)
	}
}

func TestWatcher_SkipsUnreadableObject(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			fmt.Fprint(w, listBody("5", ""))
			return
		}
		fmt.Fprintf(w, `{"type":"ADDED","object":{"metadata":{"resourceVersion":"6"}}}`+"\n")
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", project("good", "7"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	inputs, _ := runWatcher(t, c)
	expect(t, inputs, "list []")
	expect(t, inputs, "seen good ")
}

func TestWatcher_ResumesWithoutList(t *testing.T) {
	tries, lists := 0, 0 // requests come one after the other
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case asksRevision(r):
			fmt.Fprint(w, listBody("7", ""))
		case !isWatch(r):
			lists++
			fmt.Fprint(w, listBody("5", ""))
		case r.URL.Query().Get("resourceVersion") != "5":
			<-r.Context().Done()
		default:
			if tries++; tries <= 4 { // longer than three tries take
				refuse(w, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintf(w, `{"type":"DELETED","object":%s}`+"\n", project("a", "7"))
		}
	})
	inputs, _ := runWatcher(t, c)
	expect(t, inputs, "list []")
	expect(t, inputs, "lost a") // seen going, not merely found missing
	if lists != 1 {
		t.Errorf("%d lists, want 1", lists)
	}
}

func TestWatcher_DetectsStoreRegression(t *testing.T) {
	watches := 0
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case asksRevision(r):
			fmt.Fprint(w, listBody("3", ""))
		case !isWatch(r):
			fmt.Fprint(w, listBody("5", ""))
		default:
			if watches++; watches == 1 {
				w.(http.Flusher).Flush()
				cut()
			}
			<-r.Context().Done() // an API server says nothing until its store has come so far again
		}
	})
	_, ended := runWatcher(t, c)
	if err := <-ended; !errors.Is(err, ErrStoreRegressed) {
		t.Errorf("ended with %v", err)
	}
}

func TestWatcher_ReportsUnreadableOncePerReason(t *testing.T) {
	lists := 0
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			<-r.Context().Done()
			return
		}
		if lists++; lists <= 2 {
			refuse(w, http.StatusForbidden)
			return
		}
		fmt.Fprint(w, listBody("5", ""))
	})
	inputs, _ := runWatcher(t, c)
	if got := next(t, inputs); !strings.HasPrefix(got, "blind ") || !strings.Contains(got, "permission") {
		t.Errorf("got %q", got)
	}
	expect(t, inputs, "list []")
}

func TestRevision_UsesAPermittedResource(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "appprojects"):
			refuse(w, http.StatusNotFound) // no CRD
		case strings.Contains(r.URL.Path, "configmaps"):
			refuse(w, http.StatusForbidden)
		default:
			fmt.Fprint(w, listBody("7", ""))
		}
	})
	revision, err := c.Revision(t.Context(), "argocd", kind.AppProjects, kind.ConfigMaps, kind.Secrets)
	if err != nil || revision != "7" {
		t.Errorf("got %q, %v", revision, err)
	}
	if _, err := c.Revision(t.Context(), "argocd", kind.AppProjects, kind.ConfigMaps); !isStatus(err, http.StatusNotFound) {
		t.Errorf("got %v", err)
	}
}

// A watch with Pages passes on each page. If the continue token expires, the list begins again.
func TestWatcher_Pages(t *testing.T) {
	expired := false
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch more := r.URL.Query().Get("continue"); {
		case isWatch(r):
			<-r.Context().Done()
		case more == "" && expired: // without pages
			fmt.Fprint(w, listBody("6", "", project("a", "1"), project("b", "2"), project("c", "3")))
		case more == "":
			fmt.Fprint(w, listBody("5", "second", project("a", "1"), project("b", "2")))
		case more == "second" && !expired:
			expired = true
			fmt.Fprint(w, listBody("5", "third", project("c", "3")))
		default:
			refuse(w, http.StatusGone)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	inputs := make(chan string, 10)
	w := NewWatcher(c, Watch{Resource: kind.AppProjects, Namespace: "argocd", Pages: true}, func(_ context.Context, in reconcile.Input) error {
		list := in.(reconcile.List)
		inputs <- fmt.Sprintf("%d at %d, continues: %v, more: %v", len(list.Objects), list.Revision, list.Continues, list.More)
		return nil
	}, slog.New(slog.DiscardHandler), func() float64 { return 0 })
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	for _, want := range []string{"2 at 5, continues: false, more: true", "1 at 5, continues: true, more: true", "3 at 6, continues: false, more: false"} {
		if got := <-inputs; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cancel()
	<-done
}

// With permission to list but not to watch, the watcher must not list and log in a loop, and the resource is unreadable.
func TestWatcher_ForbiddenWatchIsUnreadable(t *testing.T) {
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			refuse(w, http.StatusForbidden)
			return
		}
		fmt.Fprint(w, listBody("5", "", project("a", "1")))
	})
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	inputs := make(chan reconcile.Input) // unbuffered, so that nothing is logged while the log is read
	w := NewWatcher(c, Watch{Resource: kind.AppProjects, Namespace: "argocd"},
		func(ctx context.Context, in reconcile.Input) error {
			select {
			case inputs <- in:
			case <-ctx.Done():
			}
			return nil
		}, slog.New(slog.NewTextHandler(&log, nil)), func() float64 { return 0 })
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	for range 3 {
		if in := <-inputs; !isA[reconcile.List](in) {
			t.Fatalf("got %T, want a list", in)
		}
		if in := <-inputs; !isA[reconcile.Unreadable](in) {
			t.Fatalf("got %T: what cannot be watched counts as seen", in)
		}
	}
	cancel()
	<-done
	if n := strings.Count(log.String(), "Failed to read objects"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

func isA[T any](v any) bool { _, ok := v.(T); return ok }
