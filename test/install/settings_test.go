package install

import (
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What the chart makes of values, the programs understand: they get as far as looking for a cluster, which is not there.
func TestBinaries_AcceptSettingsOfChart(t *testing.T) {
	binary := ""
	if !testing.Short() {
		binary = buildPrograms(t) + "/argocd-agent"
	}
	for name, values := range wishes {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, values...))
			out := start(t, binary, all)
			if !strings.Contains(out, "find the cluster") || strings.Contains(out, "look at this setting") {
				t.Errorf("the program says: %s", out)
			}
		})
	}
}

// start runs the program of a Deployment with its environment, as far as the manifests have it.
func start(t testing.TB, binary string, all map[string]*unstructured.Unstructured) string {
	t.Helper()
	container := deployment(t, all).Spec.Template.Spec.Containers[0]
	env := []string{"HOME=" + t.TempDir()}
	data, _, _ := unstructured.NestedStringMap(all["ConfigMap/argocd-agent-params"].Object, "data")
	for name, value := range data {
		env = append(env, name+"="+value)
	}
	for _, variable := range container.Env {
		switch from := variable.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil && from.FieldRef.FieldPath == "status.podIP":
			variable.Value = "10.0.0.1"
		case from.SecretKeyRef != nil:
			variable.Value = "from a Secret"
		default:
			t.Fatalf("%s comes from somewhere that is not known here", variable.Name)
		}
		env = append(env, variable.Name+"="+variable.Value)
	}
	command := exec.CommandContext(t.Context(), binary, container.Args...)
	command.Env = env
	out, _ := command.CombinedOutput() // it fails: there is no cluster
	return string(out)
}
