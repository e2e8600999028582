package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// testRegistry is a Registry that records what it posts.
type testRegistry struct {
	*Registry
	t       *testing.T
	posted  []string
	touches map[string]int
}

func newTestRegistry(t *testing.T) *testRegistry {
	t.Helper()
	d := &testRegistry{t: t, touches: map[string]int{}}
	d.Registry = NewRegistry(RegistryConfig{Namespace: "argocd", Mapping: kind.ByNamespace, ProxyAddress: "proxy:9090", Log: slog.New(slog.DiscardHandler),
		Post: func(_ context.Context, in reconcile.Input) error {
			switch in := in.(type) {
			case reconcile.Register:
				d.posted = append(d.posted, "register "+in.Agent.Name+" "+string(in.Agent.Mode)+" "+in.Agent.HubNamespace)
			case reconcile.Unregister:
				d.posted = append(d.posted, "unregister "+in.Agent)
			case reconcile.Confirm:
				d.posted = append(d.posted, "confirm "+in.Agent+" "+in.ID)
			}
			return nil
		}})
	d.OnChange(func(agent string) {
		d.touches[agent]++
		if reason := d.DenyReason(agent); reason != "" {
			d.posted = append(d.posted, "cut "+agent+": "+reason)
		}
	})
	return d
}

// agent makes an Agent; whatever is particular about it is done to it.
func agent(name string, revision int, mode string, change ...func(*v1alpha1.Agent)) v1alpha1.Agent {
	a := v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: mode}}
	a.Name, a.Namespace, a.ResourceVersion = name, "argocd", fmt.Sprint(revision)
	a.CreationTimestamp = metav1.Unix(1_000_000, 0)
	for _, do := range change {
		do(&a)
	}
	return a
}

func inNamespace(name string) func(*v1alpha1.Agent) {
	return func(a *v1alpha1.Agent) { a.Spec.Namespace = name }
}

func ofCluster(uid string) func(*v1alpha1.Agent) {
	return func(a *v1alpha1.Agent) { a.Status.ClusterUID = uid }
}

func confirming(id string) func(*v1alpha1.Agent) {
	return func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.ConfirmAnnotation: id} }
}

func parsed(t *testing.T, v any) *kind.Object {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (d *testRegistry) see(a v1alpha1.Agent) {
	d.t.Helper()
	if err := d.Apply(d.t.Context(), reconcile.Observed{Resource: AgentResource, Object: parsed(d.t, a)}); err != nil {
		d.t.Fatal(err)
	}
}

func (d *testRegistry) lose(name string, revision uint64) {
	d.t.Helper()
	if err := d.Apply(d.t.Context(), reconcile.Deleted{Ref: d.ref(name), Revision: revision}); err != nil {
		d.t.Fatal(err)
	}
}

// secret makes a cluster Secret with annotations of ours, given as name, value …
func secret(t *testing.T, name, agent string, revision int, annotations ...string) *kind.Object {
	t.Helper()
	all := map[string]string{}
	for pair := range slices.Chunk(annotations, 2) {
		all[kind.Prefix+pair[0]] = pair[1]
	}
	return parsed(t, map[string]any{"metadata": map[string]any{"name": name, "namespace": "argocd", "resourceVersion": fmt.Sprint(revision),
		"labels": map[string]string{AgentLabel: agent}, "annotations": all},
		"data": map[string][]byte{"name": []byte(agent), "server": []byte("https://elsewhere?agentName=" + agent), "config": []byte("{}")}})
}

func (d *testRegistry) seeSecret(o *kind.Object) {
	d.t.Helper()
	if err := d.Apply(d.t.Context(), reconcile.Observed{Resource: kind.Secrets, Object: o}); err != nil {
		d.t.Fatal(err)
	}
}

// says checks what was posted since the last call.
func (d *testRegistry) says(want ...string) {
	d.t.Helper()
	if strings.Join(d.posted, "; ") != strings.Join(want, "; ") {
		d.t.Errorf("posted %q, want %q", d.posted, want)
	}
	d.posted = nil
}

func TestRegistry_AppliesDeclaration(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 1, ""))
	d.says() // to be claimed
	d.see(agent("a", 2, "managed"))
	d.says("register a managed a")
	d.see(agent("a", 3, "managed", func(a *v1alpha1.Agent) { a.Spec.Cluster.Labels = map[string]string{"x": "y"} }))
	d.says() // nothing that the node has to know
	if d.Shared("a") || !d.HasAgent("a") || d.HasAgent("b") {
		t.Error("active without declaration")
	}
	d.see(agent("a", 4, "autonomous", inNamespace("there"), func(a *v1alpha1.Agent) { a.Spec.Shared = true }))
	if !d.Shared("a") {
		t.Error("shared is declared and not active")
	}
	d.says("register a autonomous there")
	d.see(agent("a", 5, "typo"))
	d.says("unregister a")
	if why := d.InvalidReason("a"); !strings.Contains(why, "spec.mode") {
		t.Errorf("refused because %q", why)
	}
	d.see(agent("a", 6, "managed", inNamespace("a/../b")))
	d.says()
	d.lose("a", 7)
	if why := d.InvalidReason("a"); why != "" {
		t.Errorf("gone, and refused because %q", why)
	}
}

func TestRegistry_IgnoresStaleEvents(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 5, "managed")) // the answer to our own write
	d.says("register a managed a")
	d.see(agent("a", 3, ""))
	d.lose("a", 2) // that of its predecessor
	d.says()
	d.lose("a", 6)
	d.says("unregister a")
}

func TestRegistry_ListRemovesDeletedAgents(t *testing.T) {
	d := newTestRegistry(t)
	if err := d.Apply(t.Context(), reconcile.List{Resource: kind.Secrets, Revision: 1}); err != nil || d.Check() == nil {
		t.Errorf("%v: ready without Agents", err)
	}
	d.see(agent("a", 1, "managed"))
	d.see(agent("b", 2, "managed"))
	d.posted = nil
	if err := d.Apply(t.Context(), reconcile.Unreadable{Resource: AgentResource, Reason: "no definition"}); err != nil || !strings.Contains(d.Check().Error(), "no definition") {
		t.Errorf("%v: %v", err, d.Check())
	}
	if err := d.Apply(t.Context(), reconcile.List{Resource: AgentResource, Revision: 9, Objects: []*kind.Object{parsed(t, agent("b", 2, "managed"))}}); err != nil {
		t.Fatal(err)
	}
	d.says("unregister a")
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	<-d.ready
}

func TestRegistry_NamespaceConflict(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 1, "managed"))
	d.see(agent("b", 2, "managed", inNamespace("a")))
	d.see(agent("c", 2, "managed", inNamespace("a"), func(a *v1alpha1.Agent) { a.CreationTimestamp = metav1.Unix(999, 0) }))
	d.says("register a managed a")
	if why := d.InvalidReason("b"); !strings.Contains(why, "agent a") {
		t.Errorf("refused because %q", why)
	}
	d.see(agent("a", 3, "managed")) // whatever changes about it, it keeps its namespace
	d.says()
	d.lose("a", 4)
	d.says("unregister a", "register c managed a") // the oldest that waits
	if d.InvalidReason("b") == "" || d.InvalidReason("c") != "" {
		t.Errorf("refused: %v", d.invalid)
	}
	d.see(agent("c", 5, "managed"))
	d.says("register c managed c", "register b managed a")
	if len(d.invalid) > 0 {
		t.Errorf("still waiting: %v", d.invalid)
	}
	d.see(agent("e", 6, "autonomous", inNamespace("argocd")))
	d.see(agent("argocd", 7, "managed"))
	d.says() // these would have the hub's own
	d.see(agent("f", 8, "managed", inNamespace("a"), func(a *v1alpha1.Agent) { a.Spec.Mapping = "destination" }))
	d.says("register f managed a")
}

// The Applications of an agent whose namespace is not read would seem to be gone, so it is not registered.
func TestRegistry_NamespaceThatIsNotRead(t *testing.T) {
	d := newTestRegistry(t)
	d.cfg.Namespaces = []string{"a", "b"}
	d.see(agent("a", 1, "managed"))
	d.see(agent("c", 2, "managed"))
	d.see(agent("d", 3, "autonomous"))
	d.see(agent("e", 4, "managed", inNamespace("b"), func(a *v1alpha1.Agent) { a.Spec.Mapping = "destination" }))
	d.says("register a managed a")
	for name, want := range map[string]string{"c": "does not read namespace c", "d": "does not read namespace d", "e": "Set spec.mapping of the Agent to namespace"} {
		if why := d.InvalidReason(name); !strings.Contains(why, want) {
			t.Errorf("%s is refused because %q", name, why)
		}
	}
	d.see(agent("a", 5, "managed", inNamespace("c")))
	d.says("unregister a")
	d.see(agent("c", 6, "managed", inNamespace("b")))
	d.says("register c managed b")
}

func TestRegistry_ConfirmedClusterStartsNewHistory(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 1, "managed"))
	d.see(agent("a", 2, "managed", ofCluster("one"))) // recorded: no reason to cut anybody
	d.says("register a managed a", "register a managed a")
	d.see(agent("a", 3, "managed", ofCluster("one"), confirming("cluster-two"), func(a *v1alpha1.Agent) { a.Status.Store = &v1alpha1.Store{UID: "one", Revision: 9} }))
	d.says("unregister a", "register a managed a")
	if reg, _ := d.Get("a"); reg.KnownCluster != "two" || reg.KnownStore != (engine.Store{}) {
		t.Errorf("known: %+v", reg.Register)
	}
	d.see(agent("a", 4, "managed", ofCluster("two")))
	d.says() // it is active
	d.see(agent("a", 5, "managed", ofCluster("two"), confirming("x1")))
	d.says("confirm a x1")
}

func TestRegistry_ReportsDenyReason(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 1, "managed"))
	d.posted = nil
	for i, c := range []struct {
		why    string
		change func(*v1alpha1.Agent)
	}{
		{"suspended", func(a *v1alpha1.Agent) { a.Spec.Suspended = true }},
		{"retired", func(a *v1alpha1.Agent) { a.Annotations = map[string]string{v1alpha1.RetireAnnotation: "true"} }},
		{"deleted", func(a *v1alpha1.Agent) { a.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }},
	} {
		d.see(agent("a", 10*i+2, "managed", c.change))
		if len(d.posted) == 0 || !strings.Contains(d.posted[len(d.posted)-1], "cut a: this agent ") || !strings.Contains(d.DenyReason("a"), c.why) {
			t.Errorf("%s: posted %q, denied because %q", c.why, d.posted, d.DenyReason("a"))
		}
		d.posted = nil
		d.see(agent("a", 10*i+3, "managed"))
		if why := d.DenyReason("a"); why != "" {
			t.Errorf("%s ended, and it is still denied: %s", c.why, why)
		}
		d.posted = nil
	}
}

func TestRegistry_PrefersDefaultSecret(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 1, "managed"))
	d.seeSecret(secret(t, "copy", "a", 2))
	if reg, _ := d.Get("a"); reg.secret != "copy" || reg.Agent.Server != "https://elsewhere?agentName=a" {
		t.Errorf("%+v", reg)
	}
	d.seeSecret(secret(t, "cluster-a", "a", 3, "made-by", "principal"))
	if reg, _ := d.Get("a"); reg.secret != "cluster-a" || reg.Agent.Server != "https://proxy:9090?agentName=a" {
		t.Errorf("%+v", reg)
	}
	d.seeSecret(secret(t, "cluster-a", "b", 4))
	if reg, _ := d.Get("a"); reg.secret != "copy" {
		t.Errorf("%+v", reg)
	}
	if _, _, s, has := d.object("b"); !has || s.name != "cluster-a" {
		t.Errorf("of b: %+v", s)
	}
}

func TestRegistry_ChangeAffectsOneAgent(t *testing.T) {
	d := newTestRegistry(t)
	for i := range 2000 {
		d.see(agent(fmt.Sprintf("a%d", i), i+1, "managed"))
	}
	for i := range 500 { // all want the same
		d.see(agent(fmt.Sprintf("b%d", i), 5000+i, "managed", inNamespace("a7")))
	}
	clear(d.touches)
	d.see(agent("a9", 9000, "managed", inNamespace("elsewhere")))
	d.seeSecret(secret(t, "cluster-a9", "a9", 9001))
	if len(d.touches) != 1 || d.touches["a9"] != 2 {
		t.Errorf("touched: %v", d.touches)
	}
}

func TestRegistration_ExcludedKinds(t *testing.T) {
	d := newTestRegistry(t)
	d.see(agent("a", 1, "managed", func(a *v1alpha1.Agent) { a.Spec.Kinds = []string{v1alpha1.KindApplications, v1alpha1.KindAppProjects} }))
	d.see(agent("b", 2, "managed"))
	for name, want := range map[string]map[string]bool{
		"a": {kind.ApplicationScope: false, kind.StatusScope: false, kind.CommandScope: false, kind.AppProjectScope: false, kind.RepositoryScope: true, kind.GPGKeyScope: true},
		"b": {kind.ApplicationScope: false, kind.RepositoryScope: false},
	} {
		reg, _ := d.Get(name)
		for scope, out := range want {
			if reg.Agent.Excludes(scope) != out {
				t.Errorf("%s: %s is left out: %v, want %v", name, scope, !out, out)
			}
		}
	}
}

func TestRegistration_AllowedRights(t *testing.T) {
	d := newTestRegistry(t)
	for i, c := range []struct {
		given []string
		want  kind.Allow
	}{
		{nil, kind.Allow{}},
		{[]string{v1alpha1.AllowRoles}, kind.Allow{Roles: true}},
		{[]string{v1alpha1.AllowNotifications, "unknown"}, kind.Allow{Notifications: true}},
	} {
		d.see(agent("a", i+1, "autonomous", func(a *v1alpha1.Agent) { a.Spec.Allow = c.given }))
		if reg, _ := d.Get("a"); reg.Agent.Allow != c.want {
			t.Errorf("%v allows %+v", c.given, reg.Agent.Allow)
		}
	}
}

// What one change costs must not depend on how many agents there are.
func BenchmarkAChangeAmongManyAgents(b *testing.B) {
	for _, count := range []int{100, 5000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			r := NewRegistry(RegistryConfig{Namespace: "argocd", Mapping: kind.ByNamespace, Log: slog.New(slog.DiscardHandler),
				Post: func(context.Context, reconcile.Input) error { return nil }})
			for i := range count {
				if err := r.applyChange(b.Context(), func() []string {
					return r.put(agentRecord{Agent: agent(fmt.Sprintf("a%d", i), 1, "managed"), revision: 1})
				}); err != nil {
					b.Fatal(err)
				}
			}
			revision := uint64(1)
			for b.Loop() {
				revision++
				a := agent("a7", 1, "managed", inNamespace(fmt.Sprintf("n%d", revision%2)))
				if err := r.applyChange(b.Context(), func() []string { return r.put(agentRecord{Agent: a, revision: revision}) }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestRegistry_ReadsProjectFromClusterSecret(t *testing.T) {
	d := newTestRegistry(t)
	var registered []kind.Agent
	d.cfg.Post = func(_ context.Context, in reconcile.Input) error {
		if r, ok := in.(reconcile.Register); ok {
			registered = append(registered, r.Agent)
		}
		return nil
	}
	of := func(project string, revision int) *kind.Object {
		return parsed(t, map[string]any{"metadata": map[string]any{"name": "cluster-a", "namespace": "argocd", "resourceVersion": fmt.Sprint(revision), "labels": map[string]string{AgentLabel: "a"}},
			"data": map[string][]byte{"name": []byte("a"), "server": []byte("https://elsewhere?agentName=a"), "project": []byte(project)}})
	}
	d.see(agent("a", 1, "managed"))
	d.seeSecret(of("team", 2))
	d.seeSecret(of("", 3))
	var projects []string
	for _, a := range registered {
		projects = append(projects, a.Project)
	}
	if got := strings.Join(projects, ","); got != ",team," {
		t.Errorf("registered with projects %q", got)
	}
}
