package kind

import (
	"strings"
	"testing"
)

func TestTree_MapsApplicationNamesToHub(t *testing.T) {
	w := &Env{Side: Hub, Agent: Agent{Name: "a", Mode: Autonomous, HubNamespace: "agent-a"}, SpokeArgoNamespace: "argocd"}
	tree := `{"nodes":[{"kind":"ConfigMap","name":"c","namespace":"x","parentRefs":[{"group":"argoproj.io","kind":"Application","namespace":"team","name":"child"}]},` +
		`{"group":"argoproj.io","kind":"Application","namespace":"argocd","name":"child","uid":"1"},{"kind":"Application","namespace":"argocd","name":"other"}],` +
		`"orphanedNodes":[{"group":"argoproj.io","kind":"Application","namespace":"team","name":"lost"}],"shardsCount":1}`
	want := `{"nodes":[{"kind":"ConfigMap","name":"c","namespace":"x","parentRefs":[{"group":"argoproj.io","kind":"Application","namespace":"agent-a","name":"team.child"}]},` +
		`{"group":"argoproj.io","kind":"Application","namespace":"agent-a","name":"child","uid":"1"},{"kind":"Application","namespace":"argocd","name":"other"}],` +
		`"orphanedNodes":[{"group":"argoproj.io","kind":"Application","namespace":"agent-a","name":"team.lost"}],"shardsCount":1}`
	if got := string(TreeOnHub([]byte(tree), w)); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	managed := `[{"group":"argoproj.io","kind":"Application","namespace":"argocd","name":"child","liveState":"{\"metadata\":{\"namespace\":\"argocd\"}}"},{"kind":"Service","name":"s"}]`
	want = `[{"group":"argoproj.io","kind":"Application","namespace":"agent-a","name":"child","liveState":"{\"metadata\":{\"namespace\":\"argocd\"}}"},{"kind":"Service","name":"s"}]`
	if got, err := ManagedOnHub([]byte(managed), w, "parent", "agent-a_parent", 1<<20); string(got) != want || err != nil {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	for _, other := range []string{`null`, `{}`, `{"nodes":null}`, `{"nodes":[]}`, `{"nodes":[{"kind":"Pod","name":"p"}]}`, `[`, ``} {
		if got := string(TreeOnHub([]byte(other), w)); got != other {
			t.Errorf("%s became %s", other, got)
		}
	}
}

func TestManagedOnHub_HasTrackingIDsOfHub(t *testing.T) {
	w := &Env{Side: Hub, Agent: Agent{Name: "a", Mode: Managed, HubNamespace: "a"}, SpokeArgoNamespace: "argocd"}
	list := `[{"kind":"ConfigMap","name":"c","liveState":"{\"data\":{\"text\":\"{\\\"argocd.argoproj.io/tracking-id\\\":\\\"shop:x\\\"}\"},` +
		`\"metadata\":{\"annotations\":{\"argocd.argoproj.io/tracking-id\":\"shop:/ConfigMap:x/c\"}}}","targetState":"null"},` +
		`{"group":"argoproj.io","kind":"Application","namespace":"argocd","name":"child","liveState":"{\"metadata\":{\"annotations\":{\"argocd.argoproj.io/tracking-id\":\"shop-2:/x\"}}}"}]`
	want := strings.Replace(list, `tracking-id\":\"shop:/ConfigMap`, `tracking-id\":\"a_shop:/ConfigMap`, 1)
	if got, err := ManagedOnHub([]byte(list), w, "shop", "a_shop", len(want)); string(got) != want || string(got) == list || err != nil {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
	if got, err := ManagedOnHub([]byte(list), w, "shop", "a_shop", len(want)-1); got != nil || err == nil {
		t.Errorf("a list above the limit became %s", got)
	}
}
