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

func TestDiffShowsWhatReallyDiffers(t *testing.T) {
	const namespace, copies = "cli-diff", "cli-diff-copies"
	s, l := inLab(t, namespace)
	// The cluster's part is played by another namespace of the hub, where no application controller writes statuses.
	empty(t, l.Hub(), copies)
	s.env = append(s.env, "ARGOCD_AGENT_AGENT_CONTEXT=hub", "ARGOCD_AGENT_AGENT_NAMESPACE="+copies)
	namespaces := map[string]string{"hub": namespace, "cluster": copies}
	s.replace[`[0-9a-f]{8}-[-0-9a-f]{27}`] = "UID"
	s.commands["replicate"] = func(string) string { replicate(t, s.env, namespace, copies); return "" }
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

// replicate does what principal and agent would: it makes the copies on the cluster.
func replicate(t *testing.T, env []string, namespace, copies string) {
	t.Helper()
	p := &Program{Env: env, Now: time.Now, global: globals{principalContext: "hub", principalNamespace: namespace, agentContext: "hub", agentNamespace: copies}}
	hub, spoke, err := p.bothSides()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := (agents{hub}).get(t.Context(), "w1")
	if err != nil {
		t.Fatal(err)
	}
	here, err := hub.hubWorld(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	here.SpokeArgoNamespace = copies
	from := &end{world: here}
	if err := from.read(t.Context(), hub, namespace); err != nil {
		t.Fatal(err)
	}
	there := *here
	there.Side = kind.Spoke
	for _, k := range []kind.Kind{kind.AppProjectKind{}, kind.ApplicationKind{}} {
		for _, o := range from.objects[k.Resource()] {
			item, ok := k.Publish(o, here)
			if !ok {
				t.Fatalf("%s is not published", o.Name())
			}
			copied, err := k.Merge(nil, item.Key, item.Content, nil, kind.Ownership{Owned: true}, &there)
			if err != nil {
				t.Fatal(err)
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(copied.Raw()); err != nil {
				t.Fatal(err)
			}
			r := k.Resource()
			if _, err := spoke.dynamic.Resource(schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Plural}).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestDifferencesNameThePlace(t *testing.T) {
	found := differences([]byte(`{"a":{"b":1,"c":[1,2]},"d":"x"}`), []byte(`{"a":{"b":2,"c":[1,3]},"e":null}`), true, false)
	var got []string
	for _, f := range found {
		got = append(got, f.Path+" "+f.Hub+" "+f.Cluster)
	}
	if want := `a.b 1 2|a.c[1] 2 3|d "x" (none)`; strings.Join(got, "|") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "|"), want)
	}
	for _, f := range differences([]byte(`{"data":{"password":"a"}}`), []byte(`{"data":{"password":"b"}}`), true, true) {
		if f.Hub != "(not shown)" || f.Cluster != "(not shown)" {
			t.Errorf("a secret is shown: %v", f)
		}
	}
}
