package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestWriteOutage_ReportsFailingWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := true
		api := &server{answer: func(r *http.Request) (int, string, string) {
			if full && r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "Reviews") {
				return http.StatusInternalServerError, "", "etcdserver: mvcc: database space exceeded"
			}
			return http.StatusOK, "", ""
		}}
		c, err := NewClient(&rest.Config{Host: "http://api", Transport: api})
		if err != nil {
			t.Fatal(err)
		}
		ref := kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "a"}
		write := func() { _, _ = c.Create(t.Context(), ref, map[string]any{}) }
		says := func(moment string, texts ...string) {
			t.Helper()
			got := c.WriteOutage()
			if (got == "") != (len(texts) == 0) {
				t.Fatalf("%s: %q", moment, got)
			}
			for _, text := range texts {
				if !strings.Contains(got, text) {
					t.Errorf("%s: %q, without %q", moment, got, text)
				}
			}
		}
		says("in the beginning")
		began := time.Now().UTC().Truncate(time.Second).Format(time.RFC3339)
		write()
		says("after one refusal")
		time.Sleep(reportAfter)
		says("and nothing else for a while", began, "database space exceeded")
		for range 3 { // reading goes on, and so do questions
			_, _ = c.Get(t.Context(), ref)
			_, _ = c.send(t.Context(), http.MethodPost, "http://api/apis/authorization.k8s.io/v1/subjectaccessReviews", mediaTypeJSON, mediaTypeJSON, []byte("{}"))
		}
		says("while reads get through", "database space exceeded")

		write()
		full = false
		write()
		says("some get through, some do not", began)
		time.Sleep(recoveryPeriod / 2)
		full = true
		write()
		full = false
		write()
		time.Sleep(recoveryPeriod / 2)
		says("it is one outage", began)
		time.Sleep(recoveryPeriod)
		says("nothing was refused for a while")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		full = true
		_, _ = c.Create(ended, ref, map[string]any{})
		time.Sleep(reportAfter)
		says("what this program gave up is no outage of the API server")

		write()
		full = false
		write()
		time.Sleep(reportAfter)
		says("a single failure is not reported")
	})
}

// Each change of the sentence is a write on the hub, for each agent with a write outage.
func TestWriteOutage_ChangesOnlyWithTheReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port, why := 40000, "connection reset by peer"
		api := &server{answer: func(*http.Request) (int, string, string) {
			port++
			return http.StatusBadGateway, "", fmt.Sprintf("read tcp 10.0.0.5:%d->10.96.0.1:443: %s", port, why)
		}}
		c, err := NewClient(&rest.Config{Host: "http://api", Transport: api})
		if err != nil {
			t.Fatal(err)
		}
		said := map[string]bool{}
		write := func() {
			_, _ = c.Create(t.Context(), kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "a"}, map[string]any{})
			time.Sleep(reportAfter)
			said[c.WriteOutage()] = true
		}
		for range 10 {
			write()
		}
		if len(said) != 1 {
			t.Errorf("one reason is reported in %d sentences", len(said))
		}
		why = "no route to host"
		write()
		if len(said) != 2 || !strings.Contains(c.WriteOutage(), why) {
			t.Errorf("another reason is reported as %q", c.WriteOutage())
		}
	})
}

// The hub listens to one line, and to no long one.
func TestWriteOutage_IsOneShortLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &server{answer: func(*http.Request) (int, string, string) {
			return http.StatusServiceUnavailable, "", "it is\ntoo much " + strings.Repeat("äh ", 2000)
		}}
		c, err := NewClient(&rest.Config{Host: "http://api", Transport: api})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Create(t.Context(), kind.Ref{Resource: kind.AppProjects, Namespace: "argocd", Name: "a"}, map[string]any{})
		time.Sleep(reportAfter)
		if got := c.WriteOutage(); len(got) > maxReasonLen+100 || !strings.Contains(got, "it is too much äh") || !utf8.ValidString(got) {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}
