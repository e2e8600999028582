package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	appProjects  = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
)

func TestDiff_Transcript(t *testing.T) {
	const namespace, replicas = "cli-diff", "cli-diff-copies"
	s, l := inLab(t, namespace)
	// Another namespace of the hub is the workload cluster, because no application controller writes status spokeEnv.
	empty(t, l.Hub(), replicas)
	s.env = append(s.env, "ARGOCD_AGENT_AGENT_CONTEXT=hub", "ARGOCD_AGENT_AGENT_NAMESPACE="+replicas)
	namespaces := map[string]string{"hub": namespace, "cluster": replicas}
	s.replace[`[0-9a-f]{8}-[-0-9a-f]{27}`] = "UID"
	s.commands["replicate"] = func(string) string { replicate(t, s.env, namespace, replicas); return "" }
	s.commands["patch"] = func(argument string) string {
		words := strings.SplitN(argument, " ", 4)
		resource := map[string]schema.GroupVersionResource{"application": applications, "appproject": appProjects}[words[1]]
		patch(t, l.Hub(), resource, namespaces[words[0]], words[2], words[3])
		return ""
	}
	s.commands["delete"] = func(argument string) string {
		words := strings.Fields(argument)
		if err := l.Hub().Dynamic().Resource(applications).Namespace(namespaces[words[0]]).Delete(t.Context(), words[1], metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	s.play("diff.txt")
}

// replicate creates the replicas like principal and agent.
func replicate(t *testing.T, env []string, namespace, replicas string) {
	t.Helper()
	p := &Program{Env: env, Now: time.Now, global: globals{principalContext: "hub", principalNamespace: namespace, agentContext: "hub", agentNamespace: replicas}}
	hub, spoke, err := p.bothSides()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := (agents{hub}).get(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	hubEnv, err := hub.hubEnv(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	hubEnv.SpokeArgoNamespace = replicas
	from := &snapshot{env: hubEnv}
	if err := from.read(t.Context(), hub, namespace); err != nil {
		t.Fatal(err)
	}
	spokeEnv := *hubEnv
	spokeEnv.Side = kind.Spoke
	for _, k := range []kind.Kind{kind.AppProjectKind{}, kind.ApplicationKind{}} {
		for _, o := range from.objects[k.Resource()] {
			item, ok := k.Publish(o, hubEnv)
			if !ok {
				t.Fatalf("%s is not published", o.Name())
			}
			replica, err := k.Merge(nil, item.Key, item.Content, nil, kind.Ownership{Owned: true}, &spokeEnv)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(replica.Raw()); err != nil {
				t.Fatal(err)
			}
			r := k.Resource()
			if _, err := spoke.dynamic.Resource(schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Plural}).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDifferences_NamePath(t *testing.T) {
	found := differences([]byte(`{"a":{"b":1,"c":[1,2]},"d":"x"}`), []byte(`{"a":{"b":2,"c":[1,3]},"e":null}`), true, false)
	var got []string
	for _, f := range found {
		got = append(got, f.Path+" "+f.Hub+" "+f.Cluster)
	}
	if want := `a.b 1 2|a.c[1] 2 3|d "x" (none)`; strings.Join(got, "|") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "|"), want)
	}
	for _, f := range differences([]byte(`{"data":{"password":"a"}}`), []byte(`{"data":{"password":"b"}}`), true, true) {
		if f.Hub != "(hidden)" || f.Cluster != "(hidden)" {
			t.Errorf("a secret is printed: %v", f)
		}
	}
}

func TestDifferences_ClipLongValues(t *testing.T) {
	for _, value := range []string{strings.Repeat("ü", 100), strings.Repeat("x", 300)} {
		found := differences([]byte(`{"a":"`+value+`"}`), []byte(`{}`), true, false)
		if len(found) != 1 || len([]rune(found[0].Hub)) > 161 {
			t.Errorf("%q", found)
		}
	}
}
