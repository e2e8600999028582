package lab_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// application is an auto-synced Application of a sample repository.
func application(l *lab.Lab, name, sample, path, namespace string) string {
	return fmt.Sprintf(`
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %s, path: %q, targetRevision: main}
  destination: {server: https://kubernetes.default.svc, namespace: %s}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, name, l.RepoURL(sample), path, namespace)
}

// deploy applies an Application and waits until it is Synced and Healthy.
func deploy(t *testing.T, l *lab.Lab, c *lab.Cluster, name, sample, path string) (namespace string) {
	t.Helper()
	namespace = "lab-test-" + name
	if err := c.Apply(t.Context(), application(l, name, sample, path, namespace)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Dynamic().Resource(applications).Namespace("argocd").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	lab.Await(t, name+" on "+c.Name+" to be Synced and Healthy", func(ctx context.Context) error {
		app, err := c.Dynamic().Resource(applications).Namespace("argocd").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		sync, _, _ := unstructured.NestedString(app.Object, "status", "sync", "status")
		health, _, _ := unstructured.NestedString(app.Object, "status", "health", "status")
		if sync != "Synced" || health != "Healthy" {
			return fmt.Errorf("it is %q and %q: %v", sync, health, app.Object["status"])
		}
		return nil
	})
	return namespace
}

func TestLab_ApplicationsBecomeSyncedAndHealthy(t *testing.T) {
	l := lab.Get(t)
	for _, test := range []struct{ sample, path string }{
		{gitserver.SamplePlain, "."},
		{gitserver.SampleKustomize, "overlays/staging"},
		{gitserver.SampleHelm, "."},
		{gitserver.SampleHooks, "waves"},
	} {
		t.Run(test.sample, func(t *testing.T) {
			deploy(t, l, l.Cluster("autonomous"), "deploy-"+test.sample, test.sample, test.path)
		})
	}
}

func TestPods_SupportLogsAndExec(t *testing.T) {
	l := lab.Get(t)
	c := l.Cluster("managed")
	namespace := deploy(t, l, c, "pods", gitserver.SamplePlain, ".")
	pods, err := c.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("pods: %v, %v", pods, err)
	}
	pod := pods.Items[0].Name

	t.Run("logs -f shows what is logged later", func(t *testing.T) {
		command := l.Command(t.Context(), "kubectl", "--context", c.Name, "-n", namespace, "logs", "-f", pod)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() {
			t.Fatalf("no first line: %v", lines.Err())
		}
		const news = "said while following"
		if err := c.LogInPods(news); err != nil {
			t.Fatal(err)
		}
		for lines.Text() != news {
			if !lines.Scan() {
				t.Fatalf("the log ended before the news: %v", lines.Err())
			}
		}
		_ = command.Process.Kill()
		_ = command.Wait()
	})

	t.Run("exec runs a shell", func(t *testing.T) {
		command := l.Command(t.Context(), "kubectl", "--context", c.Name, "-n", namespace, "exec", "-i", pod, "--",
			"sh", "-c", "read word; echo heard $word")
		command.Stdin = strings.NewReader("hello\n")
		out, err := command.CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "heard hello" {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

func TestArgoCD_CLILogsInAndLists(t *testing.T) {
	l := lab.Get(t)
	hub := l.Hub()
	const name = "listed-by-the-cli"
	if err := hub.Apply(t.Context(), application(l, name, gitserver.SamplePlain, ".", "nowhere")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		patch := []byte(`{"metadata":{"finalizers":null}}`) // the hub has no controller that would remove it
		client := hub.Dynamic().Resource(applications).Namespace("argocd")
		_, _ = client.Patch(context.Background(), name, "application/merge-patch+json", patch, metav1.PatchOptions{})
		_ = client.Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	own := t.TempDir()
	cli := func(folder string, args ...string) string {
		t.Helper()
		command := l.Command(t.Context(), "argocd", args...)
		command.Env = append(command.Env, "SSL_CERT_FILE="+l.ArgoCD.CAFile, "ARGOCD_CONFIG_DIR="+folder)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("argocd %s: %v: %s", args[0], err, out)
		}
		return string(out)
	}
	cli(own, "login", l.ArgoCD.Address, "--username", l.ArgoCD.Username, "--password", l.ArgoCD.Password)
	for who, folder := range map[string]string{"a new login": own, "lab shell": l.ArgoCD.CLIFolder} {
		if out := cli(folder, "cluster", "list"); !strings.Contains(out, "in-cluster") {
			t.Errorf("%s: cluster list: %s", who, out)
		}
		if out := cli(folder, "app", "list"); !strings.Contains(out, name) {
			t.Errorf("%s: app list: %s", who, out)
		}
	}
}

func TestArgoCD_APIAcceptsToken(t *testing.T) {
	l := lab.Get(t)
	client, err := l.HTTPClient()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Get("https://" + l.ArgoCD.Address + "/api/v1/session/userinfo")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var user struct{ LoggedIn bool }
	body, _ := io.ReadAll(answer.Body)
	if err := json.Unmarshal(body, &user); err != nil || !user.LoggedIn {
		t.Errorf("%s: %s, %v", answer.Status, body, err)
	}
}

func TestGit_TestCanCommit(t *testing.T) {
	l := lab.Get(t)
	store, err := l.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	repository, err := store.Create(t.Context(), "committed", gitserver.RepoOptions{Sample: gitserver.SamplePlain, BaseURL: l.Git.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = repository.Remove() })
	c := l.Cluster("managed")
	namespace := deploy(t, l, c, "committed", "committed", ".")
	extra := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n"
	if _, err := repository.Commit(t.Context(), "Add one", map[string]string{"extra.yaml": extra}); err != nil {
		t.Fatal(err)
	}
	refresh := []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`)
	if _, err := c.Dynamic().Resource(applications).Namespace("argocd").
		Patch(t.Context(), "committed", "application/merge-patch+json", refresh, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "the committed ConfigMap", func(ctx context.Context) error {
		_, err := c.Client().CoreV1().ConfigMaps(namespace).Get(ctx, "extra", metav1.GetOptions{})
		return err
	})
}

func TestSave_FailedTestLeavesLogsAndObjects(t *testing.T) {
	l := lab.Get(t)
	folder := t.TempDir()
	if err := l.Save(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"logs/hub-argocd-server.log", "logs/lab.log", "status.json",
		"objects/managed/appprojects.argoproj.io.yaml", "objects/hub/secrets..yaml"} {
		if info, err := os.Stat(filepath.Join(folder, file)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	grep := exec.CommandContext(t.Context(), "grep", "-rlF", l.Hub().Redis.Password, filepath.Join(folder, "objects"))
	if out, err := grep.Output(); err == nil {
		t.Errorf("a password was saved in %s", out)
	}
}
