package kind

import (
	"errors"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// newEnv returns what one side knows of agent "one".
func newEnv(side Side, mode Mode, mapping Mapping) *Env {
	return &Env{
		Find: openProjects,
		Side: side,
		Agent: Agent{
			Name: "one", Mode: mode, Mapping: mapping, HubNamespace: "one-ns",
			Server: "https://proxy:9090?agentName=one",
		},
		HubArgoNamespace:   "argocd",
		SpokeArgoNamespace: "argo",
		PrincipalUID:       "hub-1",
		Projection:         1,
	}
}

// openProjects finds every AppProject. Each permits everything and is labelled
// team=x.
func openProjects(ref Ref) *Object {
	if ref.Resource != AppProjects {
		return nil
	}
	o, err := Parse([]byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"` + ref.Name + `","namespace":"` + ref.Namespace + `","uid":"p-` + ref.Name + `","labels":{"team":"x"}},
	 "spec":{"destinations":[{"name":"*","namespace":"*"}],"sourceNamespaces":["*"]}}`))
	if err != nil {
		panic(err)
	}
	return o
}

func managedHub() *Env   { return newEnv(Hub, Managed, ByNamespace) }
func managedSpoke() *Env { return newEnv(Spoke, Managed, ByNamespace) }
func autoHub() *Env      { return newEnv(Hub, Autonomous, ByNamespace) }
func autoSpoke() *Env    { return newEnv(Spoke, Autonomous, ByNamespace) }

func object(t testing.TB, text string) *Object {
	t.Helper()
	o, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

func canonical(t testing.TB, text string) string {
	t.Helper()
	c, err := rawjson.Canonical([]byte(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return string(c)
}

// expectJSON compares two pieces of JSON by what they say.
func expectJSON(t testing.TB, what string, got []byte, want string) {
	t.Helper()
	if c := canonical(t, string(got)); c != canonical(t, want) {
		t.Errorf("%s:\n got %s\nwant %s", what, c, canonical(t, want))
	}
}

// expectRejected expects a refusal with a code.
func expectRejected(t testing.TB, what string, err error, code engine.Code) {
	t.Helper()
	var r *RejectError
	if !errors.As(err, &r) || r.Code != code {
		t.Errorf("%s: got %v, want a refusal as %s", what, err, code)
	}
}

func merge(t testing.TB, k Kind, local *Object, key engine.Key, content string, w *Env) *Object {
	t.Helper()
	o, err := k.Merge(local, key, []byte(content), nil, Ownership{}, w)
	if err != nil {
		t.Fatalf("merge: %v", err)
	}
	return o
}

func named(name string) engine.Key { return engine.Key{Name: name} }

// day is a time for tests that need one.
var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
