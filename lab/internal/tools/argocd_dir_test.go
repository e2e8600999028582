package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestArgoCDDir_IsUsedAndNotBuilt(t *testing.T) {
	given := t.TempDir()
	for _, file := range []string{"argocd", "manifests/crds/application-crd.yaml", "manifests/crds/kustomization.yaml", "manifests/base/config/argocd-cm.yaml"} {
		path := filepath.Join(given, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("given"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(ArgoCDDirVariable, given)
	builder, compiled, _ := newTestBuilder(t)
	set, err := builder.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if set["argocd"] != given || compiled["argocd"] != 0 || compiled["etcd"] != 1 {
		t.Errorf("argocd is in %s and was built %d times, etcd %d times", set["argocd"], compiled["argocd"], compiled["etcd"])
	}
	files, err := set.Files("argocd", "manifests/crds")
	if err != nil || !slices.Equal(files, []string{filepath.Join(given, "manifests/crds/application-crd.yaml")}) {
		t.Errorf("CRDs are %v (%v)", files, err)
	}
}

func TestArgoCDDir_IncompleteIsReported(t *testing.T) {
	t.Setenv(ArgoCDDirVariable, t.TempDir())
	builder, _, _ := newTestBuilder(t)
	if _, err := builder.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "has no argocd") {
		t.Errorf("got %v", err)
	}
}
