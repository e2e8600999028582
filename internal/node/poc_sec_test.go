package node

import "testing"

func TestPoCHubOverridesAdoptionNever(t *testing.T) {
	l := &link{node: &Node{cfg: Config{Policy: Policy{AdoptNever: true}}}}
	if l.mayAdopt([]byte(`{}`)) {
		t.Fatal("policy not in force")
	}
	t.Logf("with the hub's annotation: mayAdopt=%v", l.mayAdopt([]byte(`{"metadata":{"annotations":{"argocd.argoproj.io/adoption-policy":"always"}}}`)))
}
