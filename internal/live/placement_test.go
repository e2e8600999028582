package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/fleet/fleettest"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

// Targets follow changes of the Application, its AppProject and its agent.
func TestResolve_OnlyPlacedApplications(t *testing.T) {
	n := reconcile.New(reconcile.Config{Side: kind.Hub, ArgoNamespace: "argocd", ClusterUID: "hub", PrincipalUID: "hub"})
	l := &Live{cfg: Config{Namespace: "argocd", Reconciler: n}, agents: map[string]kind.Agent{}, redisTargets: map[[2]string]redis.Target{}, states: map[string]connectionState{}}
	l.redis = redis.New(redis.Config{Agents: l})
	revision := 0
	step := func(in reconcile.Input) {
		n.Step(0, in)
		l.Follow(in)
	}
	see := func(r kind.Resource, namespace, name string, spec any) {
		revision++
		step(reconcile.Observed{Resource: r, Object: fleettest.Object(t, map[string]any{"spec": spec,
			"metadata": map[string]any{"name": name, "namespace": namespace, "uid": name, "resourceVersion": fmt.Sprint(revision)}})})
	}
	application := func(destination map[string]string) {
		see(kind.Applications, "w1", "a", map[string]any{"project": "p", "destination": destination})
	}
	project := func(destination string) {
		see(kind.AppProjects, "argocd", "p", map[string]any{"sourceNamespaces": []string{"*"}, "destinations": []map[string]string{{"name": destination, "namespace": "*"}}})
	}
	register := func(change func(*kind.Agent)) {
		agent := kind.Agent{Name: "w1", Mode: kind.Managed, Mapping: kind.ByNamespace, HubNamespace: "w1", Server: "https://proxy?agentName=w1"}
		change(&agent)
		step(reconcile.Register{Agent: agent})
	}
	check := func(when, agent, why string) {
		t.Helper()
		target, ok := l.Resolve("w1", "a")
		if target.Agent != agent || !strings.Contains(target.Frozen, why) || (target.Frozen == "") != (why == "") || ok != (agent != "" || why != "") {
			t.Errorf("%s: %+v %v", when, target, ok)
		}
	}
	for _, r := range []kind.Resource{kind.Applications, kind.Secrets, kind.ConfigMaps} {
		step(reconcile.List{Resource: r, Revision: 1})
	}
	register(func(*kind.Agent) {})
	application(map[string]string{"name": "w1"})
	check("before AppProjects were read", "", "has not been read yet")
	step(reconcile.List{Resource: kind.AppProjects, Revision: 1})
	check("without an AppProject", "", `AppProject "p" does not exist`)
	project("w1")
	check("with one that permits it", "w1", "")
	project("w2")
	check("with one that no longer permits it", "", "does not permit")
	project("*")
	application(map[string]string{"server": "https://kubernetes.default.svc"})
	check("for the hub", "", "Application w1/a of agent w1 is frozen: spec.destination is")
	application(map[string]string{"server": "https://proxy?agentName=w1"})
	check("for the agent", "w1", "")
	see(kind.AppProjects, "argocd", "p", map[string]any{"sourceNamespaces": []string{"*"}, "destinations": []map[string]string{{"name": "*", "namespace": "*"}}, "permitOnlyProjectScopedClusters": true})
	check("with one for clusters of its own", "", "permits only clusters of its own")
	register(func(a *kind.Agent) { a.Project = "p" })
	check("of which this is one", "w1", "")
	step(reconcile.Unregister{Agent: "w1"})
	check("without the agent", "", "")
	if len(l.redisTargets) != 0 {
		t.Errorf("%v is left", l.redisTargets)
	}
}
