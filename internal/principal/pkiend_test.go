package principal

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/link"
)

func TestWhoIsNotLetInGetsNoCertificateEither(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.Agent){
		"":                 func(*v1alpha1.Agent) {},
		"is suspended":     func(a *v1alpha1.Agent) { a.Spec.Suspended = true },
		"is being deleted": func(a *v1alpha1.Agent) { a.DeletionTimestamp = &a.CreationTimestamp },
		"is retired":       func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.RetireAnnotation: "x"} },
	} {
		a := agent("w1", 1, "managed", change)
		d := newDesk(t)
		d.see(a)
		if why := uncertified(&a); (why == "") != (want == "") || !strings.Contains(why, want) || (why == "") != (d.barred("w1") == "") {
			t.Errorf("%q: no certificate because %q, not let in because %q", want, why, d.barred("w1"))
		}
	}
}

// An agent that was deleted may still have its token and the key that it was used
// with: they must not bring it back.
func TestTheEndOfAnAgentIsTheEndOfItsTokens(t *testing.T) {
	var mu sync.Mutex
	var did []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch secrets := "/api/v1/namespaces/argocd/secrets"; {
		case r.Method == http.MethodGet && r.URL.Path == secrets:
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"argocd-agent-join-aaaaaaaa","resourceVersion":"7","labels":{%q:"w1"}}},
				{"metadata":{"name":"argocd-agent-join-bbbbbbbb","resourceVersion":"8","labels":{%q:"w2"}}}]}`, pki.JoinLabel, pki.JoinLabel)
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
	d := newDesk(t)
	k := &keeper{registry: d.registry, client: client, namespace: "argocd", certificates: func(string) map[string]time.Time { return nil }, log: d.log}
	rec := record{Agent: agent("w1", 1, "managed", func(a *v1alpha1.Agent) { a.Finalizers = []string{v1alpha1.Finalizer} })}
	if err := k.end(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if want := []string{"DELETE argocd-agent-join-aaaaaaaa", "PATCH w1"}; !slices.Equal(did, want) {
		t.Errorf("it did %q instead of %q", did, want)
	}
}

func TestWhoJoinsTooEarlyIsToldToComeAgain(t *testing.T) {
	p := &principal{}
	if p.shutOffice() != nil {
		t.Error("a hub that never issues certificates says that it will")
	}
	p.cfg.Issue = &Issue{}
	office := p.shutOffice() // its API server has not answered yet
	_, joining := office.Join(t.Context(), link.JoinRequest{})
	_, renewing := office.Renew(t.Context(), link.Peer{}, nil, time.Time{})
	for _, err := range []error{joining, renewing} {
		if told := new(link.EnrollError); !errors.As(err, &told) || !told.Temporary || told.RetryAfter == 0 || !strings.Contains(told.Message, "waits for its API server") {
			t.Errorf("error %v", err)
		}
	}
}
