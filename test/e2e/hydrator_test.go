package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// A source hydrator runs on the workload cluster. A managed agent gets the credentials to push only with the setting, and
// only while an Application needs them. Before Argo CD v3.3, two agents can push to one branch. Later releases do not hydrate
// a commit to a branch again on which another agent did it, so that each agent needs its own branch.
func TestHydrator_PushesFromWorkloadClusters(t *testing.T) {
	w := shared(t)
	branch := func(mode string) string { return "env-" + mode }
	if _, out, ok := strings.Cut(w.argocd(t, "version", "--client", "--short"), "argocd: v"); ok && strings.HasPrefix(out, "3.2.") {
		branch = func(string) string { return "env" }
	}
	managed, autonomous := w.managed().spoke, w.autonomous().spoke
	w.runCommitServer(t, managed.CommitServer, autonomous.CommitServer)
	name := "hydrated-" + now()
	repo, url := w.repository(t, gitserver.SamplePlain)
	dry := func(greeting string) {
		t.Helper()
		commit(t, repo, map[string]string{"dry/managed/configmap.yaml": configMapManifest("hydrated", greeting), "dry/autonomous/configmap.yaml": configMapManifest("hydrated", greeting)})
	}
	dry("first")
	spec := func(mode, destination string) map[string]any {
		o := appSpec{repo: url, destination: destination, namespace: name, automated: true, cascade: true}.object()
		unstructured.RemoveNestedField(o, "spec", "source")
		if err := unstructured.SetNestedMap(o, map[string]any{
			"drySource":  map[string]any{"repoURL": url, "targetRevision": "main", "path": "dry/" + mode},
			"syncSource": map[string]any{"targetBranch": branch(mode), "path": "live-" + mode},
		}, "spec", "sourceHydrator"); err != nil {
			t.Fatal(err)
		}
		return o
	}
	credentials := secretOf("repository-write", map[string]string{"project": "default", "type": "git", "url": url, "username": w.Git.Username, "password": w.Git.Password, "insecure": "true"})

	app := w.hub.app("managed", name)
	app.create(t, spec("managed", "managed"))
	w.hub.secret(name).create(t, credentials)
	app.becomes(t, shows("AgentHydratorWarning", "--sync-write-credentials"))
	managed.secret(name).isAbsent(t)

	before := w.principal.args
	w.principal.args = append(slices.Clone(before), "--sync-write-credentials")
	w.principal.restart(t)
	t.Cleanup(func() {
		w.principal.args = before
		w.principal.restart(t)
	})
	w.connected(t)
	managed.secret(name).becomes(t)
	app.becomes(t, showsNo("AgentHydratorWarning"))

	// The autonomous agent has its own credentials.
	autonomous.secret(name).create(t, credentials)
	own := autonomous.app(lab.ArgoCDNamespace, name)
	own.create(t, spec("autonomous", "in-cluster"))

	tips := map[string][]string{} // by branch
	for i, greeting := range []string{"first", "second"} {
		if i > 0 {
			dry(greeting)
		}
		const hydrate = `{"metadata":{"annotations":{"argocd.argoproj.io/hydrate":"normal","argocd.argoproj.io/refresh":"normal"}}}`
		app.patch(t, hydrate)
		own.patch(t, hydrate)
		for _, one := range []struct{ app, deployed object }{{app, managed.object(configMaps, name, "hydrated")}, {own, autonomous.object(configMaps, name, "hydrated")}} {
			requested := time.Now()
			await(t, greeting+" to be deployed", func() error {
				u := one.app.get(t)
				operation, _, _ := unstructured.NestedMap(u.Object, "status", "sourceHydrator", "currentOperation")
				// It failed because the branch has moved, or it is done and the branch has not been read since.
				if operation["phase"] != "Hydrating" && time.Since(requested) > 5*time.Second {
					requested = time.Now()
					one.app.patch(t, hydrate)
				}
				found, err := one.deployed.tryGet()
				if err != nil || found == nil || at(found, "data.GREETING") != greeting {
					return fmt.Errorf("hydration: %v, deployed: %v, %w", operation, found, err)
				}
				return nil
			})
		}
		for _, mode := range []string{"managed", "autonomous"} {
			tip, err := repo.Resolve(t.Context(), branch(mode))
			if err != nil {
				t.Fatal(err)
			}
			tips[branch(mode)] = append(tips[branch(mode)], tip)
		}
	}
	for branch, commits := range tips {
		for _, tip := range commits {
			if out, err := exec.CommandContext(t.Context(), "git", "-C", repo.Dir(), "merge-base", "--is-ancestor", tip, branch).CombinedOutput(); err != nil {
				t.Errorf("commit %s of %s was lost: %v %s", tip, branch, err, out)
			}
		}
	}
	for _, mode := range []string{"managed", "autonomous"} {
		files, err := repo.Files(t.Context(), branch(mode))
		if err != nil || !slices.Contains(files, "live-"+mode+"/manifest.yaml") {
			t.Errorf("branch %s has %v, %v", branch(mode), files, err)
		}
	}

	app.delete(t)
	app.goes(t)
	managed.secret(name).goes(t)
	w.hub.secret(name).delete(t)
	own.delete(t)
	own.goes(t)
	autonomous.secret(name).is(t)
	autonomous.secret(name).delete(t)
}

// runCommitServer runs a commit-server at an address. The other address is forwarded to it, because a machine can run only
// one.
func (w *testEnv) runCommitServer(t *testing.T, address, other string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	metrics := w.freePort(t)
	binaries := filepath.Dir(w.Command(t.Context(), "argocd").Path) // git calls argocd for the credentials
	w.runArgoCD(t, "argocd-commit-server", []string{"HOME=" + t.TempDir(), "PATH=" + binaries + string(filepath.ListSeparator) + os.Getenv("PATH")}, "--address="+host, "--port="+port, "--metrics-address=127.0.0.1", "--metrics-port="+metrics)
	await(t, "the commit-server", func() error { return healthy("http://127.0.0.1:" + metrics + "/healthz?full=true") })
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", other)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			var dialer net.Dialer
			to, err := dialer.DialContext(t.Context(), "tcp", address)
			if err != nil {
				_ = from.Close()
				continue
			}
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
}
