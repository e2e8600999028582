package live

import (
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

func tokenSecret(t *testing.T, name, agent, token string) *kind.Object {
	t.Helper()
	config := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"bearerToken":%q}`, token))
	o, err := kind.Parse(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":"argocd","labels":{%q:%q}},"data":{"config":%q}}`,
		name, fleet.AgentLabel, agent, config))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestTokens_NameAgentOfClusterSecret(t *testing.T) {
	changes := 0
	tokens := newTokens(func() { changes++ })
	names := func(token, want string) {
		t.Helper()
		if got, ok := tokens.agent(token); got != want || ok != (want != "") {
			t.Errorf("%s names %q, not %q", token, got, want)
		}
	}
	take := func(in reconcile.Input) {
		t.Helper()
		if err := tokens.apply(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	take(reconcile.List{Resource: kind.Secrets, Objects: []*kind.Object{tokenSecret(t, "cluster-a", "a", "one"), tokenSecret(t, "cluster-b", "b", "two")}})
	names("one", "a")
	names("two", "b")
	names("", "")
	names("three", "")
	if changes != 0 {
		t.Errorf("%d changes, although nothing has become invalid", changes)
	}

	take(reconcile.Observed{Resource: kind.Secrets, Object: tokenSecret(t, "cluster-a", "a", "three")})
	names("one", "")
	names("three", "a")
	take(reconcile.Observed{Resource: kind.Secrets, Object: tokenSecret(t, "cluster-c", "c", "two")}) // the same token twice is invalid
	names("two", "")
	take(reconcile.Deleted{Ref: kind.Ref{Resource: kind.Secrets, Namespace: "argocd", Name: "cluster-c"}})
	names("two", "b")
	take(reconcile.List{Resource: kind.Secrets, Objects: []*kind.Object{tokenSecret(t, "cluster-b", "b", "two")}})
	names("three", "")
	names("two", "b")
	take(reconcile.Observed{Resource: kind.Secrets, Object: tokenSecret(t, "cluster-b", "b", "")})
	names("two", "")
	names("", "")
	if changes != 5 {
		t.Errorf("%d changes that make something invalid, not 5", changes)
	}
}
