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

// TestMigration_RestartsNoPod goes through docs/hybrid.md: a hub whose own application controller deploys to a
// cluster hands an Application over to the agent there. Who looks after the workloads changes, and nothing else.
func TestMigration_RestartsNoPod(t *testing.T) {
	w := shared(t)
	spoke := w.managed().spoke
	w.runHubController(t)
	w.hub.secret("direct-prod").create(t, directCluster(t, "prod", spoke))

	wish := appWish{repo: w.RepoURL("plain"), destination: "prod", namespace: "moving", automated: true, cascade: true}
	old := w.hub.app(lab.ArgoCDNamespace, "moving")
	old.create(t, wish.object())
	old.becomes(t, synced, healthyApp, noOperation)
	copied := spoke.app(lab.ArgoCDNamespace, "moving")
	copied.isAbsent(t) // it is the hub's controller that has deployed it
	before := uids(t, spoke, "moving")
	if len(before) < 3 { // a Deployment, its ReplicaSet, its pods
		t.Fatalf("there is too little to lose: %v", before)
	}

	// Nothing shall be deleted with the old one, and nobody change anything meanwhile.
	old.edit(t, func(u *unstructured.Unstructured) {
		u.SetFinalizers(nil)
		unstructured.RemoveNestedField(u.Object, "spec", "syncPolicy", "automated")
	})
	// The same for the agent.
	wish.destination, wish.automated = "managed", false
	moved := w.hub.app("managed", "moving")
	moved.create(t, wish.object())
	moved.becomes(t, synced, healthyApp) // at once: nobody has synced it
	if operation := at(moved.get(t), "status.operationState.phase"); operation != "" {
		t.Errorf("something has synced it: %s", operation)
	}
	// Take the old one away, and let the new one look after itself again.
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

// runHubController has the hub deploy to clusters itself for a while, as an Argo CD does that has no agents: Applications
// of its own namespace.
func (w *testEnv) runHubController(t *testing.T) {
	t.Helper()
	binary := w.Command(t.Context(), "argocd").Path
	metrics := w.freePort(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary, "--kubeconfig="+w.hub.Kubeconfig, "--namespace="+lab.ArgoCDNamespace, "--logformat=text",
		"--redis="+w.hub.Redis.Address, "--repo-server="+w.hub.RepoServer, "--metrics-port="+metrics)
	cmd.Args[0] = "argocd-application-controller"
	folder := t.TempDir() // what a pod would have mounted; there is nothing in it
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, "ARGOCD_BINARY_NAME=argocd-application-controller", "ARGOCD_FAKE_IN_CLUSTER=true", "KUBECONFIG=" + w.hub.Kubeconfig,
		"REDIS_PASSWORD=" + w.hub.Redis.Password, "ARGOCD_TLS_DATA_PATH=" + folder, "ARGOCD_SSH_DATA_PATH=" + folder, "ARGOCD_GPG_DATA_PATH=" + folder, "ARGOCD_APP_CONF_PATH=" + folder}
	log, err := os.Create(filepath.Join(w.logs(), "e2e-hub-controller.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	launches() <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		t.Fatalf("start the hub's controller: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_ = log.Close()
	})
	await(t, "the hub's controller", func() error { return healthy("http://" + net.JoinHostPort("127.0.0.1", metrics) + "/healthz") })
}

// directCluster is a cluster Secret with the keys of a cluster, as the hub had it before there were agents.
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

// uids are the objects in a namespace that matter to whoever uses what runs there.
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
