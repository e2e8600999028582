package cli

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

// argoFixture returns a cluster with the objects of an Argo CD.
func argoFixture(t *testing.T, name string) *cluster {
	t.Helper()
	text, err := os.ReadFile("testdata/argocd/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, object)
	}
	return &cluster{namespace: "argocd", role: "hub", kube: fake.NewClientset(all...)}
}

func TestFindArgo_Installations(t *testing.T) {
	files, err := os.ReadDir("testdata/argocd")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ text, server, controller, redis, secret, key string }{
		"manifests":           {"manifests", "argocd-server", "argocd-application-controller", "argocd-redis", "argocd-redis", "auth"},
		"manifests-ha":        {"manifests, HA", "argocd-server", "argocd-application-controller", "argocd-redis-ha-haproxy", "argocd-redis", "auth"},
		"argo-helm":           {"argo-helm, release gitops", "gitops-argocd-server", "gitops-argocd-application-controller", "gitops-argocd-redis", "argocd-redis", "auth"},
		"argo-helm-ha":        {"argo-helm, release gitops, HA", "gitops-argocd-server", "gitops-argocd-application-controller", "gitops-redis-ha-haproxy", "argocd-redis", "auth"},
		"operator":            {"argocd-operator, ArgoCD team", "team-server", "team-application-controller", "team-redis", "team-redis-initial-password", "admin.password"},
		"openshift-gitops-ha": {"argocd-operator, ArgoCD openshift-gitops, HA", "openshift-gitops-server", "", "openshift-gitops-redis-ha-haproxy", "openshift-gitops-redis-initial-password", "admin.password"},
		"none":                {"manifests", "", "argocd-application-controller", "argocd-redis", "argocd-redis", "auth"},
	}
	for _, file := range files {
		name := strings.TrimSuffix(file.Name(), ".yaml")
		want, there := cases[name]
		if !there {
			t.Errorf("%s is not tested", file.Name())
			continue
		}
		a, err := argoFixture(t, name).findArgo(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		workload := func(w *argoWorkload) string {
			if w == nil {
				return ""
			}
			return w.name
		}
		got := []string{a.String(), workload(a.server), workload(a.controller), a.redis, a.redisSecret, a.redisKey}
		if expected := []string{want.text, want.server, want.controller, want.redis, want.secret, want.key}; !slices.Equal(got, expected) {
			t.Errorf("%s: %q, want %q", name, got, expected)
		}
	}
}

// Without permission to list, doctor uses the usual names and reports that it could not check.
func TestFindArgo_WithoutPermission(t *testing.T) {
	c := argoFixture(t, "operator")
	c.kube.(*fake.Clientset).PrependReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	a, err := c.findArgo(t.Context())
	if err == nil || !a.unknown || a.redis != redisService || a.installer != byManifests {
		t.Errorf("%+v, %v", a, err)
	}
}

// Remedies name the settings of the tool that installed Argo CD: a change of a Deployment would be reverted.
func TestDoctor_RemediesFollowInstaller(t *testing.T) {
	for _, c := range []struct {
		fixture, redis string // setting of the principal
		check          func(context.Context, *checkRun, *cluster, *checked)
		level, want    string
	}{
		{"manifests", "", namespacesOfHub, levelProblem, "ConfigMap argocd-cmd-params-cm"},
		{"argo-helm", "", namespacesOfHub, levelProblem, `configs.params."application.namespaces" of the chart argo-cd (release gitops)`},
		{"operator", "", namespacesOfHub, levelProblem, "spec.sourceNamespaces of ArgoCD team"},
		{"argo-helm-ha", "", namespacesOfHub, levelOK, "shows Applications of *"},
		{"openshift-gitops-ha", "", namespacesOfHub, levelOK, "shows Applications of w1,w2"},
		{"manifests", "", redisOfServer, levelWarning, "set --redis argocd-agent-redis-proxy:6379 of argocd-server only"},
		{"argo-helm", "", redisOfServer, levelWarning, "server.extraArgs of the chart argo-cd (release gitops)"},
		{"operator", "", redisOfServer, levelWarning, "spec.server.extraCommandArgs of ArgoCD team"},
		{"openshift-gitops-ha", "", redisOfServer, levelOK, "argocd-agent-redis-proxy:6379"},
		{"operator", "argocd-redis:6379", redisOfPrincipal, levelProblem, "set redis.address=team-redis:6379, redis.secretName=team-redis-initial-password and redis.secretKey=admin.password of the chart"},
		{"argo-helm", "", redisOfPrincipal, levelProblem, "set redis.address=gitops-argocd-redis:6379 of the chart"},
		{"manifests-ha", "", redisOfPrincipal, levelProblem, "set redis.address=argocd-redis-ha-haproxy:6379 of the chart"},
		{"manifests-ha", "argocd-redis-ha-haproxy:6379", redisOfPrincipal, levelProblem, "Service argocd-redis-ha-haproxy has no ready endpoint"},
		{"operator", "redis.example.com:6379", redisOfPrincipal, levelNote, "not checked"},
	} {
		hub := argoFixture(t, c.fixture)
		install, err := hub.findArgo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k := &checked{install: install, image: install.server.image, argoFlags: install.server.flags, argo: map[string]string{"exec.enabled": "true"},
			settings: &settings{name: principalDeployment, flags: map[string]string{"redis-server-address": c.redis}}}
		e := &checkRun{}
		c.check(t.Context(), e, hub, k)
		if len(e.found) != 1 || e.found[0].Level != c.level || !strings.Contains(e.found[0].Remedy+" "+e.found[0].Message, c.want) {
			t.Errorf("%s: %+v, want %s with %q", c.fixture, e.found, c.level, c.want)
		}
	}
}

func namespacesOfHub(_ context.Context, e *checkRun, _ *cluster, k *checked) { e.argoOnHub(k) }

func redisOfServer(ctx context.Context, e *checkRun, hub *cluster, k *checked) {
	e.argoRedis(ctx, hub, k)
}

func redisOfPrincipal(ctx context.Context, e *checkRun, hub *cluster, k *checked) {
	e.redis(ctx, hub, k.settings.get("redis-server-address"), k, true)
}
