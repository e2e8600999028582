package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/lab"
)

// TestMigration_RestartsNoPod follows docs/hybrid.md. The application controller of the hub deploys to a cluster, and
// then the agent takes over. Workloads do not change.
func TestMigration_RestartsNoPod(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	w.runHubController(t)
	w.hub.secret("direct-prod").create(t, directCluster(t, "prod", spoke))

	spec := appSpec{repo: w.RepoURL("plain"), destination: "prod", namespace: "moving", automated: true, cascade: true}
	old := w.hub.app(lab.ArgoCDNamespace, "moving")
	old.create(t, spec.object())
	old.becomes(t, synced, healthyApp, noOperation)
	copied := spoke.app(lab.ArgoCDNamespace, "moving")
	copied.isAbsent(t) // the hub's controller deployed it
	before := uids(t, spoke, "moving")
	if len(before) < 3 { // a Deployment, its ReplicaSet, its pods
		t.Fatalf("there is too little to lose: %v", before)
	}

	// Nothing is deleted with the old Application, and nothing changes in the meantime.
	old.edit(t, func(u *unstructured.Unstructured) {
		u.SetFinalizers(nil)
		unstructured.RemoveNestedField(u.Object, "spec", "syncPolicy", "automated")
	})
	// The same for the agent.
	spec.destination, spec.automated = "managed", false
	moved := w.hub.app("managed", "moving")
	moved.create(t, spec.object())
	moved.becomes(t, synced, healthyApp) // without a sync
	if operation := at(moved.get(t), "status.operationState.phase"); operation != "" {
		t.Errorf("something has synced it: %s", operation)
	}
	// Delete the old Application and turn on auto-sync of the new one.
	w.argocd(t, "app", "delete", lab.ArgoCDNamespace+"/moving", "--cascade=false", "--yes")
	old.goes(t)
	moved.edit(t, func(u *unstructured.Unstructured) { set(u, "spec.syncPolicy.automated", map[string]any{}) })
	copied.becomes(t, synced, healthyApp)
	w.argocd(t, "app", "sync", "managed/moving")
	moved.becomes(t, synced, healthyApp, noOperation, field("status.operationState.phase", "Succeeded"))

	if after := uids(t, spoke, "moving"); !maps.Equal(before, after) {
		t.Errorf("before the migration there was\n%v\nand after it\n%v", before, after)
	}
}

// runHubController runs an application controller on the hub for Applications of its own namespace, as an Argo CD
// without agents does.
func (w *testEnv) runHubController(t *testing.T) {
	t.Helper()
	metrics := w.freePort(t)
	w.runOnHub(t, "argocd-application-controller", w.hub.Kubeconfig, "--redis="+w.hub.Redis.Address, "--repo-server="+w.hub.RepoServer, "--metrics-port="+metrics)
	await(t, "the hub's controller", func() error { return healthy("http://" + net.JoinHostPort("127.0.0.1", metrics) + "/healthz") })
}

// runOnHub runs a component of Argo CD for the hub until the test ends.
func (w *testEnv) runOnHub(t *testing.T, component, kubeconfig string, args ...string) {
	t.Helper()
	folder := t.TempDir() // replaces a mount of the pod and is empty
	w.runArgoCD(t, component, []string{"HOME=" + folder, "ARGOCD_FAKE_IN_CLUSTER=true", "KUBECONFIG=" + kubeconfig,
		"REDIS_PASSWORD=" + w.hub.Redis.Password, "ARGOCD_TLS_DATA_PATH=" + folder, "ARGOCD_SSH_DATA_PATH=" + folder, "ARGOCD_GPG_DATA_PATH=" + folder, "ARGOCD_APP_CONF_PATH=" + folder},
		append([]string{"--kubeconfig=" + kubeconfig, "--namespace=" + lab.ArgoCDNamespace, "--logformat=json"}, args...)...)
}

// runArgoCD runs a component of Argo CD until the test ends.
func (w *testEnv) runArgoCD(t *testing.T, component string, env []string, args ...string) {
	t.Helper()
	w.run(t, component, w.Command(t.Context(), "argocd").Path, append(env, "ARGOCD_BINARY_NAME="+component), args...)
}

// run runs a program until the test ends.
func (w *testEnv) run(t *testing.T, name, binary string, env []string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Args[0] = name
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	log, err := os.Create(filepath.Join(w.logs(), "e2e-"+name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	launches() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = log.Close()
	})
}

// directCluster is a cluster Secret with credentials of a cluster, as before the migration.
func directCluster(t *testing.T, name string, s *clusterClient) map[string]any {
	t.Helper()
	admin := s.Admin()
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]any{"tlsClientConfig": map[string]any{"caData": admin.CAData, "certData": admin.CertData, "keyData": admin.KeyData}})
	if err != nil {
		t.Fatal(err)
	}
	return secretOf("cluster", map[string]string{"name": name, "server": s.Server, "config": string(config)})
}

// uids returns the UIDs of the workload objects in a namespace.
func uids(t *testing.T, s *clusterClient, namespace string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, resource := range []schema.GroupVersionResource{
		deployments, unstructuredResource("apps", "v1", "replicasets"), unstructuredResource("", "v1", "pods"), unstructuredResource("", "v1", "services"),
	} {
		ctx, cancel := call()
		list, err := s.client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Items {
			found[fmt.Sprintf("%s/%s", resource.Resource, one.GetName())] = string(one.GetUID())
		}
	}
	return found
}
