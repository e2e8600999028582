package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

// everything turns on all features with their own files.
var everything = map[string][]string{
	"principal": {onHub, "principal.settings.namespace-create-enable=true,principal.settings.pki-namespace=argocd-agent-pki,principal.settings.search-port=8444,principal.settings.active-hub-address=hub-2.example.com:443"},
	"agent":     {onSpoke, "agent.live.exec=true,agent.live.secrets=true,agent.selfUpgrade.enabled=true,agent.settings.destination-based-mapping=true"},
}

// The kustomize bases are generated from the chart with default values. Features that are off by default have their own
// files in the same directory.
func TestKustomize_BasesAreGeneratedFromChart(t *testing.T) {
	for role, all := range everything {
		common := files(render(t, all[0]), role)
		files := files(render(t, all...), role)
		for name, content := range common {
			if !strings.HasPrefix(name, "rbac") {
				files[name] = content // settings and pods with default values
			}
		}
		if role == "principal" { // instead of rbac-all-namespaces.yaml
			files["rbac-namespaced.yaml"] = namespacedFiles(t)["rbac-namespaced.yaml"]
		}
		base := filepath.Join(folder, "kustomize", role)
		for name, content := range files {
			matches(t, filepath.Join(base, name), content)
		}
		present, err := filepath.Glob(base + "/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range present {
			if name := filepath.Base(path); files[name] == "" && name != "kustomization.yaml" {
				t.Errorf("%s is not in the chart: remove it, or add it there", path)
			}
		}
	}
}

func namespacedFiles(t *testing.T) map[string]string {
	t.Helper()
	return files(render(t, onHub, "principal.settings.namespaced=true,principal.settings.allowed-namespaces=w1"), "principal")
}

// With principal.settings.namespaced, no ClusterRole is for Applications, and each namespace has a Role.
func TestChart_NamespacedPrincipal(t *testing.T) {
	if text := namespacedFiles(t)["rbac-all-namespaces.yaml"]; text != "" {
		t.Errorf("the chart has %s", text)
	}
	for _, list := range []string{`principal.settings.allowed-namespaces=w1\, w2`, "principal.settings.allowed-namespaces={w1,w2}"} {
		var roles []string
		for _, document := range documents(render(t, onHub, "principal.settings.namespaced=true", list)) {
			var role rbacv1.ClusterRole // a Role has the same form
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				if slices.Contains(rule.Resources, "applications") {
					roles = append(roles, role.Kind+" "+role.Namespace)
				}
			}
		}
		slices.Sort(roles)
		if got := strings.Join(roles, ", "); got != "Role w1, Role w2" {
			t.Errorf("%s: %s", list, got)
		}
	}
}

// Helm requires CRDs inside the chart and does not support symbolic links.
func TestChart_HasDefinitions(t *testing.T) {
	for _, file := range []string{"agents.yaml", "agentpolicies.yaml"} {
		matches(t, filepath.Join(chart, "files", "crds", file), read(t, folder, "crds", file))
	}
}

// matches compares a file with its generated content. With -update, it writes the file.
func matches(t *testing.T, path, content string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		t.Errorf("%s is out of date; run: go test ./test/install -run 'Kustomize|Definitions' -update", path)
	}
}

func TestKustomize_BasesHaveObjectsOfChart(t *testing.T) {
	for role, all := range everything {
		built, errOut := run(t, lab.Tool(t, "kustomize"), "build", filepath.Join(folder, "kustomize", role))
		if errOut != "" {
			t.Errorf("%s: %s", role, errOut)
			continue
		}
		got, want := objects(t, built), objects(t, render(t, all[0]))
		for key, object := range want {
			if object.GetKind() == "CustomResourceDefinition" {
				object.SetAnnotations(nil) // annotations of helm
				if got[key] != nil {
					got[key].SetAnnotations(nil)
				}
			}
			withoutRelease(object)
			if got[key] == nil || !equality.Semantic.DeepEqual(got[key].Object, object.Object) {
				t.Errorf("%s: %s differs between chart and base", role, key)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d objects in the base, %d in the chart", role, len(got), len(want))
		}
	}
}

// files returns the content of a base by file name: the templates of the chart without parts for helm.
func files(manifests, role string) map[string]string {
	all := map[string][]string{}
	for _, document := range documents(manifests) {
		source, content, _ := strings.Cut(document, "\n")
		template, found := strings.CutPrefix(source, "# Source: argocd-agent/templates/"+role+"/")
		if found {
			lines := slices.DeleteFunc(strings.Split(content, "\n"), func(line string) bool {
				return strings.Contains(line, checksum) || slices.ContainsFunc(releaseLabels, func(label string) bool { return strings.HasPrefix(line, "    "+label+": ") })
			})
			content = strings.Replace(strings.Join(lines, "\n"), "      annotations:\n    spec:\n", "    spec:\n", 1)
			all[template] = append(all[template], content)
		}
	}
	files := map[string]string{}
	for name, parts := range all {
		files[name] = strings.Join(parts, "---\n")
	}
	return files
}

// checksum restarts pods on changed settings. In a base it would be out of date.
const checksum = "argocd-agent.argoproj-labs.io/params"

// releaseLabels describe the release of helm. A base has none.
var releaseLabels = []string{"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}

// withoutRelease removes from an object of the chart what a base does not have.
func withoutRelease(object *unstructured.Unstructured) {
	unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations")
	for _, label := range releaseLabels {
		unstructured.RemoveNestedField(object.Object, "metadata", "labels", label)
	}
}
