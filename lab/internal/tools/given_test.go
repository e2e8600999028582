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
	for _, file := range []string{"argocd", "manifests/crds/application-crd.yaml", "manifests/crds/kustomization.yaml", "manifests/base/config/argocd-cm.yaml", "hack/gpg-wrapper.sh"} {
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

// toolsDir creates a directory with files for DirVariable. A file of a tool is a script that prints a version.
func toolsDir(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(DirVariable, folder)
	return folder
}

const (
	knowsVersionFlag    = "#!/bin/sh\n[ \"$1\" = --version ] && echo tool 9.8.7\n"
	knowsVersionCommand = "#!/bin/sh\n[ \"$1\" = version ] && echo v1.2.3-rc.1\n"
)

func TestToolsDir_ToolsAreUsedAndOthersBuilt(t *testing.T) {
	folder := toolsDir(t, map[string]string{
		"etcd": knowsVersionFlag, "kubectl": knowsVersionCommand,
		"kwok/kwok": knowsVersionFlag, "kwok/kustomize/stage/pod/fast/pod-ready.yaml": "", "kwok/kustomize/stage/node/fast/node-a.yaml": "",
		"kwok/kustomize/stage/node/heartbeat-with-lease/node-b.yaml": "",
	})
	builder, compiled, progress := newTestBuilder(t)
	set, err := builder.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"etcd": folder, "kubectl": folder, "kwok": filepath.Join(folder, "kwok")} {
		if set[name] != want || compiled[name] != 0 {
			t.Errorf("%s is in %s, want %s, and was built %d times", name, set[name], want, compiled[name])
		}
	}
	if compiled["kube-apiserver"] != 1 || compiled["argocd"] != 1 {
		t.Errorf("tools that LAB_TOOLS does not have must be built, got %v", compiled)
	}
	for _, line := range []string{"etcd: 9.8.7 from " + folder, "kubectl: v1.2.3-rc.1 from " + folder, "helm: not in LAB_TOOLS, the lab builds v3."} {
		if !strings.Contains(progress.String(), line) {
			t.Errorf("progress does not have %q:\n%s", line, progress)
		}
	}
}

func TestToolsDir_WrongToolsAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"does not run":            {map[string]string{"etcd": "\x7fELF for another machine"}, "exec format error: replace or remove it"},
		"fails":                   {map[string]string{"etcd": "#!/bin/sh\nexit 4\n"}, "exit status 4: replace or remove it"},
		"prints no version":       {map[string]string{"etcd": "#!/bin/sh\necho hello\n"}, "it prints no version: replace or remove it"},
		"directory without it":    {map[string]string{"etcd/README": ""}, "it has no etcd"},
		"without its other files": {map[string]string{"argocd": knowsVersionFlag}, "make it a directory with argocd and [manifests/crds/*-crd.yaml"},
		"directory without files": {map[string]string{"argocd/argocd": knowsVersionFlag}, "it has no manifests/crds/*-crd.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			toolsDir(t, test.files)
			builder, compiled, _ := newTestBuilder(t)
			_, err := builder.Build(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "LAB_TOOLS") && !strings.Contains(err.Error(), os.Getenv(DirVariable)) {
				t.Errorf("got %v, want %q and where it is", err, test.want)
			}
			if len(compiled) > 0 {
				t.Errorf("compiled %v before the report", compiled)
			}
		})
	}
}

func TestToolsDir_MissingDirectoryIsReported(t *testing.T) {
	t.Setenv(DirVariable, filepath.Join(t.TempDir(), "none"))
	builder, _, _ := newTestBuilder(t)
	if _, err := builder.Build(t.Context()); err == nil || !strings.Contains(err.Error(), "LAB_TOOLS") || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}

func TestBuilder_OnlyNamedToolsAreBuilt(t *testing.T) {
	builder, compiled, _ := newTestBuilder(t)
	builder.Only = []string{"etcd", "kubectl"}
	set, err := builder.Build(t.Context())
	if err != nil || len(set) != 2 || len(compiled) != 2 || compiled["etcd"] != 1 || compiled["kubectl"] != 1 {
		t.Errorf("got %v, built %v, %v", set, compiled, err)
	}
}
