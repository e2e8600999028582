package e2e

import (
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// readsAll permits an agent to read Applications of all namespaces, and to write those of one other namespace.
const readsAll = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-reads-all}
rules: [{apiGroups: [argoproj.io], resources: [applications], verbs: [get, list, watch]}, {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-reads-all}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-reads-all}
subjects: [{kind: ServiceAccount, name: argocd-agent-agent, namespace: argocd}]
`

// writesIn permits it to write Applications of a namespace.
func writesIn(namespace string) string {
	return `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-writes, namespace: ` + namespace + `}
rules: [{apiGroups: [argoproj.io], resources: [applications], verbs: [create, update, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-writes, namespace: ` + namespace + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-writes}
subjects: [{kind: ServiceAccount, name: argocd-agent-agent, namespace: argocd}]
`
}

// TestAgent_MissingPermissionInOneNamespaceIsReported runs an agent that cannot read the Applications of its
// namespaces, and later cannot write those of one. It needs no Argo CD.
func TestAgent_MissingPermissionInOneNamespaceIsReported(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "managed", Role: lab.Managed}}})
	flags := []string{"--destination-based-mapping", "--allowed-namespaces", "teams,closed"}
	w := newEnv(t, setup{lab: l, flags: flags, agents: []agentSetup{{name: "managed", cluster: "managed", mode: "managed", flags: flags}}})
	t.Cleanup(w.close)
	agent := w.managed()
	for _, namespace := range []string{"teams", "closed"} {
		w.hub.ensureNamespace(t, namespace)
		agent.spoke.ensureNamespace(t, namespace)
	}
	w.principal.start(t)
	agent.start(t)
	agent.waitForLog(t, 0, "Failed to read objects", "forbidden", "needs get, list and watch permission")
	early := w.hub.app("teams", "early")
	early.create(t, simple("managed"))
	agent.disconnected(t) // and its empty set is not trusted

	if err := agent.spoke.Apply(t.Context(), readsAll+"---"+writesIn("teams")); err != nil {
		t.Fatal(err)
	}
	agent.connected(t) // without a restart
	agent.spoke.app("teams", "early").becomes(t)
	closed := w.hub.app("closed", "late")
	closed.create(t, simple("managed"))
	closed.becomes(t, shows("AgentError", "forbidden"))
	w.hub.app("teams", "later").create(t, simple("managed"))
	agent.spoke.app("teams", "later").becomes(t)
	agent.spoke.app("closed", "late").isAbsent(t)

	if err := agent.spoke.Apply(t.Context(), writesIn("closed")); err != nil {
		t.Fatal(err)
	}
	agent.spoke.app("closed", "late").becomes(t)
	closed.becomes(t, showsNo("AgentError"))
}

// TestManagedAgent_KeepsUnrelatedApplications has Applications on a managed spoke that are not on the hub.
func TestManagedAgent_KeepsUnrelatedApplications(t *testing.T) {
	w := shared(t)
	agent := w.managed()
	before := agent.args
	t.Cleanup(func() {
		agent.args = before
		agent.restart(t)
		agent.connected(t)
	})
	own := agent.spoke.app(lab.ArgoCDNamespace, fresh("own"))
	spec := w.plain("in-cluster", own.name)
	spec.cascade = true
	own.create(t, spec.object())
	own.becomes(t, synced, healthyApp)

	agent.args = append(without(before), "--ignore-unmanaged-apps")
	agent.restart(t)
	agent.connected(t)
	w.principal.restart(t)
	w.connected(t)
	for range 2 { // Applications of the hub are created and deleted
		other := w.hub.app("managed", fresh("other"))
		other.create(t, w.plain("managed", other.name).object())
		other.becomes(t, synced, healthyApp)
		other.delete(t)
		agent.spoke.app(lab.ArgoCDNamespace, other.name).goes(t)
	}
	u := own.is(t, synced, healthyApp)
	for key := range u.GetAnnotations() {
		t.Errorf("it has the annotation %s", key)
	}
	if u.GetDeletionTimestamp() != nil {
		t.Error("it is being deleted")
	}
	w.hub.app("managed", own.name).isAbsent(t)
	agent.spoke.object(deployments, own.name, "guestbook").is(t)
}
