package principal

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// What could not be done for an agent is not done, nor tried forever, when the
// agent is gone.
func TestNoNamespaceIsMadeForAnAgentThatIsGone(t *testing.T) {
	var asked []string
	may := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method)
		switch {
		case r.Method == http.MethodGet:
			notFound(w, r)
		case !may:
			w.WriteHeader(http.StatusForbidden)
		default:
			fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
		}
	}))
	defer server.Close()
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t)
	p := &principal{client: client, log: d.log, registry: d.registry, tasks: newTaskRunner(d.log), ensuredNamespaces: map[string]string{}}
	p.cfg.NamespaceCreate.Enable = true
	for i, name := range []string{"w1", "w2"} {
		d.see(agent(name, i+1, "managed"))
		p.ensureNamespace(kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name})
	}
	p.tasks.runAll(t.Context())
	if p.tasks.left() != 2 {
		t.Fatalf("%d are tried again", p.tasks.left())
	}
	if err := d.apply(t.Context(), reconcile.Deleted{Ref: kind.Ref{Resource: agentResource, Namespace: "argocd", Name: "w1"}, Revision: 9}); err != nil {
		t.Fatal(err)
	}
	asked, may = nil, true
	p.tasks.runAll(t.Context())
	if p.tasks.left() != 0 || !slices.Equal(asked, []string{http.MethodGet, http.MethodPost}) {
		t.Errorf("%d are left; it was asked for %q", p.tasks.left(), asked)
	}
}
