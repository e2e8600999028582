package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// metadataOf is the metadata of a CRD, as an API server sends it on request.
func metadataOf(name, revision string, generation int) string {
	return fmt.Sprintf(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q,"uid":"u","resourceVersion":%q,"generation":%d}}`, name, revision, generation)
}

func listOf(item string) string {
	return strings.Replace(listBody("5", "", item), "AppProjectList", "PartialObjectMetadataList", 1)
}

// runSchemas runs a watch of CRDs until the test ends.
func runSchemas(t *testing.T, answer http.HandlerFunc) <-chan reconcile.Schema {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	h := NewRunner(scripted(t, answer), RunnerConfig{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Jitter: func() float64 { return 0 }})
	h.WatchSchemas()
	posted := make(chan reconcile.Schema)
	var wg sync.WaitGroup
	for _, w := range h.watchers {
		wg.Go(func() { _ = w.Run(ctx) })
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case in := <-h.inbox:
				select {
				case posted <- in.(reconcile.Schema):
				case <-ctx.Done():
				}
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return posted
}

func ofApplications(r *http.Request) bool {
	return r.URL.Query().Get("fieldSelector") == "metadata.name=applications.argoproj.io"
}

func TestWatchSchemas_PostsChangedCRD(t *testing.T) {
	relisted := atomic.Bool{}
	posted := runSchemas(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apiextensions.k8s.io/v1/customresourcedefinitions" || !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
			t.Errorf("asks for %s as %s", r.URL, r.Header.Get("Accept"))
		}
		switch {
		case !ofApplications(r):
			refuse(w, http.StatusForbidden)
		case !isWatch(r):
			fmt.Fprint(w, listOf(metadataOf("applications.argoproj.io", "5", 1)))
		case relisted.CompareAndSwap(false, true):
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, metadataOf("applications.argoproj.io", "6", 1)) // its status
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, metadataOf("applications.argoproj.io", "7", 2))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			<-r.Context().Done()
		}
	})
	var applications []string
	unknown := false
	for len(applications) < 3 || !unknown {
		in := <-posted
		if in.Resource == kind.AppProjects {
			unknown = in.Version == ""
			continue
		}
		applications = append(applications, in.Version)
	}
	if got := strings.Join(applications, ","); got != "u/1,u/1,u/2" {
		t.Errorf("posted %s", got)
	}
}

// A watch that was cut is taken up again with the permissions of a watch by name.
func TestWatchSchemas_InterruptedWatchNeedsNoMorePermissions(t *testing.T) {
	watches := atomic.Int32{}
	posted := runSchemas(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("fieldSelector") == "":
			t.Errorf("asks for %s", r.URL)
			refuse(w, http.StatusForbidden)
		case !ofApplications(r):
			refuse(w, http.StatusForbidden)
		case !isWatch(r):
			fmt.Fprint(w, listOf(metadataOf("applications.argoproj.io", "5", 1)))
		case watches.Add(1) < 3:
			cut()
		default:
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`, metadataOf("applications.argoproj.io", "7", 2))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	for in := range posted {
		if in.Resource == kind.Applications && in.Version == "u/2" {
			return
		}
	}
}
