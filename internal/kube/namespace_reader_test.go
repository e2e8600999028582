package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// The reads of namespaces that no session waits for are all stuck. A session does not wait for them.
func TestNamespaceReader_SessionsDoNotWaitForOthers(t *testing.T) {
	stuck := make(chan struct{}, parallelOtherReads)
	c := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/namespaces/slow-"):
			stuck <- struct{}{}
			<-r.Context().Done()
		case strings.Contains(r.URL.Path, "/namespaces/broken/"):
			refuse(w, http.StatusForbidden)
		default:
			fmt.Fprint(w, `{"kind":"ApplicationList","metadata":{"resourceVersion":"5"},"items":[{"kind":"Application","metadata":{"name":"a","namespace":"w1","resourceVersion":"1","managedFields":[]}}]}`)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan reconcile.ApplicationsRead, 100)
	r := newNamespaceReader(c, func(_ context.Context, in reconcile.Input) error {
		answers <- in.(reconcile.ApplicationsRead)
		return nil
	}, slog.New(slog.DiscardHandler))
	for i := range 10 {
		r.read(ctx, reconcile.ReadApplications{Namespace: fmt.Sprint("slow-", i)})
		r.read(ctx, reconcile.ReadApplications{Namespace: fmt.Sprint("slow-", i)}) // the core does not wait forever
	}
	if len(r.pending) != 10 {
		t.Errorf("%d requests are pending", len(r.pending))
	}
	for range parallelOtherReads {
		<-stuck
	}
	r.read(ctx, reconcile.ReadApplications{Namespace: "w1", Session: true})
	if got := <-answers; got.Namespace != "w1" || got.Reason != "" || len(got.Objects) != 1 || got.Objects[0].Get("metadata", "managedFields") != nil {
		t.Errorf("%+v", got)
	}
	r.read(ctx, reconcile.ReadApplications{Namespace: "broken", Session: true})
	if got := <-answers; got.Namespace != "broken" || got.Reason == "" || got.Objects != nil {
		t.Errorf("%+v", got)
	}
	cancel()
	r.wg.Wait()
	if len(stuck) > 0 {
		t.Errorf("%d more reads than allowed", len(stuck))
	}
}
