package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestInstalled installs into its own clusters, because it creates cluster-scoped objects.
func TestInstalled(t *testing.T) {
	l := lab.New(t, lab.Options{Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})
	t.Run("APIServerAcceptsEveryField", func(t *testing.T) { acceptedStrictly(t, l) })
	t.Run("PodsComplyWithPodSecurityRestricted", func(t *testing.T) { admittedWhereRestricted(t, l) })
	t.Run("BinariesRunWithTheirPermissions", func(t *testing.T) { binariesRun(t, l) })
	t.Run("PermissionsAreMinimal", func(t *testing.T) { rightsAreMinimal(t, l) })
}

// kubectl runs kubectl on a cluster.
func kubectl(t testing.TB, l *lab.Lab, cluster, input string, args ...string) (output string, err error) {
	t.Helper()
	command := l.Command(t.Context(), "kubectl", append([]string{"--context", cluster}, args...)...)
	command.Stdin = strings.NewReader(input)
	text, err := command.CombinedOutput()
	return string(text), err
}

// install runs helm install on a cluster, or helm upgrade if the release exists.
func installRelease(t testing.TB, l *lab.Lab, cluster, namespace string, values ...string) (string, error) {
	t.Helper()
	args := []string{"upgrade", "--install", "argocd-agent", chart, "--kube-context", cluster, "--namespace", namespace, "--create-namespace", "--take-ownership"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	command := l.Command(t.Context(), "helm", args...)
	command.Env = append(command.Env, "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	text, err := command.CombinedOutput()
	return string(text), err
}

func acceptedStrictly(t *testing.T, l *lab.Lab) {
	t.Helper()
	// The chart does not create the namespace of the PKI.
	if _, err := l.Hub().Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd-agent-pki"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	check := func(name, cluster, manifests string) {
		t.Run(name, func(t *testing.T) {
			if out, err := kubectl(t, l, cluster, manifests, "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	for name, values := range valueSets {
		cluster := "managed"
		if strings.HasPrefix(name, "hub") {
			cluster = "hub"
		}
		check(name, cluster, render(t, values...))
	}
	for _, name := range []string{"hub", "spoke-managed", "spoke-autonomous", "spoke-shared"} {
		var all []byte
		for _, object := range overlay(t, name) {
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			all = fmt.Appendf(all, "---\n%s", text)
		}
		check("Argo CD of "+name, "hub", string(all))
	}
	// Show that the check can fail.
	if out, err := kubectl(t, l, "hub", "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: argocd}, dataa: {}}",
		"apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"); err == nil {
		t.Errorf("a field that does not exist was accepted: %s", out)
	}
}

func admittedWhereRestricted(t *testing.T, l *lab.Lab) {
	t.Helper()
	const namespace = "restricted"
	c := l.Hub()
	_, err := c.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "careless"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
	if _, err := c.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err == nil {
		t.Fatal("Pod Security accepts an unrestricted pod: this test checks nothing")
	}
	for _, role := range []string{onHub + ",principal.replicas=2", onSpoke} {
		if out, err := installRelease(t, l, "hub", namespace, role, "crds.install=false"); err != nil {
			t.Fatalf("%v: %s", err, out)
		} else if !strings.Contains(out, "kubectl -n restricted rollout status") {
			t.Errorf("the notes do not say how to go on: %s", out)
		}
		want := objects(t, render(t, role))
		lab.Await(t, "pods of "+role, func(ctx context.Context) error {
			name := deployment(t, want).Name
			d, err := c.Client().AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil && (d.Status.ReadyReplicas != *d.Spec.Replicas || *d.Spec.Replicas == 0) {
				err = fmt.Errorf("%d of %d pods: %v", d.Status.ReadyReplicas, *d.Spec.Replicas, d.Status.Conditions)
			}
			return err
		})
	}
	uninstall := l.Command(t.Context(), "helm", "uninstall", "argocd-agent", "--kube-context", "hub", "--namespace", namespace, "--wait")
	if out, err := uninstall.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := kubectl(t, l, "hub", "", "get", "all,networkpolicies,poddisruptionbudgets,serviceaccounts,roles", "--namespace", namespace,
		"-l", "app.kubernetes.io/part-of=argocd-agent", "--no-headers"); err != nil || !strings.Contains(out, "No resources found") {
		t.Errorf("something stays after an uninstall: %v %s", err, out)
	}
}

// buildBinaries builds our binaries into a directory.
func buildBinaries(t testing.TB) string {
	t.Helper()
	folder := t.TempDir()
	if _, errOut := runIn(t, "../..", "go", "build", "-o", folder+"/", "./cmd/..."); errOut != "" {
		t.Fatal(errOut)
	}
	return folder
}
