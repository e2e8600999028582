// Package install tests what users install: the chart, the kustomize bases, the overlays for Argo CD, the image. It
// uses real helm and kustomize, applies manifests to real API servers, and runs the binaries with exactly the
// permissions of the manifests.
package install

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

var update = flag.Bool("update", false, "make the kustomize bases again from the chart")

const (
	folder = "../../install"
	chart  = folder + "/helm/argocd-agent"
)

// Values of the common case.
const (
	onHub   = "role=principal"
	onSpoke = "role=agent,agent.mode=managed,agent.server=principal.example.com"
)

// helm runs helm template on the chart with values as for --set, without the pod of helm test.
func helm(t testing.TB, values ...string) (manifests, refusal string) {
	t.Helper()
	return helmIn(t, lab.ArgoCDNamespace, values...)
}

// helmIn is helm for another namespace.
func helmIn(t testing.TB, namespace string, values ...string) (manifests, refusal string) {
	t.Helper()
	return helmWith(t, []string{"--namespace", namespace, "--skip-tests"}, values...)
}

// helmWith is helm with other flags.
func helmWith(t testing.TB, flags []string, values ...string) (manifests, refusal string) {
	t.Helper()
	args := append([]string{"template", "argocd-agent", chart, "--kube-version", "1.35.0"}, flags...)
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return run(t, lab.Tool(t, "helm"), args...)
}

// render is helm for values that must be accepted.
func render(t testing.TB, values ...string) string {
	t.Helper()
	manifests, refusal := helm(t, values...)
	if refusal != "" {
		t.Fatalf("helm template with %q: %s", values, refusal)
	}
	return manifests
}

// run runs a command and returns its output, or its error output if it fails.
func run(t testing.TB, program string, args ...string) (output, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), program, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	command.Env = append(os.Environ(), "HOME="+t.TempDir()) // without helm settings of the user
	if err := command.Run(); err != nil {
		return "", err.Error() + ": " + stderr.String()
	}
	return stdout.String(), ""
}

// documents splits a YAML stream. A comment belongs to the object after it.
func documents(manifests string) []string {
	var all []string
	for document := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		if document = strings.TrimSpace(document); document != "" {
			all = append(all, document+"\n")
		}
	}
	return all
}

// objects parses manifests, by kind and name.
func objects(t testing.TB, manifests string) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, document := range documents(manifests) {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + "/" + object.GetName()
		if all[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		all[key] = object
	}
	return all
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
