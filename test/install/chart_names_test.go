package install

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argocd-agent/argocd-agent/lab"
)

// fixedNames have clients that do not read the chart: agents, Argo CD, certificates, settings.
var fixedNames = []string{"Service/argocd-agent-principal", "Service/argocd-agent-resource-proxy", "Service/argocd-agent-redis-proxy", "Service/argocd-agent-search",
	"ConfigMap/argocd-agent-params", "TLSRoute/argocd-agent-principal"}

func TestChart_NamesCanBeOverridden(t *testing.T) {
	const all = "principal.autoscaling.enabled=true,prometheusRule.enabled=true,serviceMonitor.enabled=true,dashboards.enabled=true,principal.tlsRoute.enabled=true,principal.tlsRoute.hostnames={h},principal.tlsRoute.parentRefs[0].name=g"
	for _, role := range []string{strings.Join(everything["principal"], ","), strings.Join(everything["agent"], ",") + ",agent.live.callers.mode=record",
		onHub + ",principal.settings.namespaced=true,principal.settings.allowed-namespaces=w1"} {
		rendered := withTests(t, role, all, "fullnameOverride=team-sync,nameOverride=sync")
		for key, object := range rendered {
			if object.GetKind() == "CustomResourceDefinition" {
				continue
			}
			if !slices.Contains(fixedNames, key) && !strings.HasPrefix(object.GetName(), "team-sync") {
				t.Errorf("%s keeps its name", key)
			}
			if name := object.GetLabels()["app.kubernetes.io/name"]; !strings.HasPrefix(name, "sync-") {
				t.Errorf("%s has label %s", key, name)
			}
			role, _, err := unstructured.NestedString(object.Object, "roleRef", "name")
			if err != nil || role != "" && role != "view" && role != "extension-apiserver-authentication-reader" && rendered["Role/"+role] == nil && rendered["ClusterRole/"+role] == nil {
				t.Errorf("%s binds %s, which is not there: %v", key, role, err)
			}
		}
		d := deployment(t, rendered)
		if d.Name != "team-sync" || rendered["ServiceAccount/"+d.Spec.Template.Spec.ServiceAccountName] == nil {
			t.Errorf("Deployment %s uses account %s", d.Name, d.Spec.Template.Spec.ServiceAccountName)
		}
		selects(t, rendered, d.Spec.Template.Labels)
	}
}

// selects checks that Services lead to our pods, and not to the pod of helm test.
func selects(t *testing.T, all map[string]*unstructured.Unstructured, pods labels.Set) {
	t.Helper()
	for key, object := range all {
		if object.GetKind() != "Service" {
			continue
		}
		selector, _, err := unstructured.NestedStringMap(object.Object, "spec", "selector")
		if err != nil || len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pods) {
			t.Errorf("%s does not lead to pods with %v: %v", key, pods, err)
		}
		for _, other := range all {
			if other.GetKind() == "Pod" && labels.SelectorFromSet(selector).Matches(labels.Set(other.GetLabels())) {
				t.Errorf("%s leads to %s", key, other.GetName())
			}
		}
	}
}

// withTests renders the chart with the pod of helm test.
func withTests(t *testing.T, values ...string) map[string]*unstructured.Unstructured {
	t.Helper()
	manifests, refusal := helmWith(t, []string{"--namespace", lab.ArgoCDNamespace}, values...)
	if refusal != "" {
		t.Fatal(refusal)
	}
	return objects(t, manifests)
}

// helm test requests the metrics Service, which leads only to ready pods.
func TestChart_TestPod(t *testing.T) {
	for _, c := range []struct{ values, name, url string }{
		{onHub, "argocd-agent-principal", "http://argocd-agent-principal-metrics:8000/metrics"},
		{onSpoke, "argocd-agent-agent", "http://argocd-agent-agent-metrics:8181/metrics"},
		{onSpoke + ",agent.settings.metrics-port=9000,fullnameOverride=x", "x", "http://x-metrics:9000/metrics"},
	} {
		all := withTests(t, c.values)
		object := all["Pod/"+c.name+"-test"]
		if object == nil {
			t.Fatalf("%s: there is no pod", c.values)
		}
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, pod, true); err != nil {
			t.Fatal(err)
		}
		container := pod.Spec.Containers[0]
		if pod.Annotations["helm.sh/hook"] != "test" || strings.Join(container.Args, " ") != "check "+c.url || all["Service/"+c.name+"-metrics"] == nil {
			t.Errorf("%s: %v, annotations %v", c.values, container.Args, pod.Annotations)
		}
		if container.Image != deployment(t, all).Spec.Template.Spec.Containers[0].Image || *pod.Spec.AutomountServiceAccountToken || !*container.SecurityContext.ReadOnlyRootFilesystem {
			t.Errorf("%s: pod %v", c.values, pod.Spec)
		}
	}
	if withTests(t, onHub, "principal.settings.metrics-port=0")["Pod/argocd-agent-principal-test"] != nil {
		t.Error("a pod requests metrics, which are off")
	}
}

// The memory of the principal follows the formula of the page about operations.
func TestChart_MemoryFollowsSizing(t *testing.T) {
	if page := read(t, "../../docs/operations.md"); !strings.Contains(page, "40 MB, plus 100 kB per agent, plus twice the size of its Applications") {
		t.Fatal("the formula of the page changed: change the chart as well")
	}
	for _, c := range []struct{ values, request, limit string }{
		{"", "64Mi", "512Mi"},
		{"principal.sizing.agents=100,principal.sizing.applications=1000", "66Mi", "512Mi"},                           // 70 MB
		{"principal.sizing.agents=5000,principal.sizing.applications=50000", "1468Mi", "2937Mi"},                      // 1,540 MB
		{"principal.sizing.agents=1000,principal.sizing.applications=10000,resources.limits.cpu=2", "324Mi", "648Mi"}, // 340 MB
		{"principal.sizing.agents=1,principal.sizing.applications=10,principal.sizing.applicationKilobytes=1", "38Mi", "512Mi"},
	} {
		resources := deployment(t, objects(t, render(t, onHub, c.values))).Spec.Template.Spec.Containers[0].Resources
		if resources.Requests.Memory().String() != c.request || resources.Limits.Memory().String() != c.limit || resources.Requests.Cpu().String() != "50m" {
			t.Errorf("%s: %v, want %s and %s", c.values, resources, c.request, c.limit)
		}
	}
}
