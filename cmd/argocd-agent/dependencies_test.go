package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The clients of all Kubernetes APIs are 18 MB of code and tables, which every agent would keep in memory. Packages such as
// client-go's leaderelection depend on them.
func TestBinary_HasNoClientsOfAllAPIs(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	if !slices.Contains(all, "k8s.io/client-go/rest") {
		t.Fatal("the list of dependencies is not complete")
	}
	for _, banned := range []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/informers", "k8s.io/api/core/v1"} {
		if slices.Contains(all, banned) {
			t.Errorf("argocd-agent depends on %s: use internal/kube", banned)
		}
	}
}
