package node

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func TestPoCTreeOfAgentServedForForeignDestination(t *testing.T) {
	n := New(Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "p"})
	for _, dest := range []string{`{"name":"w2","namespace":"payments"}`, `{"server":"https://kubernetes.default.svc","namespace":"argocd"}`, `{"name":"in-cluster","namespace":"argocd"}`} {
		app, err := kind.Parse([]byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"x","namespace":"w1","uid":"u","resourceVersion":"5"},"spec":{"project":"team-a","destination":` + dest + `,"source":{"repoURL":"r"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range Resources() {
			l := List{Resource: r, Revision: 10}
			if r == kind.Applications {
				l.Objects = []*kind.Object{app}
			}
			n.Step(1, l)
		}
		for _, name := range []string{"w1", "w2"} {
			n.Step(1, Register{Agent: kind.Agent{Name: name, Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: name, Server: "https://proxy?agentName=" + name}})
		}
		p, ok := n.Place("w1", "x")
		t.Logf("destination %s: trees and status come from %+v %v", dest, p, ok)
	}
}
