package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

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
		"rights":  {install.Agent{Settings: server, Exec: true, Secrets: true, NoWrite: true}, "argocd", "agent.live.exec=true,agent.live.secrets=true,agent.live.write=false"},
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
