package resource

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// world is what the policy tests are about: one Application with a Deployment, its pod, a custom object and a cluster role.
func world() *Index {
	x := &Index{}
	x.Set("shop", []Node{
		{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u1"},
		{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "u2"},
		{Group: "example.com", Kind: "Widget", Namespace: "shop", Name: "w", UID: "u3"},
		{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "shop", UID: "u4"},
		{Kind: "ServiceAccount", Namespace: "shop", Name: "sa", UID: "u5"},
	})
	return x
}

func kindForTest(_ context.Context, _, _, resource string) (string, error) {
	return map[string]string{
		"deployments": "Deployment", "pods": "Pod", "widgets": "Widget", "clusterroles": "ClusterRole", "secrets": "Secret",
		"serviceaccounts": "ServiceAccount", "namespaces": "Namespace", "nodes": "Node",
	}[resource], nil
}

const (
	web   = "/apis/apps/v1/namespaces/shop/deployments/web"
	pod   = "/api/v1/namespaces/shop/pods/web-1"
	other = "/api/v1/namespaces/shop/pods/other"
	far   = "/api/v1/namespaces/far/pods/p"
)

func TestPolicy_Decisions(t *testing.T) {
	apps := Policy{}
	namespaces := Policy{Level: LevelNamespaces, Namespaces: []string{"team-*", "far"}}
	all := Policy{Level: LevelAll}
	for _, test := range []struct {
		name    string
		policy  Policy
		request string
		refused string // the setting that decides; empty: allowed
	}{
		{"nothing is open at level none", Policy{Level: LevelNone}, "GET " + web, SettingLevel},
		{"not even documents", Policy{Level: LevelNone}, "GET /version", SettingLevel},
		{"documents are open", apps, "GET /apis/apps/v1", ""},
		{"documents are open where reads are not", Policy{NoReads: true}, "GET /openapi/v2", ""},
		{"other paths are not", apps, "GET /metrics", SettingLevel},
		{"other paths are at level all", all, "GET /metrics", ""},
		{"unless reads are off", Policy{Level: LevelAll, NoReads: true}, "GET /metrics", SettingReads},

		{"an object of an Application is read", apps, "GET " + web, ""},
		{"and its child", apps, "GET " + pod, ""},
		{"and a custom object", apps, "GET /apis/example.com/v1/namespaces/shop/widgets/w", ""},
		{"and one without a namespace", apps, "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/shop", ""},
		{"another object is not", apps, "GET " + other, SettingLevel},
		{"nor one of the same name in another namespace", apps, "GET /apis/apps/v1/namespaces/far/deployments/web", SettingLevel},
		{"nor one of another group", apps, "GET /apis/else/v1/namespaces/shop/deployments/web", SettingLevel},
		{"nor one of an unknown resource", apps, "GET /apis/apps/v1/namespaces/shop/things/web", SettingLevel},
		{"a whole list is not", apps, "GET /api/v1/namespaces/shop/pods", SettingLevel},
		{"a list of one is", apps, "GET /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dweb-1", ""},
		{"a watch of one is", apps, "GET /api/v1/namespaces/shop/pods?watch=true&fieldSelector=metadata.name%3Dweb-1", ""},
		{"a watch of another is not", apps, "GET /api/v1/namespaces/shop/pods?watch=true&fieldSelector=metadata.name%3Dother", SettingLevel},
		{"a watch of all but one is not", apps, "GET /api/v1/namespaces/shop/pods?watch=true&fieldSelector=metadata.name!%3Dweb-1", SettingLevel},

		{"events of an object", apps, "GET /api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3Dweb-1,involvedObject.namespace%3Dshop,involvedObject.uid%3Du2", ""},
		{"events of an object with another UID", apps, "GET /api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3Dweb-1,involvedObject.uid%3Dzz", SettingLevel},
		{"events of a cluster object", apps, "GET /api/v1/events?fieldSelector=involvedObject.name%3Dshop,involvedObject.namespace%3D,involvedObject.uid%3Du4", ""},
		{"events of everything", apps, "GET /api/v1/namespaces/shop/events", SettingLevel},
		{"events of others", apps, "GET /api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3Dother", SettingLevel},

		{"a patch", apps, "PATCH " + web, ""},
		{"a patch of the status", apps, "PATCH " + web + "/status", ""},
		{"a patch of another", apps, "PATCH " + other, SettingLevel},
		{"an apply of another that is there", apps, "APPLY " + other, SettingLevel},
		{"a dry run of a patch of another is a look at it", apps, "PATCH " + other + "?dryRun=All", SettingLevel},
		{"a delete", apps, "DELETE " + web, ""},
		{"a delete of a collection", apps, "DELETE /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%3Dweb-1", SettingLevel},
		{"a patch where writes are off", Policy{NoWrites: true}, "PATCH " + web, SettingWrites},
		{"a dry run where writes are off", Policy{NoWrites: true}, "PATCH " + web + "?dryRun=All", ""},
		{"a dry run where reads are off", Policy{NoReads: true}, "PATCH " + web + "?dryRun=All", SettingReads},
		{"a delete of a pod where writes are off", Policy{NoWrites: true, Level: LevelAll}, "DELETE " + pod, SettingWrites},
		{"an eviction where writes are off", Policy{NoWrites: true, Level: LevelAll}, "POST " + pod + "/eviction?dryRun=All", SettingWrites},

		{"a creation in a namespace of an Application", apps, "POST /apis/batch/v1/namespaces/shop/jobs", ""},
		{"a creation elsewhere", apps, "POST /apis/batch/v1/namespaces/far/jobs", SettingLevel},
		{"a creation without a namespace", apps, "POST /apis/rbac.authorization.k8s.io/v1/clusterroles", SettingLevel},
		{"a creation where it is off", Policy{NoCreate: true}, "POST /apis/batch/v1/namespaces/shop/jobs", SettingCreate},
		{"its dry run", Policy{NoCreate: true}, "POST /apis/batch/v1/namespaces/shop/jobs?dryRun=All", ""},
		{"a creation where writes are off", Policy{NoWrites: true}, "POST /apis/batch/v1/namespaces/shop/jobs", SettingWrites},
		{"an apply where creation is off", Policy{NoCreate: true, Level: LevelAll}, "APPLY " + other, SettingCreate},
		{"an apply of an object of an Application there", Policy{NoCreate: true, Level: LevelAll}, "APPLY " + web, ""},

		{"logs", apps, "GET " + pod + "/log?follow=true", ""},
		{"logs of others", apps, "GET " + other + "/log", SettingLevel},
		{"logs where they are off", Policy{NoLogs: true}, "GET " + pod + "/log", SettingLogs},
		{"logs at level all where they are off", Policy{NoLogs: true, Level: LevelAll}, "GET " + pod + "/log", SettingLogs},
		{"exec", apps, "GET " + pod + "/exec", ""},
		{"exec in others", apps, "POST " + other + "/exec", SettingLevel},
		{"exec where it is off", Policy{NoExec: true, Level: LevelAll}, "GET " + pod + "/exec", SettingExec},
		{"attach where exec is off", Policy{NoExec: true}, "POST " + pod + "/attach", SettingExec},
		{"port-forward where exec is off", Policy{NoExec: true}, "POST " + pod + "/portforward", SettingExec},
		{"a proxy where exec is off", Policy{NoExec: true, Level: LevelAll}, "GET /api/v1/nodes/n/proxy/exec/x", SettingExec},
		{"a debug container where exec is off", Policy{NoExec: true}, "PATCH " + pod + "/ephemeralcontainers", SettingExec},
		{"a console where exec is off", Policy{NoExec: true, Level: LevelAll}, "UPGRADE /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/vm/console", SettingExec},
		{"a console", all, "UPGRADE /apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachineinstances/vm/console", ""},
		{"logs on a WebSocket where exec is off", Policy{NoExec: true}, "UPGRADE " + pod + "/log", ""},
		{"a watch on a WebSocket where exec is off", Policy{NoExec: true, Level: LevelAll}, "UPGRADE /api/v1/pods?watch=1", ""},
		{"a proxy into a node", apps, "GET /api/v1/nodes/n/proxy/metrics", SettingLevel},

		{"a token of an Application's account", apps, "POST /api/v1/namespaces/shop/serviceaccounts/sa/token", SettingLevel},
		{"a token in an open namespace", namespaces, "POST /api/v1/namespaces/far/serviceaccounts/sa/token", SettingLevel},
		{"a token at level all", all, "POST /api/v1/namespaces/shop/serviceaccounts/sa/token", ""},

		{"an object in an open namespace", namespaces, "GET " + far, ""},
		{"a list in an open namespace", namespaces, "GET /api/v1/namespaces/team-a/pods?watch=true", ""},
		{"the namespace itself", namespaces, "GET /api/v1/namespaces/team-a", ""},
		{"its deletion", namespaces, "DELETE /api/v1/namespaces/team-a", SettingNamespaces},
		{"a list of all namespaces", namespaces, "GET /api/v1/namespaces", SettingNamespaces},
		{"a list across namespaces", namespaces, "GET /api/v1/pods", SettingNamespaces},
		{"a closed namespace", namespaces, "GET " + other, SettingNamespaces},
		{"an object of an Application in a closed namespace", namespaces, "GET " + web, ""},
		{"a question about oneself", namespaces, "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ""},
		{"a creation in an open namespace", namespaces, "POST /api/v1/namespaces/far/pods", ""},
		{"a delete of a collection in an open namespace", namespaces, "DELETE /api/v1/namespaces/far/pods", ""},

		{"everything", all, "DELETE /api/v1/nodes/n", ""},
		{"everything, whole lists too", all, "GET /api/v1/secrets", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			method, target, _ := strings.Cut(test.request, " ")
			content := "application/merge-patch+json"
			if method == "APPLY" {
				method, content = http.MethodPatch, "application/apply-patch+yaml"
			}
			upgrade := method == "UPGRADE"
			if upgrade {
				method = http.MethodGet
			}
			r := httptest.NewRequest(method, target, http.NoBody)
			r.Header.Set("Content-Type", content)
			if upgrade {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}
			query, status := checkRequest(r)
			if status != nil {
				t.Fatal(status)
			}
			if err := test.policy.Check(); err != nil {
				t.Fatal(err)
			}
			q := parse(r, query)
			d := decider{policy: &test.policy, apps: world(), kindOf: kindForTest}
			_, status = d.decide(r, &q)
			switch {
			case test.refused == "" && status != nil:
				t.Errorf("refused: %s", status.Message)
			case test.refused != "" && status == nil:
				t.Error("allowed")
			case status != nil && (status.setting != test.refused || !strings.Contains(status.Message, test.refused) || status.Code != http.StatusForbidden):
				t.Errorf("refused by %s, not by %s: %s", status.setting, test.refused, status.Message)
			}
		})
	}
}

// A user that controls what Argo CD deploys has the permissions of its application controller.
func TestPolicy_ProtectsAutonomousClusters(t *testing.T) {
	const (
		child   = "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/child"
		outside = "/apis/argoproj.io/v1alpha1/namespaces/shop/applications"
		web     = "/apis/apps/v1/namespaces/shop/deployments/web"
		server  = "/apis/apps/v1/namespaces/argocd/deployments/argocd-server"
		pods    = "/api/v1/namespaces/argocd/pods"
	)
	index := &Index{}
	index.Set("parent", []Node{
		{Group: "argoproj.io", Kind: "Application", Namespace: "argocd", Name: "child"}, {Group: "apps", Kind: "Deployment", Namespace: "argocd", Name: "argocd-server"},
		{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
	})
	kindOf := func(_ context.Context, _, _, resource string) (string, error) {
		return map[string]string{"applications": "Application", "deployments": "Deployment"}[resource], nil
	}
	for request, allowed := range map[string][2]bool{ // managed, autonomous
		"GET " + child: {true, true}, "PATCH " + child + "?dryRun=All": {true, true}, "GET " + server: {true, true}, "PATCH " + web: {true, true},
		"POST /apis/batch/v1/namespaces/shop/jobs": {true, true},
		"PATCH " + child: {true, false}, "DELETE " + child: {true, false}, "PATCH " + server: {true, false}, "POST " + outside: {true, false},
		"POST " + pods: {false, false}, "POST /apis/argoproj.io/v1alpha1/namespaces/argocd/applications": {false, false},
	} {
		method, target, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, target, http.NoBody)
		r.Header.Set("Content-Type", "application/merge-patch+json")
		query, status := checkRequest(r)
		if status != nil {
			t.Fatal(status)
		}
		q := parse(r, query)
		for i, autonomous := range []bool{false, true} {
			d := decider{policy: &Policy{}, apps: index, kindOf: kindOf, argocd: "argocd", autonomous: autonomous}
			if _, status := d.decide(r, &q); (status == nil) != allowed[i] {
				t.Errorf("%s, autonomous %v: %v", request, autonomous, status)
			}
			for _, more := range []Policy{{Level: LevelAll}, {Level: LevelNamespaces, Namespaces: []string{"*"}}} {
				d.policy = &more
				if _, status := d.decide(r, &q); status != nil {
					t.Errorf("%s, autonomous %v, level %s: %v", request, autonomous, more.Level, status.Message)
				}
			}
		}
	}
}

func TestPolicy_CheckRejectsInvalid(t *testing.T) {
	for _, p := range []Policy{
		{Level: "some"}, {Level: LevelNamespaces}, {Namespaces: []string{"["}}, {Namespaces: []string{""}}, {Secrets: "half"},
	} {
		if p.Check() == nil {
			t.Errorf("%+v was accepted", p)
		}
	}
}

func TestIndex_ForgetsRemovedObjects(t *testing.T) {
	x := world()
	x.Set("other", []Node{{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "u2"}})
	x.Set("shop", []Node{{Kind: "Pod", Namespace: "new", Name: "p"}})
	if app, ok := x.OwnerOf("", "Pod", "shop", "web-1"); !ok || app != "other" {
		t.Errorf("the pod that another Application has too: %q, %v", app, ok)
	}
	if _, ok := x.OwnerOf("apps", "Deployment", "shop", "web"); ok {
		t.Error("the Deployment is still there")
	}
	x.Set("other", nil)
	if _, ok := x.HasNamespace("shop"); ok {
		t.Error("the namespace is still there")
	}
	if _, ok := x.OwnerOfSubject(Subject{Namespace: "shop", Name: "web-1"}); ok {
		t.Error("the subject is still there")
	}
	x.Set("shop", nil)
	if len(x.apps)+len(x.objects)+len(x.subjects)+len(x.namespaces) != 0 {
		t.Errorf("something is left: %+v", x)
	}
}

func TestNodes_ParsesATree(t *testing.T) {
	nodes, err := Nodes([]byte(`{"nodes":[{"version":"v1","kind":"Pod","namespace":"a","name":"p","uid":"u","parentRefs":[{"kind":"ReplicaSet","name":"r"}]},
		{"group":"apps","kind":"Deployment","namespace":"a","name":"d"},{"kind":"","name":"x"}],"orphanedNodes":[{"kind":"Pod","name":"o"}]}`), false)
	want := []Node{{Kind: "Pod", Namespace: "a", Name: "p", UID: "u"}, {Group: "apps", Kind: "Deployment", Namespace: "a", Name: "d"}}
	if err != nil || len(nodes) != 2 || nodes[0] != want[0] || nodes[1] != want[1] {
		t.Errorf("got %+v, %v", nodes, err)
	}
	if _, err := Nodes([]byte(`{"nodes":{}}`), false); err == nil {
		t.Error("nodes that are no list were accepted")
	}
	if nodes, err := Nodes([]byte(`{}`), true); err != nil || nodes != nil {
		t.Errorf("an empty tree: %v, %v", nodes, err)
	}
	nodes, err = Nodes([]byte(`{"nodes":[{"kind":"Pod","name":"p"}],"orphanedNodes":[{"kind":"Pod","name":"o"}]}`), true)
	if err != nil || len(nodes) != 2 || nodes[1] != (Node{Kind: "Pod", Name: "o", Orphaned: true}) {
		t.Errorf("with orphans: %+v, %v", nodes, err)
	}
	if _, err := Nodes([]byte(`{"nodes":[],"orphanedNodes":{}}`), true); err == nil {
		t.Error("orphans that are no list were accepted")
	}
}

// An orphaned object can be accessed. It does not make its namespace one in which the hub can create objects.
func TestIndex_Orphans(t *testing.T) {
	var x Index
	x.Set("shop", []Node{{Kind: "ConfigMap", Namespace: "shared", Name: "left", UID: "u", Orphaned: true}})
	if app, ok := x.OwnerOf("", "ConfigMap", "shared", "left"); !ok || app != "shop" {
		t.Errorf("the orphan belongs to %q, %v", app, ok)
	}
	if _, ok := x.OwnerOfSubject(Subject{Namespace: "shared", Name: "left", UID: "u"}); !ok {
		t.Error("events of the orphan are not accessible")
	}
	if app, ok := x.HasNamespace("shared"); ok {
		t.Errorf("the namespace belongs to %s", app)
	}
	x.Set("shop", nil)
	if len(x.apps)+len(x.objects)+len(x.subjects)+len(x.namespaces) != 0 {
		t.Errorf("something is left: %+v", &x)
	}
}
