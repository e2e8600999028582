package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argocd-agent/argocd-agent/lab"
)

const argocdModule = "github.com/argoproj/argo-cd/v3"

// overlay builds an overlay of Argo CD with the manifests of the lab's version instead of downloading them.
func overlay(t testing.TB, name string) map[string]*unstructured.Unstructured {
	t.Helper()
	kustomize := lab.Tool(t, "kustomize")
	dir := t.TempDir()
	put := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	content := read(t, folder, "argocd", name, "kustomization.yaml")
	base := name
	if _, after, extends := strings.Cut(content, "\n  - ../"); extends { // another overlay
		put(name+"/kustomization.yaml", content)
		base, _, _ = strings.Cut(after, "\n")
		content = read(t, folder, "argocd", base, "kustomization.yaml")
	}
	address := regexp.MustCompile(`https://raw\.githubusercontent\.com/argoproj/argo-cd/v\d+\.\d+\.\d+/manifests/install\.yaml`)
	if found := address.FindAllString(content, -1); len(found) != 1 {
		t.Fatalf("%s installs %v", name, found)
	}
	put(base+"/kustomization.yaml", address.ReplaceAllString(content, "install.yaml"))
	put(base+"/install.yaml", read(t, argocdDir(t), "manifests", "install.yaml"))
	if base == "hub" {
		put(base+"/notifications.yaml", read(t, folder, "argocd", base, "notifications.yaml"))
	}
	built, errOut := run(t, kustomize, "build", filepath.Join(dir, name))
	if errOut != "" {
		t.Fatal(errOut)
	}
	return objects(t, built)
}

// argocdDir is the directory of the Argo CD that the lab runs.
func argocdDir(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("ARGOCD_AGENT_LAB_ARGOCD"); given != "" {
		return given
	}
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", argocdModule)
	download.Dir = "../../lab/tools/argocd"
	text, err := download.Output()
	if err != nil {
		t.Fatalf("find Argo CD's manifests: %v", err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		t.Fatal(err)
	}
	return module.Dir
}

func TestArgoCDOverlays_HaveExpectedComponents(t *testing.T) {
	parts := []string{"Deployment/argocd-server", "Deployment/argocd-dex-server", "Deployment/argocd-applicationset-controller",
		"Deployment/argocd-notifications-controller", "StatefulSet/argocd-application-controller"}
	for name, wanted := range map[string][]string{
		"hub":                       parts[:4],
		"spoke-managed":             parts[4:],
		"spoke-managed-destination": parts[4:],
		"spoke-autonomous":          {parts[2], parts[4]},
		"spoke-shared":              parts[4:],
	} {
		all := overlay(t, name)
		for _, part := range parts {
			if there := all[part] != nil; there != slices.Contains(wanted, part) {
				t.Errorf("%s: is %s there? %v", name, part, there)
			}
		}
		for _, part := range []string{"Deployment/argocd-repo-server", "Service/argocd-repo-server", "Deployment/argocd-redis", "Service/argocd-redis"} {
			if there := all[part] != nil; there == (name == "spoke-shared") {
				t.Errorf("%s: is %s there? %v", name, part, there)
			}
		}
		cm, _, _ := unstructured.NestedString(all["ConfigMap/argocd-cmd-params-cm"].Object, "data", "application.namespaces")
		if reads := cm == "*"; reads != (name == "hub" || name == "spoke-managed-destination") {
			t.Errorf("%s: application.namespaces is %q", name, cm)
		}
		for _, always := range []string{"ConfigMap/argocd-cm", "CustomResourceDefinition/applications.argoproj.io"} {
			if all[always] == nil {
				t.Errorf("%s lacks %s", name, always)
			}
		}
		for key, object := range all {
			for _, problem := range dangling(all, object) {
				t.Errorf("%s: %s: %s", name, key, problem)
			}
		}
	}
}

// dangling lists references to objects that the overlay has removed.
func dangling(all map[string]*unstructured.Unstructured, object *unstructured.Unstructured) (problems []string) {
	if account, found, _ := unstructured.NestedString(object.Object, "spec", "template", "spec", "serviceAccountName"); found && all["ServiceAccount/"+account] == nil {
		problems = append(problems, "there is no ServiceAccount "+account)
	}
	subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects")
	for _, subject := range subjects {
		if name, _ := subject.(map[string]any)["name"].(string); all["ServiceAccount/"+name] == nil {
			problems = append(problems, "there is no ServiceAccount "+name)
		}
	}
	if object.GetKind() != "Service" && object.GetKind() != "NetworkPolicy" {
		return problems
	}
	for _, path := range [][]string{{"spec", "selector", "app.kubernetes.io/name"}, {"spec", "podSelector", "matchLabels", "app.kubernetes.io/name"}} {
		name, found, _ := unstructured.NestedString(object.Object, path...)
		if found && all["Deployment/"+name] == nil && all["StatefulSet/"+name] == nil {
			problems = append(problems, "there is no "+name)
		}
	}
	return problems
}

func TestArgoCDOverlays_HubIsConfiguredForAgents(t *testing.T) {
	all := overlay(t, "hub")
	containers, _, _ := unstructured.NestedSlice(all["Deployment/argocd-server"].Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if !slices.Contains(args, "--redis=argocd-agent-redis-proxy:6379") || args[0] != "/usr/local/bin/argocd-server" {
		t.Errorf("argocd-server runs as %q", args)
	}
	for _, tc := range []struct{ object, key, want string }{
		{"ConfigMap/argocd-cmd-params-cm", "application.namespaces", "*"},
		{"ConfigMap/argocd-cmd-params-cm", "applicationsetcontroller.global.preserved.annotations",
			"notice.argocd.argoproj.io/content,notice.argocd.argoproj.io/severity,argocd-agent.argoproj-labs.io/notice," +
				"argocd-agent.argoproj-labs.io/standby,argocd.argoproj.io/source-uid,argocd.argoproj.io/principal-uid"},
		{"ConfigMap/argocd-cm", "exec.enabled", "true"},
	} {
		if got, _, _ := unstructured.NestedString(all[tc.object].Object, "data", tc.key); got != tc.want {
			t.Errorf("%s has %s %q, want %q", tc.object, tc.key, got, tc.want)
		}
	}
	service := objects(t, render(t, onHub))["Service/argocd-agent-redis-proxy"]
	if service == nil {
		t.Error("the chart has no Service argocd-agent-redis-proxy")
	}
}

// The NetworkPolicies of Argo CD close its Redis, with and without high availability. Those of the chart let our pods
// connect to the pods behind the address of each.
func TestChart_NetworkPoliciesReachRedis(t *testing.T) {
	for _, manifests := range []string{"manifests/install.yaml", "manifests/ha/install.yaml"} {
		argocd := objects(t, read(t, argocdDir(t), filepath.FromSlash(manifests)))
		redis := argocd["Service/argocd-redis"]
		if redis == nil {
			redis = argocd["Service/argocd-redis-ha-haproxy"]
		}
		if redis == nil {
			t.Fatalf("%s has no Redis", manifests)
		}
		pods, _, _ := unstructured.NestedStringMap(redis.Object, "spec", "selector")
		for role, name := range map[string]string{onHub: "argocd-agent-principal-redis", onSpoke: "argocd-agent-agent-redis"} {
			policy := objects(t, render(t, role))["NetworkPolicy/"+name]
			if policy == nil {
				t.Fatalf("%s: there is no %s", role, name)
			}
			var spec networkingv1.NetworkPolicySpec
			content, _, _ := unstructured.NestedMap(policy.Object, "spec")
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &spec); err != nil {
				t.Fatal(err)
			}
			selector, err := metav1.LabelSelectorAsSelector(&spec.PodSelector)
			if err != nil {
				t.Fatal(err)
			}
			if !selector.Matches(labels.Set(pods)) {
				t.Errorf("%s: %s selects %s, not the pods of %s", manifests, name, selector, redis.GetName())
			}
		}
	}
}
