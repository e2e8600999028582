package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestSharedMode uses one lab. Spokes run only the application controller (one also the applicationset-controller) and
// the agent.
func TestSharedMode(t *testing.T) {
	w, endpoints := sharedModeEnv(t)
	s := managedSubject(t, w, "shared")
	t.Run("live updates", func(t *testing.T) {
		watch := s.watchTree(t)
		watch.shows(t, "the tree as it is", func(f tree) bool { return len(f.of("Pod")) == 1 })
		s.scale(t, 2)
		watch.shows(t, "two pods", func(f tree) bool { return len(f.of("Pod")) == 2 })
		if text := s.manifest(t, deploymentKind, s.workload, "web"); !strings.Contains(text, "web") { // the agent has the tree too
			t.Errorf("the Deployment is %s", text)
		}
		if found := s.tree(t); len(found.of("ReplicaSet")) != 1 {
			t.Errorf("the tree is %+v", found)
		}
	})
	t.Run("ApplicationSet", func(t *testing.T) { applicationSetOfSpoke(t, w) })
	t.Run("cluster page", func(t *testing.T) {
		await(t, "the cluster list to have the spoke's version", func() error {
			if out := w.argocd(t, "cluster", "list"); !strings.Contains(out, "Agent: 'managed' is connected") {
				return errors.New(out)
			}
			return nil
		})
	})
	t.Run("other agents", func(t *testing.T) { tenantsAreIsolated(t, w, endpoints) })
	t.Run("channels of other agents", func(t *testing.T) { channelsAreIsolated(t, w, endpoints) })
	t.Run("private repository", func(t *testing.T) { privateRepository(t, w) })
	t.Run("refusals reach the Application", func(t *testing.T) { refusalsReachTheApplication(t, w) })
	t.Run("URLs outside the repository", func(t *testing.T) { fetchesOtherURLs(t, w, endpoints) })
	t.Run("links in a repository", func(t *testing.T) { linksAreNotFollowed(t, w, endpoints) })
	t.Run("another repo-server", func(t *testing.T) { anotherRepoServer(t, w, endpoints) })
	t.Run("other repositories", func(t *testing.T) { otherRepositories(t, w, endpoints) })
	t.Run("the hub restarts", func(t *testing.T) {
		w.principal.restart(t)
		w.connected(t)
		again := managedSubject(t, w, "after-restart")
		again.watchTree(t).shows(t, "the tree", func(f tree) bool { return len(f.of("Pod")) == 1 })
	})
	t.Run("permission", func(t *testing.T) { permissionDecides(t, w, endpoints) })
}

// applicationSetOfSpoke lets the autonomous spoke's applicationset-controller create Applications from directories.
func applicationSetOfSpoke(t *testing.T, w *testEnv) {
	t.Helper()
	spoke, name := w.autonomous().spoke, fresh("dirs")
	set := spoke.object(appSets, lab.ArgoCDNamespace, name)
	set.create(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "spec": map[string]any{
		"generators": []any{map[string]any{"git": map[string]any{"repoURL": w.RepoURL("kustomize"), "revision": "main",
			"directories": []any{map[string]any{"path": "overlays/*"}}}}},
		"template": map[string]any{
			"metadata": map[string]any{"name": name + "-{{path.basename}}"},
			"spec": map[string]any{"project": "default",
				"source":      map[string]any{"repoURL": w.RepoURL("kustomize"), "path": "{{path}}", "targetRevision": "main"},
				"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": name},
				"syncPolicy":  map[string]any{"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}}},
		}}})
	w.hub.app("autonomous", name+"-staging").becomes(t, synced, healthyApp)

	name = fresh("files")
	spoke.object(appSets, lab.ArgoCDNamespace, name).create(t, map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "spec": map[string]any{
		"generators": []any{map[string]any{"git": map[string]any{"repoURL": w.RepoURL("appset"), "revision": "main",
			"files": []any{map[string]any{"path": "config/*.yaml"}}}}},
		"template": map[string]any{
			"metadata": map[string]any{"name": name + "-{{path.filename}}"},
			"spec": map[string]any{"project": "default",
				"source":      map[string]any{"repoURL": w.RepoURL("plain"), "path": ".", "targetRevision": "main"},
				"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": name}},
		}}})
	for _, file := range []string{"production.yaml", "staging.yaml"} {
		w.hub.app("autonomous", name+"-"+file).becomes(t, outOfSync)
	}
}

// tenantPrefix is the prefix of an agent's keys in the hub's Redis.
func tenantPrefix(t *testing.T, w *testEnv, agent string) string {
	t.Helper()
	return "argocd-agent|" + agent + "." + string(w.hub.agent(agent).get(t).GetUID())[:8] + "|"
}

// tenantsAreIsolated tries to read the keys of another spoke on the hub.
func tenantsAreIsolated(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	victim, hostile := endpoints["managed"].redis, endpoints["autonomous"].redis
	if got, err := redisAt(victim, sharedPassword, []string{"SET", "secret", "x", "EX", "1000"}); err != nil || got[0] != "+OK" {
		t.Fatalf("%v, %v", got, err)
	}
	hub := w.hub.Redis
	key := tenantPrefix(t, w, "managed") + "secret"
	if got, err := redisAt(hub.Address, hub.Password, []string{"GET", key}); err != nil || got[0] != "$1" {
		t.Fatalf("on the hub: %v, %v", got, err)
	}
	for _, request := range [][]string{{"GET", "secret"}, {"GET", key}, {"GET", "|" + key}, {"GET", "../managed|secret"}} {
		if got, err := redisAt(hostile, sharedPassword, request); err != nil || got[0] != "$-1" {
			t.Errorf("%v: %v, %v", request, got, err)
		}
	}
	for _, request := range [][]string{{"KEYS", "*"}, {"SCAN", "0"}, {"EVAL", "return redis.call('GET', '" + key + "')", "0"}, {"FLUSHALL"},
		{"CONFIG", "GET", "requirepass"}, {"SET", "x", "forever"}, {"MONITOR"}, {"COPY", key, "mine"},
		{"CLIENT", "LIST"}, {"ACL", "WHOAMI"}, {"INFO"}, {"DBSIZE"}, {"RANDOMKEY"}, {"SCRIPT", "FLUSH"}, {"FCALL", "f", "0"},
		{"PUBSUB", "CHANNELS"}, {"DEBUG", "SLEEP", "1"}, {"SHUTDOWN"}, {"REPLICAOF", "NO", "ONE"}, {"SPUBLISH", "x", "y"}, {"SSUBSCRIBE", "x"}} {
		if got, err := redisAt(hostile, sharedPassword, request); err != nil || !strings.HasPrefix(got[0], "-NOPERM ") {
			t.Errorf("%v: %v, %v", request, got, err)
		}
	}
	if got, err := redisAt(hostile, sharedPassword, []string{"RENAME", key, "mine"}); err != nil || got[0] != "-ERR no such key" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := redisAt(hostile, sharedPassword, []string{"DEL", key}, []string{"SET", key, "forged", "EX", "10"}); err != nil || got[0] != ":0" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := redisAt(victim, sharedPassword, []string{"GET", "secret"}); err != nil || got[0] != "$1" {
		t.Errorf("the victim has %v, %v", got, err)
	}
	if _, err := redisAt(hostile, "guess"); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}

// otherRepositories tries to use repositories that no placed AppProject permits.
func otherRepositories(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	const narrow = "narrow"
	w.hub.project("default").patch(t, `{"spec":{"sourceRepos":["!`+w.RepoURL("helm")+`","*"]}}`)
	t.Cleanup(func() { w.hub.project("default").patch(t, `{"spec":{"sourceRepos":["*"]}}`) })
	await(t, "the hub to refuse", func() error {
		err := askRepoServer(t, endpoints["managed"].repoServer, "GetGitDirectories", w.RepoURL("helm"))
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "repository "+w.RepoURL("helm")+" is not of a project that is placed on agent managed") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	if err := askRepoServer(t, endpoints["managed"].repoServer, "GetGitDirectories", w.RepoURL("plain")); err != nil {
		t.Errorf("its own: %v", err)
	}
	for method, repository := range map[string]string{
		"ListRefs": w.RepoURL("plain"), "TestRepository": w.RepoURL("plain"), "GenerateManifestWithFiles": w.RepoURL("plain"), "GetGitFiles": "file:///etc",
	} {
		if err := askRepoServer(t, endpoints["managed"].repoServer, method, repository); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s of %s: %v", method, repository, err)
		}
	}
	// A repository with credentials of another AppProject is refused, even if the agent's own AppProject permits it.
	secret := w.hub.secret(fresh(narrow))
	secret.create(t, map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"labels": map[string]any{secretTyp: "repository"}},
		"stringData": map[string]any{"url": w.RepoURL("hooks"), "project": narrow, "username": "x", "password": "y"}})
	await(t, "the hub to keep a registered repository apart", func() error {
		err := askRepoServer(t, endpoints["managed"].repoServer, "GetGitDirectories", w.RepoURL("hooks"))
		if !strings.Contains(fmt.Sprint(err), "is registered on the hub for a project that is not placed on agent managed") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
}

// permissionDecides removes the permission of an agent and grants it again with its Agent.
func permissionDecides(t *testing.T, w *testEnv, endpoints map[string]sharedEndpoints) {
	t.Helper()
	declared := w.hub.object(agents, lab.ArgoCDNamespace, "managed")
	declared.patch(t, `{"spec":{"shared":false}}`)
	w.principal.kill(t)
	w.principal.args = without(w.principal.args, "--shared-mode-agents")
	w.principal.start(t)
	w.connected(t)
	await(t, "the hub to refuse", func() error {
		got, err := redisAt(endpoints["managed"].redis, sharedPassword, []string{"GET", "secret"})
		if err != nil || !strings.Contains(got[0], "agent managed may not use the hub's repo-server and Redis: set spec.shared of its Agent") {
			return fmt.Errorf("it answers %v, %v", got, err) //nolint:errorlint // there may be none
		}
		return nil
	})
	w.managed().waitForLog(t, 0, "Failed to connect Argo CD to the hub", "agent managed may not use the hub's repo-server and Redis")
	declared.patch(t, `{"spec":{"shared":true}}`)
	await(t, "the hub to let it in again", func() error {
		got, err := redisAt(endpoints["managed"].redis, sharedPassword, []string{"PING"})
		if err != nil || got[0] != "+PONG" {
			return fmt.Errorf("%v, %v", got, err) //nolint:errorlint // there may be none
		}
		return nil
	})
}
