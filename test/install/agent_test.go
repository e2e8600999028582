package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent/argocd-agent/install"
)

// argocd-agentctl join installs the same objects as the chart.
func TestManifests_EqualChart(t *testing.T) {
	server := map[string]string{"ARGOCD_AGENT_REMOTE_SERVER": "hub.example.com", "ARGOCD_AGENT_MODE": "autonomous"}
	for name, tc := range map[string]struct {
		agent     install.Agent
		namespace string
		values    string
	}{
		"common":  {install.Agent{Settings: server}, "argocd", ""},
		"another": {install.Agent{Settings: server, Namespace: "gitops", Image: "mirror/agent:v1"}, "gitops", "image.repository=mirror/agent,image.tag=v1"},
		"rights":  {install.Agent{Settings: server, Exec: true, Secrets: true, NoWrite: true, SelfUpgrade: true}, "argocd", "agent.selfUpgrade.enabled=true,agent.live.exec=true,agent.live.secrets=true,agent.live.write=false"},
		"silent":  {install.Agent{Settings: server, NoRead: true, NoWrite: true}, "argocd", "agent.live.read=false,agent.live.write=false"},
		"settings": {install.Agent{AllNamespaces: true, Settings: map[string]string{"ARGOCD_AGENT_REMOTE_SERVER": "hub.example.com",
			"ARGOCD_AGENT_MODE": "autonomous", "ARGOCD_AGENT_ALLOWED_NAMESPACES": "a,b-*", "ARGOCD_AGENT_REMOTE_PORT": "8443", "REDIS_CREDS_DIR_PATH": ""}},
			"argocd", "agent.settings.allowed-namespaces={a,b-*},agent.port=8443,agent.settings.redis-creds-dir-path="},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, err := tc.agent.Manifests()
			if err != nil {
				t.Fatal(err)
			}
			chart, refusal := helmIn(t, tc.namespace, "role=agent,agent.mode=autonomous,agent.server=hub.example.com", tc.values)
			if refusal != "" {
				t.Fatal(refusal)
			}
			got, want := objects(t, string(manifests)), objects(t, chart)
			for key, object := range want {
				withoutRelease(object)
				if got[key] == nil || !equality.Semantic.DeepEqual(got[key].Object, object.Object) {
					t.Errorf("%s differs: %v, the chart has %v", key, got[key], object)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d objects, %d in the chart", len(got), len(want))
			}
		})
	}
}

// argocd-agentctl import installs the same objects as the chart, except the Services.
func TestManifests_ImportedEqualChart(t *testing.T) {
	imported := &install.Imported{PodLabels: map[string]string{"app.kubernetes.io/name": "other", "app.kubernetes.io/instance": "old"},
		Env:     []map[string]any{{"name": "REDIS_PASSWORD", "value": "x"}},
		Volumes: []map[string]any{{"name": "certs", "emptyDir": map[string]any{}}}, Mounts: []map[string]any{{"name": "certs", "mountPath": "/certs"}}}
	const extra = "podLabels.app\\.kubernetes\\.io/instance=old,extraEnv[0].name=REDIS_PASSWORD,extraEnv[0].value=x,extraVolumes[0].name=certs," +
		"extraVolumeMounts[0].name=certs,extraVolumeMounts[0].mountPath=/certs,paramsName=argocd-agent-params-imported"
	agent, err := install.Agent{Namespace: "gitops", Imported: imported, Settings: map[string]string{"ARGOCD_AGENT_REMOTE_SERVER": "hub.example.com",
		"ARGOCD_AGENT_HEALTHZ_PORT": "8002"}}.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	imported.Replicas = 2
	principal, err := install.Principal{Image: "mirror/principal:v1", NamespaceCreate: true, Imported: imported,
		Settings: map[string]string{"ARGOCD_PRINCIPAL_NAMESPACE_CREATE_ENABLE": "true", "ARGOCD_PRINCIPAL_LISTEN_PORT": "9443", "ARGOCD_PRINCIPAL_REDIS_CREDS_DIR_PATH": ""}}.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		namespace, values, name string
		manifests               []byte
	}{
		{"gitops", onSpoke + ",agent.server=hub.example.com,agent.settings.healthz-port=8002,fullnameOverride=" + install.ImportedAgent, install.ImportedAgent, agent},
		{"argocd", onHub + ",principal.replicas=2,principal.settings.namespace-create-enable=true,principal.settings.listen-port=9443," +
			"principal.settings.redis-creds-dir-path=,image.repository=mirror/principal,image.tag=v1,fullnameOverride=" + install.ImportedPrincipal, install.ImportedPrincipal, principal},
	} {
		chart, refusal := helmIn(t, tc.namespace, tc.values, extra)
		if refusal != "" {
			t.Fatal(refusal)
		}
		got, want := objects(t, string(tc.manifests)), objects(t, chart)
		named := false
		for key, object := range want {
			if object.GetKind() == "Service" || object.GetKind() == "CustomResourceDefinition" {
				continue
			}
			withoutRelease(object)
			unstructured.RemoveNestedField(object.Object, "spec", "template", "spec", "volumes")
			if got[key] == nil {
				t.Errorf("%s: %s is missing", tc.name, key)
				continue
			}
			volumes, _, _ := unstructured.NestedSlice(got[key].Object, "spec", "template", "spec", "volumes")
			unstructured.RemoveNestedField(got[key].Object, "spec", "template", "spec", "volumes")
			if object.GetKind() == "Deployment" {
				named = object.GetName() == tc.name && len(volumes) == 2 // helm cannot set an empty directory on its command line
			}
			if !equality.Semantic.DeepEqual(got[key].Object, object.Object) {
				t.Errorf("%s: %s differs: %v, the chart has %v", tc.name, key, got[key], object)
			}
		}
		if !named {
			t.Errorf("there is no Deployment %s with two volumes", tc.name)
		}
		for key, object := range got {
			if want[key] == nil || object.GetKind() == "Service" {
				t.Errorf("%s: %s is not in the chart", tc.name, key)
			}
		}
	}
}

// A join command contains the image only if it is not the default.
func TestDefaultImage_IsImageOfBase(t *testing.T) {
	manifests, err := install.Agent{}.Manifests()
	if err != nil {
		t.Fatal(err)
	}
	if image := install.DefaultImage(); image == "" || !strings.Contains(string(manifests), "image: "+image+"\n") {
		t.Errorf("%q is not the image of the manifests", image)
	}
}
