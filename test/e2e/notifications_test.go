package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent/argocd-agent/lab"
)

// notificationsRole is the Role that the manifests of Argo CD have for the notifications controller in its namespace.
const notificationsRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: argocd-notifications-controller, namespace: argocd}
rules:
  - {apiGroups: [argoproj.io], resources: [applications, appprojects], verbs: [get, list, watch, update, patch]}
  - {apiGroups: [""], resources: [configmaps, secrets], verbs: [list, watch]}
  - {apiGroups: [""], resources: [configmaps], resourceNames: [argocd-notifications-cm], verbs: [get]}
  - {apiGroups: [""], resources: [secrets], resourceNames: [argocd-notifications-secret], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: argocd-notifications-controller, namespace: argocd}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: argocd-notifications-controller}
subjects: [{kind: ServiceAccount, name: argocd-notifications-controller, namespace: argocd}]
`

const notificationsConfig = `
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-notifications-cm, namespace: argocd}
data:
  service.webhook.test: "url: %s"
  template.synced: |
    webhook:
      test:
        method: POST
        body: "{{.app.metadata.namespace}}/{{.app.metadata.name}} {{.app.status.operationState.syncResult.revision}}"
  trigger.on-synced: |
    - when: app.status.operationState.phase in ['Succeeded'] and app.status.sync.status == 'Synced'
      oncePer: app.status.operationState.syncResult.revision
      send: [synced]
`

// The notifications controller of the hub sends one notification for each sync of an agent's Application, with the
// permissions of the hub overlay.
func TestNotifications_OnePerEventOfAgents(t *testing.T) {
	w := shared(t)
	var mu sync.Mutex
	sent := map[string]int{}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		sent[string(body)]++
	}))
	t.Cleanup(receiver.Close)
	for _, manifest := range []string{notificationsRole, string(readFile(t, "../../install/argocd/hub/notifications.yaml")), fmt.Sprintf(notificationsConfig, receiver.URL),
		"{apiVersion: v1, kind: Secret, metadata: {name: argocd-notifications-secret, namespace: argocd}}"} {
		if err := w.hub.Apply(t.Context(), manifest); err != nil {
			t.Fatal(err)
		}
	}
	metrics := w.freePort(t)
	w.runOnHub(t, "argocd-notifications", w.asServiceAccount(t, "argocd-notifications-controller"), "--application-namespaces=*",
		"--argocd-repo-server="+w.hub.RepoServer, "--metrics-port="+metrics)
	await(t, "the notifications controller", func() error {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", metrics))
		if err != nil {
			return err
		}
		return conn.Close()
	})

	for _, mode := range []string{"managed", "autonomous"} {
		t.Run(mode, func(t *testing.T) {
			app := newCommanded(t, w, mode, "notified")
			app.hub.patch(t, `{"metadata":{"annotations":{"notifications.argoproj.io/subscribe.on-synced.test":""}}}`)
			for _, greeting := range []string{"second", "third"} {
				revision := commit(t, app.repo, map[string]string{"configmap.yaml": configMapManifest("guestbook", greeting)})
				w.argocd(t, "app", "sync", app.name)
				await(t, "a notification", func() error {
					mu.Lock()
					defer mu.Unlock()
					if sent[app.name+" "+revision] == 0 {
						return fmt.Errorf("sent: %v", sent)
					}
					return nil
				})
				w.agents[mode].restart(t) // it sends all statuses again if they differ
				w.agents[mode].connected(t)
			}
			mu.Lock()
			defer mu.Unlock()
			for text, n := range sent {
				if strings.HasPrefix(text, app.name+" ") && n != 1 {
					t.Errorf("%q was sent %d times", text, n)
				}
			}
		})
	}
}

// asServiceAccount returns a kubeconfig of the hub with the permissions of a ServiceAccount of Argo CD.
func (w *testEnv) asServiceAccount(t *testing.T, name string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.hub.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + lab.ArgoCDNamespace + ":" + name
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + lab.ArgoCDNamespace, "system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
