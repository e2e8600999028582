//nolint:thelper // these functions are the tests themselves: a failure is to be shown in them
package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/gitserver"
)

// repository creates a repository of the test from a sample.
func (w *testEnv) repository(t testing.TB, sample string) (*gitserver.Repo, string) {
	t.Helper()
	store, err := w.Repositories()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-") + "-" + now()
	repo, err := store.Create(t.Context(), name, gitserver.RepoOptions{Sample: sample})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = repo.Remove() })
	return repo, w.RepoURL(name)
}

// now returns a unique name suffix.
func now() string { return strconv.FormatInt(time.Now().UnixNano(), 36) }

func commit(t testing.TB, repo *gitserver.Repo, files map[string]string, options ...gitserver.Option) string {
	t.Helper()
	sha, err := repo.Commit(t.Context(), "Change", files, options...)
	if err != nil {
		t.Fatal(err)
	}
	return sha
}

func configMapManifest(name, greeting string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\ndata:\n  GREETING: " + greeting + "\n"
}

// commanded is an Application that receives commands on the hub, in either mode, with its replica on the other side.
type commanded struct {
	name     string // namespace/name for the CLI
	hub      object
	spoke    object
	owner    object // the owner's object on hub or spoke
	repo     *gitserver.Repo
	first    string // commit
	target   string // namespace of the workloads
	workload object // its ConfigMap
}

// newCommanded creates an Application without auto-sync and waits until both sides have it.
func newCommanded(t testing.TB, w *testEnv, mode, name string) commanded {
	t.Helper()
	agent := w.agents[mode]
	repo, url := w.repository(t, gitserver.SamplePlain)
	first, err := repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	name += "-" + now() // a long-running lab may have objects of an earlier run
	c := commanded{name: mode + "/" + name, hub: w.hub.app(mode, name), spoke: agent.spoke.app(lab.ArgoCDNamespace, name),
		repo: repo, first: first, target: name, workload: agent.spoke.object(configMaps, name, "guestbook")}
	spec := appSpec{repo: url, destination: mode, namespace: name, cascade: true}
	c.owner = c.hub
	if mode == "autonomous" {
		spec.destination, c.owner = "in-cluster", c.spoke
	}
	c.owner.create(t, spec.object())
	c.hub.becomes(t, outOfSync)
	return c
}

// inBothModes runs a scenario for a managed and an autonomous agent.
func inBothModes(t *testing.T, name string, scenario func(*testing.T, *testEnv, commanded)) {
	t.Helper()
	for _, mode := range []string{"managed", "autonomous"} {
		t.Run(mode, func(t *testing.T) {
			w := shared(t)
			scenario(t, w, newCommanded(t, w, mode, name))
		})
	}
}

func TestSync_FromHub(t *testing.T) {
	inBothModes(t, "sync", func(t *testing.T, w *testEnv, app commanded) {
		w.argocd(t, "app", "sync", app.name, "--dry-run")
		app.spoke.becomes(t, noOperation, field("status.operationState.phase", "Succeeded"))
		app.workload.isAbsent(t)

		w.argocd(t, "app", "sync", app.name, "--resource", ":ConfigMap:guestbook")
		app.workload.is(t)
		app.workload.site.object(deployments, app.target, "guestbook").isAbsent(t)

		w.argocd(t, "app", "sync", app.name)
		w.argocd(t, "app", "wait", app.name, "--sync", "--health", "--operation", "--timeout", "120")
		app.hub.is(t, synced, healthyApp, noOperation, history(1))

		second := commit(t, app.repo, map[string]string{"extra.yaml": configMapManifest("extra", "two")})
		w.argocd(t, "app", "sync", app.name, "--revision", second)
		app.hub.is(t, noOperation, history(2), field("status.operationState.syncResult.revision", second))
		extra := app.workload.site.object(configMaps, app.target, "extra")
		extra.is(t)

		commit(t, app.repo, nil, gitserver.Deleting("extra.yaml"))
		if out, err := w.tryArgocd(t, "app", "sync", app.name); err == nil || !strings.Contains(out, "require pruning") {
			t.Errorf("a sync that leaves something behind: %v, %s", err, out)
		}
		extra.is(t)
		w.argocd(t, "app", "sync", app.name, "--prune")
		extra.isAbsent(t)
		app.hub.is(t, synced, history(4))
	})
}

func TestRollback_FromHub(t *testing.T) {
	inBothModes(t, "rollback", func(t *testing.T, w *testEnv, app commanded) {
		w.argocd(t, "app", "sync", app.name)
		commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", "again")})
		w.argocd(t, "app", "sync", app.name)
		app.workload.is(t, field("data.GREETING", "again"))

		w.argocd(t, "app", "rollback", app.name, "0", "--timeout", "120")
		app.workload.is(t, field("data.GREETING", "hello"))
		app.hub.becomes(t, outOfSync, noOperation, history(3), field("status.operationState.syncResult.revision", app.first))
	})
}

func TestRefresh_ReturnsNewState(t *testing.T) {
	inBothModes(t, "refresh", func(t *testing.T, w *testEnv, app commanded) {
		for _, how := range []string{"--refresh", "--hard-refresh"} {
			sha := commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", "a"+how)})
			answer := w.argocd(t, "app", "get", app.name, how, "-o", "json")
			if !strings.Contains(answer, `"revision": "`+sha+`"`) {
				t.Errorf("argocd app get %s returned before the state was that of %s:\n%s", how, sha, answer)
			}
			app.hub.is(t, field("status.sync.revision", sha), annotation("argocd.argoproj.io/refresh", ""))
		}
	})
}

func TestSync_TwoRequestsAreTwoOperations(t *testing.T) {
	inBothModes(t, "clicks", func(t *testing.T, w *testEnv, app commanded) {
		for range 2 {
			w.argocd(t, "app", "sync", app.name, "--revision", app.first)
		}
		app.spoke.becomes(t, noOperation, history(2))
		app.hub.becomes(t, noOperation, history(2))
	})
}

func TestSync_IsRejectedWhileOneIsPending(t *testing.T) {
	w := shared(t)
	app := newCommanded(t, w, "managed", "pending")
	w.managed().kill(t)
	w.argocd(t, "app", "sync", app.name, "--async")
	out, err := w.tryArgocd(t, "app", "sync", app.name, "--async")
	if err == nil || !strings.Contains(out, "already in progress") {
		t.Fatalf("a second sync while one is pending: %v, %s", err, out)
	}
}

func TestSync_RunsOnceAfterReconnect(t *testing.T) {
	inBothModes(t, "away", func(t *testing.T, w *testEnv, app commanded) {
		agent := w.agents[strings.Split(app.name, "/")[0]]
		agent.kill(t)
		w.argocd(t, "app", "sync", app.name, "--async")
		app.hub.is(t, operating) // the command is visible while it waits
		w.principal.restart(t)
		agent.start(t)
		w.argocd(t, "app", "wait", app.name, "--sync", "--operation", "--timeout", "120")
		app.hub.is(t, noOperation, history(1))

		w.principal.restart(t)
		agent.restart(t)
		w.connected(t)
		w.argocd(t, "app", "get", app.name, "--refresh") // runs after all pending work
		app.spoke.is(t, noOperation, history(1))
	})
}

func TestRefresh_RunsAfterReconnect(t *testing.T) {
	w := shared(t)
	app := newCommanded(t, w, "managed", "refresh-away")
	w.managed().kill(t)
	sha := commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", "new")})
	app.hub.patch(t, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`)
	w.managed().start(t)
	app.hub.becomes(t, field("status.sync.revision", sha), annotation("argocd.argoproj.io/refresh", ""))
}

func TestDelete_FromHub(t *testing.T) {
	w := shared(t)
	t.Run("with cascade the workloads are deleted", func(t *testing.T) {
		app := newCommanded(t, w, "managed", "cascade")
		w.argocd(t, "app", "sync", app.name)
		w.argocd(t, "app", "delete", app.name, "-y")
		app.hub.goes(t)
		app.spoke.isAbsent(t)
		app.workload.goes(t)
	})
	t.Run("without cascade the workloads stay", func(t *testing.T) {
		app := newCommanded(t, w, "managed", "orphan")
		w.argocd(t, "app", "sync", app.name)
		w.argocd(t, "app", "delete", app.name, "-y", "--cascade=false")
		app.hub.goes(t)
		app.spoke.goes(t)
		app.workload.is(t)
	})
	t.Run("with cascade it waits for a disconnected agent", func(t *testing.T) {
		app := newCommanded(t, w, "managed", "cascade-away")
		w.argocd(t, "app", "sync", app.name)
		w.managed().kill(t)
		w.argocd(t, "app", "delete", app.name, "-y")
		app.hub.is(t, func(u *unstructured.Unstructured) error {
			if u.GetDeletionTimestamp() == nil {
				t.Error("it is not being deleted")
			}
			return nil
		})
		w.managed().start(t)
		app.hub.goes(t)
		app.spoke.isAbsent(t)
		app.workload.goes(t)
	})
}
