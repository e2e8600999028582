package policy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

func TestProject_IsNarrowed(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy v1alpha1.PolicySpec
		spec   string
		path   string
		want   string
	}{
		{"any repository", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}}, `{"sourceRepos":["*"]}`, "sourceRepos", `["https://git/*"]`},
		{"narrower repository", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}}, `{"sourceRepos":["https://git/a/*","https://evil/*"]}`, "sourceRepos", `["https://git/a/*"]`},
		{"denied repository stays denied", v1alpha1.PolicySpec{SourceRepos: []string{"*"}}, `{"sourceRepos":["*","!https://git/x"]}`, "sourceRepos", `["*","!https://git/x"]`},
		{"patterns that cannot be compared", v1alpha1.PolicySpec{SourceRepos: []string{"https://*/a"}}, `{"sourceRepos":["https://git/?"]}`, "sourceRepos", `[]`},
		{"all namespaces", v1alpha1.PolicySpec{}, `{"destinations":[{"namespace":"*","server":"*"}]}`, "destinations", `[{"namespace":"!{argocd,argocd-agent}","server":"*"}]`},
		{"namespace of Argo CD", v1alpha1.PolicySpec{}, `{"destinations":[{"namespace":"argocd","server":"*"},{"namespace":"shop","server":"*"}]}`, "destinations", `[{"namespace":"shop","server":"*"}]`},
		{"pattern that covers it", v1alpha1.PolicySpec{}, `{"destinations":[{"namespace":"argo*","server":"*"}]}`, "destinations", `[]`},
		{"allowed namespaces", v1alpha1.PolicySpec{DestinationNamespaces: []string{"team-*"}}, `{"destinations":[{"namespace":"*","server":"*"}]}`, "destinations", `[{"namespace":"team-*","server":"*"}]`},
		{"denial permits only what is allowed", v1alpha1.PolicySpec{DestinationNamespaces: []string{"team-a", "team-b"}}, `{"destinations":[{"namespace":"!team-b","server":"*"}]}`, "destinations", `[{"namespace":"team-a","server":"*"}]`},
		{"kinds without a list", v1alpha1.PolicySpec{NamespacedKinds: []v1alpha1.GroupKind{{Group: "apps", Kind: "*"}}}, `{}`, "namespaceResourceWhitelist", `[{"group":"apps","kind":"*"}]`},
		{"kinds with nothing in common", v1alpha1.PolicySpec{NamespacedKinds: []v1alpha1.GroupKind{{Group: "apps", Kind: "*"}}}, `{"namespaceResourceWhitelist":[{"group":"","kind":"Secret"}]}`, "namespaceResourceWhitelist", `[{"group":"none","kind":"None"}]`},
		{"cluster-scoped kinds", v1alpha1.PolicySpec{ClusterKinds: []v1alpha1.GroupKind{{Group: "", Kind: "Namespace"}}}, `{"clusterResourceWhitelist":[{"group":"*","kind":"*"}]}`, "clusterResourceWhitelist", `[{"group":"","kind":"Namespace"}]`},
		{"no cluster-scoped kinds", v1alpha1.PolicySpec{ClusterKinds: []v1alpha1.GroupKind{}}, `{"clusterResourceWhitelist":[{"group":"*","kind":"*"}]}`, "clusterResourceWhitelist", `[]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, v := compile(t, managed, c.policy).Project(parse(t, "AppProject", `"spec":`+c.spec))
			if v != nil {
				t.Fatal(v)
			}
			if got := string(o.Get("spec", c.path)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if again, v := compile(t, managed, c.policy).Project(o); v != nil || again != o {
				t.Errorf("narrowed again: %v, %s", v, again.Raw())
			}
			if v := compile(t, managed, c.policy).Exceeds(o); v != nil {
				t.Errorf("the narrowed project is too wide: %v", v)
			}
		})
	}
}

func TestExceeds_NamesTheRule(t *testing.T) {
	kinds := []v1alpha1.GroupKind{{Group: "apps", Kind: "*"}}
	for _, c := range []struct {
		name   string
		policy v1alpha1.PolicySpec
		spec   string
		want   string
	}{
		{"empty project", v1alpha1.PolicySpec{SourceRepos: []string{}, DestinationNamespaces: []string{}, ClusterKinds: kinds}, `{}`, ""},
		{"any repository", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}}, `{"sourceRepos":["*"]}`, "sourceRepos"},
		{"narrow repositories, one twice", v1alpha1.PolicySpec{SourceRepos: []string{"https://git/*"}}, `{"sourceRepos":["https://git/a","https://git/a","!https://git/b"]}`, ""},
		{"any namespace", v1alpha1.PolicySpec{DestinationNamespaces: []string{"team-*"}}, `{"destinations":[{"namespace":"*"}]}`, "destinationNamespaces"},
		{"a denial allows all others", v1alpha1.PolicySpec{DestinationNamespaces: []string{"team-*"}}, `{"destinations":[{"namespace":"!team-b"}]}`, "destinationNamespaces"},
		{"protected namespace", v1alpha1.PolicySpec{}, `{"destinations":[{"namespace":"shop"},{"namespace":"argo*"}]}`, "protectedNamespaces"},
		{"denied protected namespaces", v1alpha1.PolicySpec{}, `{"destinations":[{"namespace":"!{argocd,argocd-agent,x}"}]}`, ""},
		{"one of two is denied", v1alpha1.PolicySpec{}, `{"destinations":[{"namespace":"!argocd"}]}`, "protectedNamespaces"},
		{"destinations that are not a list", v1alpha1.PolicySpec{}, `{"destinations":"*"}`, "destinationNamespaces"},
		{"all namespaced kinds", v1alpha1.PolicySpec{NamespacedKinds: kinds}, `{}`, "namespacedKinds"},
		{"allowed kinds", v1alpha1.PolicySpec{NamespacedKinds: kinds}, `{"namespaceResourceWhitelist":[{"group":"apps","kind":"Deployment"}]}`, ""},
		{"cluster-scoped kinds", v1alpha1.PolicySpec{ClusterKinds: kinds}, `{"clusterResourceWhitelist":[{"group":"","kind":"Namespace"}]}`, "clusterKinds"},
		{"Argo CD's namespace for another kind", v1alpha1.PolicySpec{ArgoCDKinds: []string{"Application"}}, `{"destinations":[{"namespace":"argocd"}]}`, "protectedNamespaces"},
		{"Argo CD's namespace for its kinds", v1alpha1.PolicySpec{ArgoCDKinds: []string{"Application"}}, `{"destinations":[{"namespace":"argocd"}],"namespaceResourceWhitelist":[{"group":"argoproj.io","kind":"Application"}]}`, ""},
	} {
		if got := ruleOf(compile(t, managed, c.policy).Exceeds(parse(t, "AppProject", `"spec":`+c.spec))); got != c.want {
			t.Errorf("%s: rule %q, want %q", c.name, got, c.want)
		}
	}
}

func TestProject_IsRefusedIfNotListed(t *testing.T) {
	if _, v := compile(t, managed, v1alpha1.PolicySpec{Projects: []string{"team-*"}}).Project(parse(t, "AppProject", `"spec":{}`)); ruleOf(v) != "projects" {
		t.Errorf("got %v", v)
	}
}

// A project that allows only Argo CD's kinds may deploy to Argo CD's namespace if the policy lists these kinds.
func TestProject_ArgoCDNamespaceOnlyForArgoCDKinds(t *testing.T) {
	p := compile(t, managed, v1alpha1.PolicySpec{ArgoCDKinds: []string{"Application"}})
	for whitelist, want := range map[string]string{
		`[{"group":"argoproj.io","kind":"Application"}]`:                                 "argocd",
		`[{"group":"argoproj.io","kind":"Application"},{"group":"","kind":"ConfigMap"}]`: "",
		`[{"group":"argoproj.io","kind":"AppProject"}]`:                                  "",
		`[{"group":"*","kind":"*"}]`:                                                     "",
		`[]`:                                                                             "",
		`null`:                                                                           "",
	} {
		o, err := p.Project(parse(t, "AppProject", `"spec":{"destinations":[{"server":"*","namespace":"argocd"}],"namespaceResourceWhitelist":`+whitelist+`}`))
		if err != nil {
			t.Fatal(err)
		}
		list, _ := rawjson.Elements(o.Get("spec", "destinations"))
		got := ""
		if len(list) > 0 {
			got = rawjson.Text(list[0], "namespace")
		}
		if got != want {
			t.Errorf("%s: the project may deploy to %q, want %q", whitelist, got, want)
		}
	}
}

func TestProject_UnchangedIfNothingIsForbidden(t *testing.T) {
	o := parse(t, "AppProject", `"spec":{"destinations":[{"namespace":"shop","server":"*"}],"sourceRepos":["*"]}`)
	if got, err := compile(t, managed).Project(o); err != nil || got != o {
		t.Errorf("%v %s", err, got.Raw())
	}
}

func TestDeletionBudget_SmallestLimitLongestWindow(t *testing.T) {
	if _, _, limited := compile(t, managed).DeletionBudget(); limited {
		t.Error("no policy limits deletions")
	}
	hour := v1alpha1.PolicySpec{Deletions: &v1alpha1.DeletionPolicy{Max: 5}}
	day := v1alpha1.PolicySpec{Deletions: &v1alpha1.DeletionPolicy{Max: 9, Window: metav1.Duration{Duration: 24 * time.Hour}}}
	if limit, window, _ := compile(t, managed, hour, day).DeletionBudget(); limit != 5 || window != 24*3600*engine.Second {
		t.Errorf("%d in %d s", limit, window/engine.Second)
	}
}
