package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
)

// teamRights let a team list Applications in namespace managed and get the Agent of that name.
const teamRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-team, namespace: managed}
rules: [{apiGroups: [argoproj.io], resources: [applications], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-team, namespace: managed}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-team}
subjects: [{kind: ServiceAccount, name: team, namespace: default}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-team, namespace: argocd}
rules: [{apiGroups: [argocd-agent.argoproj-labs.io], resources: [agents], resourceNames: [managed], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-team, namespace: argocd}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-team}
subjects: [{kind: ServiceAccount, name: team, namespace: default}]
`

// searcher runs argocd-agentctl with a kubeconfig. If there is no other command, it is search.
type searcher struct {
	kubeconfig string
	reach      []string
	other      string
}

// run returns the output and the exit code.
func (s searcher) run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	out, err := s.command(ctx, t, args...).CombinedOutput()
	failed, isExit := errors.AsType[*exec.ExitError](err)
	if err != nil && !isExit {
		t.Fatal(err)
	}
	if isExit {
		return string(out), failed.ExitCode()
	}
	return string(out), 0
}

func (s searcher) command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	file, err := buildCLI()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, file, append(append([]string{cmp.Or(s.other, "search")}, args...), s.reach...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "KUBECONFIG=" + s.kubeconfig}
	return cmd
}

// kubeconfigOf returns a kubeconfig with a token of a ServiceAccount. Its API server does not exist, because a search
// needs only the principal.
func kubeconfigOf(t *testing.T, w *testEnv, account string) string {
	t.Helper()
	accounts := w.hub.Client().CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), account, new(authenticationv1.TokenRequest), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfigWithToken(t, w, account, token.Status.Token)
}

func kubeconfigWithToken(t *testing.T, w *testEnv, name, token string) string {
	t.Helper()
	file := filepath.Join(w.folder, name+".kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"hub","contexts":[{"name":"hub","context":{"cluster":"hub","user":"me"}}],
		"clusters":[{"name":"hub","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"me","user":{"token":%q}}]}`, token)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// serveSearch sets the principal's search port, with the permissions that it needs, and returns it. The principal must start
// afterwards.
func (w *testEnv) serveSearch(t *testing.T) (port string) {
	t.Helper()
	for _, name := range []string{"rbac-search.yaml", "rbac-search-certificates.yaml"} {
		manifest, err := os.ReadFile("../../install/kustomize/principal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.hub.Apply(t.Context(), string(manifest)); err != nil {
			t.Fatal(err)
		}
	}
	port = w.freePort(t)
	w.principal.args = append(w.principal.args, "--search-port", port)
	return port
}

// TestSearch_ShowsOnlyWhatCallerMaySee has an administrator with a client certificate, a team that may see one agent, and
// an account without rights. It needs no Argo CD.
func TestSearch_ShowsOnlyWhatCallerMaySee(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}, {Name: "secret", Role: lab.Managed}}})
	w := newEnv(t, setup{lab: l, agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed"}, {name: "secret", cluster: "secret", mode: "managed"}}})
	t.Cleanup(w.close)
	if err := w.hub.Apply(t.Context(), teamRights); err != nil {
		t.Fatal(err)
	}
	port := w.serveSearch(t)
	w.start(t)
	reach := []string{"--server", "127.0.0.1:" + port, "--server-ca", w.pki.file}
	admin := searcher{kubeconfig: w.hub.Kubeconfig, reach: reach}
	team := searcher{kubeconfig: kubeconfigOf(t, w, "team"), reach: reach}
	stranger := searcher{kubeconfig: kubeconfigOf(t, w, "stranger"), reach: reach}

	w.hub.app("managed", "web").create(t, simple("managed"))
	w.hub.app("secret", "secret-web").create(t, simple("secret"))
	for name, agent := range map[string]string{"web": "managed", "secret-web": "secret"} {
		replica := w.agents[agent].spoke.app(lab.ArgoCDNamespace, name)
		replica.becomes(t)
		replica.edit(t, func(u *unstructured.Unstructured) { // as the application controller does
			u.Object["status"] = map[string]any{"health": map[string]any{"status": "Degraded"}, "sync": map[string]any{"status": "Synced", "revision": "4f2a9c1d"},
				"summary": map[string]any{"images": []any{"docker.io/library/nginx:1.25.3"}}}
		})
	}
	finds := func(s searcher, want string, args ...string) {
		t.Helper()
		await(t, "search "+strings.Join(args, " "), func() error {
			out, code := s.run(t, args...)
			if s.kubeconfig != admin.kubeconfig && strings.Contains(out, "secret") {
				t.Fatalf("search %v shows what the caller may not see: %s", args, out)
			}
			if code != 0 || strings.Join(strings.Fields(out), " ") != want {
				return fmt.Errorf("exit code %d: %s", code, out)
			}
			return nil
		})
	}
	const byName = "application.argoproj.io/"
	finds(admin, byName+"managed/web "+byName+"secret/secret-web", "image~nginx:1.2*", "-o", "name")
	finds(team, byName+"managed/web", "image~nginx:1.2*", "-o", "name")
	finds(team, byName+"managed/web", "revision=4f2a9c1 health!=Healthy freshness<1h agent=managed", "-o", "name")
	finds(team, "No Applications found.", "revision!=4f2a9c1")
	finds(team, "AGENT COUNT managed 1", "--group-by", "agent")
	finds(team, "1", "--count")
	finds(admin, "2", "--count")
	finds(team, "No Applications found.", `name~web agent!=managed`)

	refused := func(s searcher, message string, args ...string) {
		t.Helper()
		if out, code := s.run(t, args...); code == 0 || !strings.Contains(out, message) || strings.Contains(out, "web") {
			t.Errorf("search %v: exit code %d: %s", args, code, out)
		}
	}
	refused(stranger, "cannot list Applications")
	refused(stranger, "cannot list Applications", "--count")
	refused(searcher{kubeconfig: kubeconfigWithToken(t, w, "invalid", "invalid"), reach: reach}, "no valid credentials")
	refused(team, `unknown field "helth"`, "helth=Healthy")
	team.follows(t, w)
	searcher{kubeconfig: admin.kubeconfig, reach: reach, other: "trace"}.traces(t, w)

	if err := w.hub.Client().RbacV1().RoleBindings("managed").Delete(t.Context(), "e2e-team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the team to lose its right", func() error {
		if out, code := team.run(t, "--count"); code == 0 || !strings.Contains(out, "cannot list Applications") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
}

// follows watches Applications of both agents.
func (s searcher) follows(t *testing.T, w *testEnv) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	cmd := s.command(ctx, t, "--watch", "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it is stopped
	defer cancel()
	decoder := json.NewDecoder(out)
	created := false
	for {
		var update struct {
			Changed []struct{ Namespace, Name string }
			Removed []struct{ Namespace, Name string }
		}
		if err := decoder.Decode(&update); err != nil {
			t.Fatal(err)
		}
		for _, a := range append(update.Changed, update.Removed...) {
			if a.Namespace != "managed" {
				t.Errorf("the watch shows %s/%s", a.Namespace, a.Name)
			}
			if a.Name == "new" {
				return
			}
		}
		if !created {
			created = true
			w.hub.app("secret", "secret-new").create(t, simple("secret"))
			w.hub.app("managed", "new").create(t, simple("managed"))
		}
	}
}

// traces changes an Application and shows where the change spent its time.
func (s searcher) traces(t *testing.T, w *testEnv) {
	t.Helper()
	w.hub.app("managed", "web").patch(t, `{"spec":{"source":{"targetRevision":"traced"}}}`)
	replica := w.agents["managed"].spoke.app(lab.ArgoCDNamespace, "web")
	replica.becomes(t, func(u *unstructured.Unstructured) error {
		if at(u, "spec.source.targetRevision") != "traced" {
			return errors.New("it is not changed")
		}
		return nil
	})
	replica.edit(t, func(u *unstructured.Unstructured) { // as the application controller does
		now := time.Now().UTC()
		state := map[string]any{"operation": map[string]any{}, "phase": "Succeeded", "startedAt": now.Format(time.RFC3339), "finishedAt": now.Add(5 * time.Second).Format(time.RFC3339)}
		if err := unstructured.SetNestedMap(u.Object, state, "status", "operationState"); err != nil {
			t.Fatal(err)
		}
	})
	await(t, "the stages of the change", func() error {
		out, code := s.run(t, "app/web", "-o", "json")
		var got struct {
			Agent  string
			Stages []struct {
				Stage   string
				Seconds *float64
				Note    string
			}
		}
		if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 || got.Agent != "managed" {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		known := ""
		for _, stage := range got.Stages {
			if stage.Seconds == nil || *stage.Seconds > patience.Seconds() {
				return fmt.Errorf("%s: %s", stage.Stage, out)
			}
			known += stage.Stage + " "
		}
		if known != "hub transport spoke compare sync " || *got.Stages[2].Seconds == 0 || *got.Stages[4].Seconds != 5 {
			return errors.New(out)
		}
		return nil
	})
	if out, code := s.run(t, "app/none"); code != 1 || !strings.Contains(out, "not found") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := s.run(t, "web"); code != 2 || !strings.Contains(out, "must be app/NAME") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
