package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

// argocdServerAsInstalled runs the hub's argocd-server with the permissions and the Redis of the overlay.
func argocdServerAsInstalled(t testing.TB, l *lab.Lab, redis string) {
	t.Helper()
	const account = "argocd-server"
	hub, all := l.Hub(), overlay(t, "hub")
	var rights []byte
	for _, kind := range []string{"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
		text, err := yaml.Marshal(all[kind+"/"+account].Object)
		if err != nil {
			t.Fatal(err)
		}
		rights = fmt.Appendf(rights, "---\n%s", text)
	}
	if err := hub.Apply(t.Context(), string(rights)); err != nil {
		t.Fatal(err)
	}
	day := int64(24 * 3600)
	token, err := hub.Client().CoreV1().ServiceAccounts(lab.ArgoCDNamespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: hub,
clusters: [{name: hub, cluster: {server: %q, certificate-authority: %q}}],
users: [{name: hub, user: {token: %q}}],
contexts: [{name: hub, context: {cluster: hub, user: hub, namespace: argocd}}]}`, hub.Server, hub.CAFile, token.Status.Token)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Restart(t.Context(), "hub/argocd-server", lab.Flag("--kubeconfig", kubeconfig), lab.Env("KUBECONFIG", kubeconfig), lab.Flag("--redis", redis)); err != nil {
		t.Fatal(err)
	}
}

// deployed uses the hub's Argo CD as users do: it creates, deploys and reads an Application.
func deployed(t testing.TB, l *lab.Lab) {
	t.Helper()
	lab.Await(t, "an Application to be created", func(ctx context.Context) error {
		return argocd(ctx, l, "", "app", "create", "web", "--app-namespace", "w1", "--project", "default", "--dest-name", "w1", "--dest-namespace", "default",
			"--repo", l.RepoURL("plain"), "--path", ".", "--sync-policy", "automated", "--upsert")
	})
	if err := argocd(t.Context(), l, "Healthy", "app", "wait", "w1/web", "--sync", "--health", "--timeout", "180"); err != nil {
		t.Fatal(err)
	}
	if err := l.Cluster("managed").LogInPods("a word from the cluster"); err != nil {
		t.Fatal(err)
	}
	// Live access uses the ServiceAccount of the agent.
	for _, look := range []struct {
		want string
		args []string
	}{
		{"w1", []string{"cluster", "list"}},
		{"w1/web", []string{"app", "list"}},
		{"guestbook", []string{"app", "resources", "w1/web"}},
		{"restart", []string{"app", "actions", "list", "w1/web", "--kind", "Deployment"}},
		{"", []string{"app", "actions", "run", "w1/web", "restart", "--kind", "Deployment"}},
		{"a word from the cluster", []string{"app", "logs", "w1/web"}},
	} {
		lab.Await(t, "argocd "+strings.Join(look.args, " "), func(ctx context.Context) error { return argocd(ctx, l, look.want, look.args...) })
	}
}

// argocd runs a command that must succeed and print a text.
func argocd(ctx context.Context, l *lab.Lab, want string, args ...string) error {
	out, err := l.Command(ctx, "argocd", args...).CombinedOutput()
	if err == nil && !strings.Contains(string(out), want) {
		err = fmt.Errorf("there is no %q", want)
	}
	if err != nil {
		return fmt.Errorf("argocd %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// removed deletes the Application of deployed on the hub and waits until the cluster has deleted its replica.
func removed(t testing.TB, l *lab.Lab) {
	t.Helper()
	if err := argocd(t.Context(), l, "", "app", "delete", "w1/web", "--cascade=false", "--yes"); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "the Application to be gone from the cluster", func(ctx context.Context) error {
		_, err := l.Cluster("managed").Dynamic().Resource(applications).Namespace(lab.ArgoCDNamespace).Get(ctx, "web", metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
	if _, err := l.Cluster("managed").Client().AppsV1().Deployments("default").Get(t.Context(), "guestbook", metav1.GetOptions{}); err != nil {
		t.Errorf("what it deployed went with it: %v", err)
	}
}
