package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

func TestCertificateDenial_MatchesDenyReason(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Agent){
		"":                 func(*v1alpha1.Agent) {},
		"is suspended":     func(a *v1alpha1.Agent) { a.Spec.Suspended = true },
		"is being deleted": func(a *v1alpha1.Agent) { a.DeletionTimestamp = &a.CreationTimestamp },
		"is retired":       func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.RetireAnnotation: "x"} },
	} {
		a := agent("w1", 1, "managed", change)
		d := newTestRegistry(t)
		d.see(a)
		if why := certificateDenial(&a, "managed"); (why == "") != (want == "") || !strings.Contains(why, want) || (why == "") != (d.DenyReason("w1") == "") {
			t.Errorf("%q: certificate denied because %q, connection denied because %q", want, why, d.DenyReason("w1"))
		}
	}
}

// An agent that was deleted may still have its token and the key that it was used
// with: they must not bring it back.
func TestFinalize_DeletesJoinTokens(t *testing.T) {
	var mu sync.Mutex
	var did []string
	going := version("u1", 1, true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch secrets := "/api/v1/namespaces/argocd/secrets"; {
		case r.Method == http.MethodGet && r.URL.Path == secrets:
			fmt.Fprintf(w, `{"kind":"SecretList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"argocd-agent-join-aaaaaaaa","resourceVersion":"7","labels":{%q:"w1"}}},
				{"metadata":{"name":"argocd-agent-join-bbbbbbbb","resourceVersion":"8","labels":{%q:"w2"}}}]}`, pki.JoinLabel, pki.JoinLabel)
		case r.Method == http.MethodGet && path.Base(r.URL.Path) == "w1":
			_ = json.NewEncoder(w).Encode(going)
		case r.Method == http.MethodGet:
			fmt.Fprint(w, `{"metadata":{"name":"agents","resourceVersion":"1"}}`) // the definition
		default:
			did = append(did, r.Method+" "+path.Base(r.URL.Path))
			fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
		}
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestRegistry(t)
	k := newTestReconciler(t, d, client)
	rec := agentRecord{Agent: going}
	if err := k.finalize(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if want := []string{"DELETE argocd-agent-join-aaaaaaaa", "POST configmaps", "PATCH w1"}; !slices.Equal(did, want) {
		t.Errorf("it did %q instead of %q", did, want)
	}
}

func TestRegister_DeletedAgentIsNotRegisteredAgain(t *testing.T) {
	withdrawn := errors.New("the token was withdrawn")
	there := func(change ...func(*v1alpha1.Agent)) *v1alpha1.Agent {
		a := agent("w1", 1, "managed", change...)
		return &a
	}
	deleting := there(func(a *v1alpha1.Agent) { a.DeletionTimestamp = &a.CreationTimestamp })
	for title, test := range map[string]struct {
		seen   []*v1alpha1.Agent // each time that it is read; nil: there is none
		mode   string
		token  error
		writes int // what is said to writes, 0: fine
		did    []string
		want   string
	}{
		"new":                      {seen: []*v1alpha1.Agent{nil}, did: []string{"POST"}},
		"known":                    {seen: []*v1alpha1.Agent{there()}, token: withdrawn, did: []string{"PATCH"}},
		"gone":                     {seen: []*v1alpha1.Agent{nil}, token: withdrawn, want: "the token was withdrawn"},
		"going":                    {seen: []*v1alpha1.Agent{deleting}, want: "is being deleted"},
		"of another mode":          {seen: []*v1alpha1.Agent{there()}, mode: "autonomous", want: "is managed on the hub, but the token is for mode autonomous"},
		"goes while it is written": {seen: []*v1alpha1.Agent{there(), nil}, token: withdrawn, writes: http.StatusNotFound, did: []string{"PATCH"}, want: "the token was withdrawn"},
		"changes and goes":         {seen: []*v1alpha1.Agent{there(), deleting}, writes: http.StatusConflict, did: []string{"PATCH"}, want: "is being deleted"},
		"changes all the time":     {seen: []*v1alpha1.Agent{there()}, writes: http.StatusConflict, did: slices.Repeat([]string{"PATCH"}, 5), want: pki.ErrBusy.Error()},
		"made by others, and gone": {seen: []*v1alpha1.Agent{nil}, writes: http.StatusConflict, did: slices.Repeat([]string{"POST"}, 5), want: pki.ErrBusy.Error()},
	} {
		var did []string
		reads := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body := http.StatusOK, any(map[string]any{"metadata": map[string]any{"name": "w1"}})
			if r.Method == http.MethodGet {
				if a := test.seen[min(reads, len(test.seen)-1)]; a != nil {
					body = a
				} else {
					status = http.StatusNotFound
				}
				reads++
			} else {
				did = append(did, r.Method)
				status = cmp.Or(test.writes, status)
			}
			switch status {
			case http.StatusNotFound:
				notFound(w, r)
				return
			case http.StatusConflict:
				conflict(w)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(body)
		}))
		client, err := kube.NewClient(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		err = Registrations{NewRegistry(RegistryConfig{Client: client, Namespace: "argocd"})}.Register(t.Context(), pki.JoinGrant{Agent: "w1", Mode: cmp.Or(test.mode, "managed")}, func() error { return test.token })
		server.Close()
		if !slices.Equal(did, test.did) || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: it did %q, %v", title, did, err)
		}
	}
}
