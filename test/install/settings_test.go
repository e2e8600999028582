package install

import (
	"os/exec"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The binaries accept the settings of the chart. They start until they need a cluster, which does not exist.
func TestBinaries_AcceptSettingsOfChart(t *testing.T) {
	binary := ""
	if !testing.Short() {
		binary = buildBinaries(t) + "/argocd-agent"
	}
	for name, values := range valueSets {
		t.Run(name, func(t *testing.T) {
			all := objects(t, render(t, values...))
			out := start(t, binary, all)
			if !strings.Contains(out, "find the cluster") || strings.Contains(out, "Setting needs attention") {
				t.Errorf("the program says: %s", out)
			}
		})
	}
}

// start runs the container of a Deployment with its environment from the manifests.
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
	out, _ := command.CombinedOutput() // it fails because there is no cluster
	return string(out)
}
