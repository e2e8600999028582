package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

var managed = Env{Mode: kind.Managed, ArgoNamespace: "argocd", AgentNamespace: "argocd-agent"}

func compile(t *testing.T, env Env, specs ...v1alpha1.PolicySpec) *Policy {
	t.Helper()
	var list []v1alpha1.AgentPolicy
	for _, s := range specs {
		list = append(list, v1alpha1.AgentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: s})
	}
	p, err := Compile(env, list)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parse(t *testing.T, objectKind, rest string) *kind.Object {
	t.Helper()
	o, err := kind.Parse([]byte(`{"apiVersion":"argoproj.io/v1alpha1","kind":"` + objectKind +
		`","metadata":{"name":"web","namespace":"argocd","uid":"u","resourceVersion":"1"},` + rest + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// ruleOf returns the rule that an error names, or "".
func ruleOf(err error) string {
	if v, ok := errors.AsType[*ViolationError](err); ok {
		return v.Rule
	}
	return ""
}

func app(t *testing.T, spec string) *kind.Object {
	t.Helper()
	return parse(t, "Application", `"spec":`+spec)
}

func TestApplication_Limits(t *testing.T) {
	const plain = `{"project":"team-a","source":{"repoURL":"https://git/a"},"destination":{"name":"in-cluster","namespace":"shop"}}`
	for _, c := range []struct {
		name string
		spec v1alpha1.PolicySpec
		app  string
		rule string // empty: allowed
	}{
		{"no policy", v1alpha1.PolicySpec{}, plain, ""},
		{"project listed", v1alpha1.PolicySpec{Projects: []string{"team-*"}}, plain, ""},
		{"project not listed", v1alpha1.PolicySpec{Projects: []string{"infra"}}, plain, "projects"},
		{"no project allowed", v1alpha1.PolicySpec{Projects: []string{}}, plain, "projects"},
		{"repository listed", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}}, plain, ""},
		{"repository not listed", v1alpha1.PolicySpec{SourceRepos: []string{"https://other/*"}}, plain, "sourceRepos"},
		{"second source not listed", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}},
			`{"project":"p","sources":[{"repoURL":"https://git/a"},{"repoURL":"https://evil"}],"destination":{"namespace":"shop"}}`, "sourceRepos"},
		{"hydrator's source not listed", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}},
			`{"project":"p","sourceHydrator":{"drySource":{"repoURL":"https://evil"}},"destination":{"namespace":"shop"}}`, "sourceRepos"},
		{"namespace not listed", v1alpha1.PolicySpec{DestinationNamespaces: []string{"team-*"}}, plain, "destinationNamespaces"},
		{"namespace of Argo CD", v1alpha1.PolicySpec{}, strings.Replace(plain, "shop", "argocd", 1), "protectedNamespaces"},
		{"namespace of the agent", v1alpha1.PolicySpec{}, strings.Replace(plain, "shop", "argocd-agent", 1), "protectedNamespaces"},
		{"kinds allowed in the namespace of Argo CD", v1alpha1.PolicySpec{ArgoCDKinds: []string{"Application"}}, strings.Replace(plain, "shop", "argocd", 1), ""},
		{"protected pattern", v1alpha1.PolicySpec{ProtectedNamespaces: []string{"kube-*"}}, strings.Replace(plain, "shop", "kube-system", 1), "protectedNamespaces"},
		{"rule holds", v1alpha1.PolicySpec{Rules: []v1alpha1.Rule{{Name: "r", Expression: `object.spec.destination.namespace == "shop" && kind == "Application"`}}}, plain, ""},
		{"rule does not hold", v1alpha1.PolicySpec{Rules: []v1alpha1.Rule{{Name: "r", Expression: `kind != "Application"`}}}, plain, "r"},
		{"rule about a missing field", v1alpha1.PolicySpec{Rules: []v1alpha1.Rule{{Name: "r", Expression: `object.spec.absent == "x"`}}}, plain, "r"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := compile(t, managed, c.spec).Application(app(t, c.app))
			if ruleOf(v) != c.rule {
				t.Errorf("got %v, want rule %q", v, c.rule)
			}
		})
	}
}

func TestApplication_EveryPolicyMustAllow(t *testing.T) {
	p := compile(t, managed, v1alpha1.PolicySpec{Projects: []string{"*"}}, v1alpha1.PolicySpec{Projects: []string{"infra"}})
	if p.Application(app(t, `{"project":"team-a"}`)) == nil {
		t.Error("the second policy does not count")
	}
}

func TestRules_CostIsBounded(t *testing.T) {
	p := compile(t, managed, v1alpha1.PolicySpec{Rules: []v1alpha1.Rule{{Name: "r",
		Expression: `object.spec.list.all(a, object.spec.list.all(b, object.spec.list.all(c, a + b + c != "x")))`}}})
	v := p.Application(app(t, `{"project":"p","list":[`+strings.Repeat(`"0123456789",`, 2000)+`"y"]}`))
	if v == nil || !strings.Contains(v.Error(), "cost") {
		t.Errorf("got %v", v)
	}
}

func TestCompile_RefusesBadInput(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PolicySpec{
		"pattern":     {Projects: []string{"[a"}},
		"denial":      {SourceRepos: []string{"!a"}},
		"argoCDKinds": {ArgoCDKinds: []string{"Secret"}},
		"adoption":    {Adoption: "sometimes"},
		"operation":   {Operations: &v1alpha1.OperationPolicy{Allow: []string{"everything"}}},
		"deletions":   {Deletions: &v1alpha1.DeletionPolicy{Max: -1}},
		"syntax":      {Rules: []v1alpha1.Rule{{Name: "r", Expression: `object.`}}},
		"no boolean":  {Rules: []v1alpha1.Rule{{Name: "r", Expression: `"text"`}}},
		"no name":     {Rules: []v1alpha1.Rule{{Expression: `true`}}},
	} {
		if _, err := Compile(managed, []v1alpha1.AgentPolicy{{Spec: spec}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOperation_Limits(t *testing.T) {
	autonomous := Env{Mode: kind.Autonomous, ArgoNamespace: "argocd", AgentNamespace: "argocd"}
	const own = `"spec":{"project":"p","source":{"repoURL":"https://git/a","path":"web","targetRevision":"main"},"syncPolicy":{"syncOptions":["CreateNamespace=true"]}},
		"status":{"history":[{"id":1,"revision":"abc","source":{"repoURL":"https://git/old","path":"web"}}]}`
	for _, c := range []struct {
		name, operation string
		env             Env
		policy          *v1alpha1.OperationPolicy
		allowed         bool
	}{
		{"revision", `{"sync":{"revision":"abc"}}`, autonomous, nil, true},
		{"selected resources", `{"sync":{"resources":[{"kind":"Pod","name":"x"}]}}`, autonomous, nil, true},
		{"prune", `{"sync":{"prune":true}}`, autonomous, nil, true},
		{"prune not allowed", `{"sync":{"prune":true}}`, autonomous, &v1alpha1.OperationPolicy{Allow: []string{}}, false},
		{"manifests", `{"sync":{"manifests":["{}"]}}`, autonomous, nil, false},
		{"manifests allowed", `{"sync":{"manifests":["{}"]}}`, autonomous, &v1alpha1.OperationPolicy{Allow: []string{"manifests"}}, true},
		{"manifests on a managed agent", `{"sync":{"manifests":["{}"]}}`, managed, nil, true},
		{"own source, other revision", `{"sync":{"source":{"path":"web","repoURL":"https://git/a","targetRevision":"v2"}}}`, autonomous, nil, true},
		{"other source", `{"sync":{"source":{"repoURL":"https://evil","path":"web"}}}`, autonomous, nil, false},
		{"other path", `{"sync":{"source":{"repoURL":"https://git/a","path":"admin"}}}`, autonomous, nil, false},
		{"source of the history", `{"sync":{"revision":"abc","source":{"repoURL":"https://git/old","path":"web"}}}`, autonomous, nil, true},
		{"rollback not allowed", `{"sync":{"source":{"repoURL":"https://git/old","path":"web"}}}`, autonomous, &v1alpha1.OperationPolicy{Allow: []string{}}, false},
		{"other sources", `{"sync":{"sources":[{"repoURL":"https://evil"}]}}`, autonomous, nil, false},
		{"force", `{"sync":{"syncStrategy":{"apply":{"force":true}}}}`, autonomous, nil, false},
		{"force of hooks", `{"sync":{"syncStrategy":{"hook":{"force":true}}}}`, autonomous, nil, false},
		{"plain strategy", `{"sync":{"syncStrategy":{"hook":{}}}}`, autonomous, nil, true},
		{"own sync option", `{"sync":{"syncOptions":["CreateNamespace=true"]}}`, autonomous, nil, true},
		{"other sync option", `{"sync":{"syncOptions":["Validate=false"]}}`, autonomous, nil, false},
		{"listed sync option", `{"sync":{"syncOptions":["Validate=false"]}}`, autonomous, &v1alpha1.OperationPolicy{SyncOptions: []string{"Validate=*"}}, true},
		{"replace as an option", `{"sync":{"syncOptions":["Replace=true"]}}`, autonomous, &v1alpha1.OperationPolicy{SyncOptions: []string{"*"}}, false},
		{"unknown field", `{"sync":{"newThing":{"a":1}}}`, autonomous, nil, false},
		{"unknown operation", `{"destroy":{}}`, autonomous, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := compile(t, c.env, v1alpha1.PolicySpec{Operations: c.policy}).Operation(parse(t, "Application", own), []byte(c.operation))
			if (v == nil) != c.allowed {
				t.Errorf("got %v", v)
			}
		})
	}
}

func TestFrozen_EndsAtItsTime(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := compile(t, managed, v1alpha1.PolicySpec{Freeze: &v1alpha1.Freeze{Until: metav1.NewTime(until), Reason: "audit"}})
	if v := p.Frozen(until.Add(-time.Second)); v == nil || !strings.Contains(v.Reason, "audit") {
		t.Errorf("before: %v", v)
	}
	if v := p.Frozen(until); v != nil || !p.ThawsAt(until).IsZero() || !p.ThawsAt(until.Add(-time.Second)).Equal(until) {
		t.Errorf("after: %v", v)
	}
}

// The API server keeps the last of two equal keys. An operation with both is not read by its first one.
func TestOperation_RepeatedKeyIsRefused(t *testing.T) {
	autonomous := managed
	autonomous.Mode = kind.Autonomous
	p := compile(t, autonomous, v1alpha1.PolicySpec{})
	for _, operation := range []string{
		`{"sync":{"revision":"a"},"sync":{"manifests":["x"]}}`,
		`{"sync":{"manifests":["x"]},"sync":{"revision":"a"}}`,
		`{"sync":{"syncStrategy":{"apply":{"force":false},"apply":{"force":true}}}}`,
		`{"sync":{"source":{"repoURL":"https://git/a"},"source":{"repoURL":"https://evil"}}}`,
	} {
		if p.Operation(app(t, `{"project":"p","source":{"repoURL":"https://git/a"}}`), []byte(operation)) == nil {
			t.Errorf("%s is allowed", operation)
		}
	}
}

func TestRBAC_GrantsOnlyWhatIsAllowed(t *testing.T) {
	resources := []APIResource{
		{"", "configmaps", "ConfigMap", true}, {"", "secrets", "Secret", true}, {"apps", "deployments", "Deployment", true},
		{"", "namespaces", "Namespace", false}, {"rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false},
	}
	namespaces := []string{"team-b", "argocd", "argocd-agent", "team-a", "kube-system"}
	list := []v1alpha1.AgentPolicy{
		{Spec: v1alpha1.PolicySpec{DestinationNamespaces: []string{"team-*", "argocd"}, ArgoCDKinds: []string{"Application"}, NamespacedKinds: []v1alpha1.GroupKind{{Group: "", Kind: "ConfigMap"}, {Group: "apps", Kind: "*"}}}},
		{Spec: v1alpha1.PolicySpec{ClusterKinds: []v1alpha1.GroupKind{{Group: "", Kind: "Namespace"}}, ProtectedNamespaces: []string{"team-b"}}},
	}
	objects, err := RBAC(managed, list, "ci/deployer", namespaces, resources)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		meta := o["metadata"].(map[string]any)
		line := fmt.Sprint(o["kind"], " ", meta["namespace"], " ", meta["name"])
		if rules, ok := o["rules"].([]any); ok {
			for _, r := range rules {
				line += fmt.Sprint(" ", r.(map[string]any)["apiGroups"], r.(map[string]any)["resources"])
			}
		}
		got = append(got, line)
	}
	want := []string{
		"ServiceAccount ci deployer",
		"ClusterRole <nil> argocd-agent-deployer [] [configmaps] [apps] [deployments]",
		"RoleBinding team-a argocd-agent-deployer",
		"ClusterRole <nil> argocd-agent-deployer-cluster [] [namespaces]",
		"ClusterRoleBinding <nil> argocd-agent-deployer-cluster",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := RBAC(managed, list, "deployer", namespaces, resources); err == nil {
		t.Error("a service account without a namespace is accepted")
	}
}
