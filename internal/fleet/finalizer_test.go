package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kube"
)

// archive is an API server of which one sees what is done to it.
type archive struct {
	mu      sync.Mutex
	objects map[string]any // by the last part of their paths
	did     []string
	asked   func(name string) // before anything is answered
	proxied string            // what something else answers for that does not have it
}

func (a *archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := path.Base(r.URL.Path)
	if a.asked != nil {
		a.asked(r.Method + " " + name)
	}
	if name == a.proxied {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	o, there := a.objects[name]
	switch {
	case r.Method == http.MethodGet && name == "secrets":
		fmt.Fprint(w, `{"kind":"SecretList","metadata":{"resourceVersion":"9"},"items":[]}`)
		return
	case r.Method == http.MethodGet && !there:
		notFound(w, r)
		return
	case r.Method == http.MethodDelete:
		var options struct{ Preconditions struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil || o.(map[string]any)["metadata"].(map[string]any)["uid"] != options.Preconditions.UID {
			conflict(w)
			return
		}
		delete(a.objects, name)
	}
	if r.Method != http.MethodGet {
		a.did = append(a.did, r.Method+" "+name)
	}
	if !there {
		o = map[string]any{"metadata": map[string]any{"name": name}}
	}
	_ = json.NewEncoder(w).Encode(o)
}

// made is a Secret that the principal has made for an agent.
func made(agent string) map[string]any {
	return map[string]any{"metadata": map[string]any{"name": defaultSecretName(agent), "namespace": "argocd", "resourceVersion": "3", "uid": "s1",
		"labels": map[string]string{AgentLabel: agent}, "annotations": map[string]string{createdByAnnotation: "principal", derivedAnnotation: "x"}}}
}

// lagging returns a Reconciler that has seen a terminating Agent and no Secret.
func lagging(t *testing.T, a *archive) (*Reconciler, agentRecord) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client, err := kube.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	d := newTestRegistry(t)
	going := version("u1", 5, true)
	d.see(going)
	return newTestReconciler(t, d, client), agentRecord{Agent: going, revision: 5}
}

// version is the Agent w1 as it was at some time.
func version(uid types.UID, revision int, deleting bool) v1alpha1.Agent {
	return agent("w1", revision, "managed", func(a *v1alpha1.Agent) {
		a.UID, a.Finalizers = uid, []string{v1alpha1.Finalizer}
		if deleting {
			a.DeletionTimestamp = &a.CreationTimestamp
		}
	})
}

const definition = v1alpha1.Resource + "." + v1alpha1.Group

// One principal can learn late that another one has finalized an Agent, and that a user
// has made a new one of that name since.
func TestFinalize_StaleViewKeepsNextAgent(t *testing.T) {
	crd := map[string]any{"metadata": map[string]any{"name": definition}}
	next := version("u2", 9, false)
	there := func() map[string]any {
		another := made("w1")
		another["metadata"].(map[string]any)["uid"] = "s2"
		return map[string]any{definition: crd, "w1": next, "cluster-w1": another}
	}
	a := &archive{objects: there()}
	k, rec := lagging(t, a)
	if err := k.finalize(t.Context(), rec); err != nil || len(a.did) > 0 {
		t.Errorf("it did %q, %v", a.did, err)
	}
	if now, known, _, _ := k.registry.object("w1"); !known || now.UID != "u2" {
		t.Errorf("it still knows %+v", now.ObjectMeta)
	}
	// The change may come at any moment of an end.
	old := version("u1", 5, true)
	for at := 1; ; at++ {
		a := &archive{objects: map[string]any{definition: crd, "w1": old, "cluster-w1": made("w1")}}
		asked, changed := 0, -1
		a.asked = func(string) {
			if asked++; asked == at {
				changed = len(a.did)
				maps.Copy(a.objects, there())
			}
		}
		k, rec := lagging(t, a)
		_ = k.finalize(t.Context(), rec)
		if changed < 0 {
			if !slices.Equal(a.did, []string{"POST configmaps", "DELETE cluster-w1", "PATCH w1"}) {
				t.Errorf("undisturbed it did %q", a.did)
			}
			break
		}
		// What was begun before may be finished: the test in the last write fails, at a real API server.
		for _, did := range a.did[changed:] {
			if did == "DELETE cluster-w1" {
				t.Errorf("changed before request %d: it took the next agent's Secret (%q)", at, a.did)
			}
		}
	}
}

// A load balancer that answers in the API server's place does not know the
// definition of agents, nor anything else. An agent that is being deleted must not
// be released without revocation.
func TestFinalize_RequiresNotFoundFromAPIServer(t *testing.T) {
	for _, lacks := range []string{definition, "w1", "cluster-w1"} {
		a := &archive{objects: map[string]any{definition: map[string]any{"metadata": map[string]any{"name": definition}}, "w1": version("u1", 5, true), "cluster-w1": made("w1")}}
		a.proxied = lacks
		k, rec := lagging(t, a)
		if err := k.finalize(t.Context(), rec); err == nil || slices.Contains(a.did, "PATCH w1") || slices.Contains(a.did, "DELETE cluster-w1") {
			t.Errorf("%s is unknown to the load balancer: it did %q, %v", lacks, a.did, err)
		}
	}
}

// A Secret that another principal has made just now is not seen yet, and is the
// agent's all the same.
func TestFinalize_DeletesUnseenSecret(t *testing.T) {
	a := &archive{objects: map[string]any{definition: map[string]any{"metadata": map[string]any{"name": definition}}, "w1": version("u1", 5, true), "cluster-w1": made("w1")}}
	k, rec := lagging(t, a)
	if err := k.finalize(t.Context(), rec); err != nil || !slices.Contains(a.did, "DELETE cluster-w1") {
		t.Errorf("it did %q, %v", a.did, err)
	}
}

func TestFinalize_DeletesOrphanedSecret(t *testing.T) {
	crd := map[string]any{"metadata": map[string]any{"name": definition}}
	kept := made("w1")
	kept["metadata"].(map[string]any)["annotations"].(map[string]string)[backupAnnotation] = "{}"
	for title, test := range map[string]struct {
		objects map[string]any
		want    string
	}{
		"made late":                       {map[string]any{definition: crd, "cluster-w1": made("w1")}, "DELETE cluster-w1"},
		"the whole definition is gone":    {map[string]any{"cluster-w1": made("w1")}, ""},
		"it remembers, for a new install": {map[string]any{definition: crd, "cluster-w1": kept}, ""},
		"another agent's":                 {map[string]any{definition: crd, "cluster-w1": made("w2")}, ""},
		"none":                            {map[string]any{definition: crd}, ""},
	} {
		a := &archive{objects: test.objects}
		k, rec := lagging(t, a)
		if err := k.finalize(t.Context(), rec); err != nil || strings.Join(a.did, " ") != test.want {
			t.Errorf("%s: it did %q, %v", title, a.did, err)
		}
	}
}

// Nor does one that lags make a Secret for an agent that is no more.
func TestReconcile_NoSecretForDeletedAgent(t *testing.T) {
	for title, test := range map[string]struct {
		objects map[string]any
		made    bool
	}{
		"there":    {map[string]any{"w1": version("u1", 5, false)}, true},
		"gone":     {map[string]any{}, false},
		"going":    {map[string]any{"w1": version("u1", 6, true)}, false},
		"replaced": {map[string]any{"w1": version("u2", 6, false)}, false},
	} {
		a := &archive{objects: test.objects}
		k, _ := lagging(t, a)
		err := k.applyClusterSecret(t.Context(), agentRecord{Agent: version("u1", 5, false), revision: 5}, clusterSecret{}, false)
		if got := slices.Contains(a.did, "PATCH cluster-w1"); got != test.made || !test.made && err != nil {
			t.Errorf("%s: it did %q, %v", title, a.did, err)
		}
	}
}
