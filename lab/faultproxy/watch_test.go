package faultproxy

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// open starts a watch and returns its sender too.
func open(t *testing.T, s *stub, client kubernetes.Interface) (watch.Interface, chan<- watch.Event) {
	t.Helper()
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	t.Cleanup(w.Stop)
	return w, <-s.watches
}

// next returns the name in the next event, or the type of the event, or "" at the end of the stream.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	select {
	case event, open := <-w.ResultChan():
		if !open {
			return ""
		}
		if cm, ok := event.Object.(*corev1.ConfigMap); ok {
			return cm.Name
		}
		if event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
			return "expired"
		}
		return string(event.Type)
	case <-time.After(patience):
		t.Fatal("no event came")
		return ""
	}
}

func TestWatch_StreamsAndEnds(t *testing.T) {
	for _, form := range []string{inJSON, inProtobuf} {
		t.Run(form, func(t *testing.T) {
			s := newStub(t)
			api := s.front()
			client := s.client(api, form)
			all := Match{Path: regexp.MustCompile(`/configmaps$`)}
			for want, end := range map[string]func(Match) int{"expired": api.ExpireWatches, "": api.EndWatches} {
				w, events := open(t, s, client)
				events <- watch.Event{Type: watch.Added, Object: named("a")}
				if got := next(t, w); got != "a" {
					t.Fatalf("first event: %q", got)
				}
				if n := api.OpenWatches(all); n != 1 {
					t.Errorf("%d watches are open", n)
				}
				if n := end(Match{Path: regexp.MustCompile(`/secrets$`)}); n != 0 {
					t.Errorf("ended %d watches of others", n)
				}
				if n := end(all); n != 1 {
					t.Errorf("ended %d watches, want 1", n)
				}
				if got := next(t, w); got != want {
					t.Errorf("the watch ended with %q, want %q", got, want)
				}
				eventually(t, "no watch is open", func() bool { return api.OpenWatches(all) == 0 })
			}
		})
	}
}

func TestWatch_CutBreaksStream(t *testing.T) {
	s := newStub(t)
	api := s.front()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL()+"/api/v1/namespaces/default/configmaps?watch=true", nil)
	must(t, err)
	req.Header.Set("Accept", inJSON)
	resp, err := s.Client().Do(req)
	must(t, err)
	defer resp.Body.Close()
	if n := api.CutWatches(Match{}); n != 1 {
		t.Fatalf("cut %d watches", n)
	}
	if rest, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the stream ended in order after %q", rest)
	}
}

func TestWatch_RuleEndsAfterEvents(t *testing.T) {
	s := newStub(t)
	api := s.front()
	client := s.client(api, inJSON)
	api.Add(Rule{Do: ExpireWatch(1), Times: 1})
	w, events := open(t, s, client)
	events <- watch.Event{Type: watch.Added, Object: named("a")}
	if got := []string{next(t, w), next(t, w), next(t, w)}; !slices.Equal(got, []string{"a", "expired", ""}) {
		t.Errorf("events %q", got)
	}
	must(t, update(t, client, "x")) // only watches expire
	api.Add(Rule{Do: CutWatch(1), Times: 1})
	w, events = open(t, s, client)
	events <- watch.Event{Type: watch.Added, Object: named("a")}
	if got := []string{next(t, w), next(t, w)}; got[0] != "a" || got[1] != broken && got[1] != "" {
		t.Errorf("a cut watch had %q", got)
	}
	w, events = open(t, s, client)
	events <- watch.Event{Type: watch.Modified, Object: named("b")}
	if got := next(t, w); got != "b" {
		t.Errorf("after the faults: %q", got)
	}
	api.Add(Rule{Match: Match{Verbs: []string{"watch"}}, Do: Gone()})
	if _, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a refused watch: %v", err)
	}
}
