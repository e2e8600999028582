package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/lab"
)

const admissionPolicy = `
apiVersion: argocd-agent.argoproj-labs.io/v1alpha1
kind: AgentPolicy
metadata: {name: limits}
spec:
  destinationNamespaces: ["admission-*", argocd]
  protectedNamespaces: [admission-protected]
  namespacedKinds: [{group: "", kind: ConfigMap}, {group: apps, kind: "*"}]
  clusterKinds: [{group: "", kind: Namespace}, {group: storage.k8s.io, kind: StorageClass}]
`

var (
	events         = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	clusterRoles   = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
)

// request is a write with server-side dry run: authorization and admission decide, and nothing is stored.
type request func(ctx context.Context, c dynamic.Interface) error

func creates(gvr schema.GroupVersionResource, kind, namespace, name string, more map[string]any) request {
	return func(ctx context.Context, c dynamic.Interface) error {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name}}}
		maps.Copy(u.Object, more)
		_, err := resourceIn(c, gvr, namespace).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

func patches(gvr schema.GroupVersionResource, namespace, name, patch string, subresources ...string) request {
	return func(ctx context.Context, c dynamic.Interface) error {
		_, err := resourceIn(c, gvr, namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, subresources...)
		return err
	}
}

func deletes(gvr schema.GroupVersionResource, namespace, name string) request {
	return func(ctx context.Context, c dynamic.Interface) error {
		return resourceIn(c, gvr, namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
}

func resourceIn(c dynamic.Interface, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.Resource(gvr)
	}
	return c.Resource(gvr).Namespace(namespace)
}

// The API server enforces what `argocd-agentctl policy admission` and `policy rbac` print. Both test accounts stand for the
// application controller or for the account that it impersonates.
func TestPolicyAdmission_APIServerEnforcesIt(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	for _, ns := range []string{"admission-allowed", "admission-protected", "other"} {
		spoke.ensureNamespace(t, ns)
	}
	local := w.plain("in-cluster", "admission-allowed")
	local.automated = false
	spoke.app(lab.ArgoCDNamespace, "admission").create(t, local.object())
	spoke.object(configMaps, "other", "existing").create(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})

	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(admissionPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, manifests := range []string{
		spoke.ctl(t, "policy", "admission", "--policy", file, "--service-account", "admission-allowed/controller"),
		spoke.ctl(t, "policy", "rbac", "--policy", file, "--service-account", "admission-allowed/limited"),
		// This account can do everything that admission does not refuse.
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"admission-test"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},
		"subjects":[{"kind":"ServiceAccount","namespace":"admission-allowed","name":"controller"}]}`,
	} {
		if err := spoke.Apply(t.Context(), manifests); err != nil {
			t.Fatal(err)
		}
	}
	as := func(account string) dynamic.Interface {
		config := rest.CopyConfig(spoke.Admin())
		config.Impersonate.UserName = "system:serviceaccount:admission-allowed:" + account
		return dynamic.NewForConfigOrDie(config)
	}
	await(t, "the API server to use the policy", func() error {
		if err := creates(configMaps, "ConfigMap", "other", "x", nil)(t.Context(), as("controller")); err == nil || !strings.Contains(err.Error(), "AgentPolicy limits") {
			return fmt.Errorf("a ConfigMap in another namespace: %w", err)
		}
		return nil
	})

	argo := lab.ArgoCDNamespace
	event := map[string]any{"involvedObject": map[string]any{"kind": "Application", "name": "admission", "namespace": argo}}
	for _, c := range []struct {
		name      string
		do        request
		admission string // part of the message; empty: accepted
		rbac      bool   // accepted
	}{
		{"ConfigMap in an allowed namespace", creates(configMaps, "ConfigMap", "admission-allowed", "x", nil), "", true},
		{"ConfigMap in a protected namespace", creates(configMaps, "ConfigMap", "admission-protected", "x", nil), "(protectedNamespaces): namespace admission-protected is protected", false},
		{"ConfigMap in another namespace", creates(configMaps, "ConfigMap", "other", "x", nil), "(destinationNamespaces)", false},
		{"ConfigMap in the namespace of the agent", creates(configMaps, "ConfigMap", argo, "x", nil), "(protectedNamespaces)", false},
		{"change of the settings of Argo CD", patches(configMaps, argo, "argocd-cm", `{"data":{"x":"y"}}`), "(protectedNamespaces)", false},
		{"deletion of the settings of Argo CD", deletes(configMaps, argo, "argocd-cm"), "(protectedNamespaces)", false},
		{"deletion in another namespace", deletes(configMaps, "other", "existing"), "(destinationNamespaces)", false},
		{"kind that is not listed", creates(secrets, "Secret", "admission-allowed", "x", nil), "(namespacedKinds)", false},
		{"listed cluster-scoped kind", creates(storageClasses, "StorageClass", "", "x", map[string]any{"provisioner": "example.com/x"}), "", true},
		{"allowed Namespace", creates(namespaces, "Namespace", "", "admission-new", nil), "", true},
		{"Namespace that is no allowed destination", creates(namespaces, "Namespace", "", "x", nil), "(destinationNamespaces)", true},
		{"deletion of a protected Namespace", deletes(namespaces, "", "admission-protected"), "(protectedNamespaces)", true},
		{"cluster-scoped kind that is not listed", creates(clusterRoles, "ClusterRole", "", "x", nil), "(clusterKinds)", false},
		{"AgentPolicy", creates(agentPolicies, "AgentPolicy", argo, "x", map[string]any{"spec": map[string]any{}}), "(protectedNamespaces)", false},
		{"status of an Application", patches(applications, argo, "admission", `{"status":{"reconciledAt":"2026-01-01T00:00:00Z"}}`), "", false},
		{"spec of an Application", patches(applications, argo, "admission", `{"spec":{"destination":{"namespace":"other"}}}`), "(protectedNamespaces)", false},
		{"deletion of an Application", deletes(applications, argo, "admission"), "(protectedNamespaces)", false},
		{"event of an Application", creates(events, "Event", argo, "x", event), "", false},
		{"shards of the controller", creates(configMaps, "ConfigMap", argo, "argocd-app-controller-shard-cm", nil), "", false},
	} {
		err := c.do(t.Context(), as("controller"))
		if (err == nil) != (c.admission == "") || err != nil && (!strings.Contains(err.Error(), "AgentPolicy limits") || !strings.Contains(err.Error(), c.admission)) {
			t.Errorf("%s, with admission policy: %v, want %q", c.name, err, c.admission)
		}
		if err := c.do(t.Context(), as("limited")); (err == nil) != c.rbac || err != nil && !strings.Contains(err.Error(), "forbidden: User") {
			t.Errorf("%s, with RBAC: %v, want it to be accepted: %v", c.name, err, c.rbac)
		}
	}
	if err := creates(configMaps, "ConfigMap", "other", "x", nil)(t.Context(), spoke.Dynamic()); err != nil {
		t.Errorf("another user than the application controller: %v", err)
	}
}
