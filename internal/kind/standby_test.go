package kind

import (
	"fmt"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func standbyKind(t *testing.T, r Resource) StandbyKind {
	t.Helper()
	for _, k := range StandbyKinds() {
		if k, ok := k.(StandbyKind); ok && k.Resource() == r {
			return k
		}
	}
	t.Fatalf("no kind of %s", r.Plural)
	return StandbyKind{}
}

// Each hub has registrations of its own for the other one. They are neither sent, nor deleted if the active hub lacks them, nor
// written: also if they look like a copy, or the active hub has received everything of this cluster.
func TestStandbyKind_LeavesRegistrationsOfStandbys(t *testing.T) {
	k := standbyKind(t, Agents)
	for _, c := range []struct {
		mode string
		want bool
	}{{"standby", false}, {"managed", true}, {"autonomous", true}, {"", true}} {
		for _, annotation := range []string{"", `{"hub":"group","uid":"u-1"}`} {
			text := fmt.Sprintf(`{"apiVersion":"argocd-agent.argoproj-labs.io/v1alpha1","kind":"Agent",
				"metadata":{"name":"hub-1","namespace":"argocd","uid":"u-1","resourceVersion":"5","annotations":{%q:%q}},"spec":{"mode":%q}}`, StandbyAnnotation, annotation, c.mode)
			o, err := Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			w := Env{Agent: Agent{Mode: Standby}, HubArgoNamespace: "argocd", SpokeArgoNamespace: "argocd", PrincipalUID: "group", Received: 100}
			hub, standby := w, w
			hub.Side, standby.Side = Hub, Spoke
			item, sent := k.Publish(o, &hub)
			if sent != c.want {
				t.Errorf("mode %q: sent %t", c.mode, sent)
			}
			if held, ok := k.ReadReplica(o, &standby); ok != c.want || ok && !held.Ownership.Owned {
				t.Errorf("mode %q, annotation %q: a replica %t, owned %t", c.mode, annotation, ok, held.Ownership.Owned)
			}
			if !sent {
				continue
			}
			content, err := rawjson.Set(item.Content, []byte(`"standby"`), "spec", "mode")
			if err != nil {
				t.Fatal(err)
			}
			if merged, err := k.Merge(nil, item.Key, content, nil, Ownership{Owned: true}, &standby); err == nil {
				t.Errorf("the registration of a standby was received: %s", merged.Raw())
			}
		}
	}
}
