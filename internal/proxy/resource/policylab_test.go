package resource

import (
	"encoding/base64"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPolicy_WithARealAPIServer(t *testing.T) {
	s := newLabStage(t, "policy", options{agent: func(c *AgentConfig) { c.Policy = Policy{NoExec: true} }})
	s.index.Set("shop", []Node{
		{Group: "apps", Kind: "Deployment", Namespace: s.namespace, Name: "web"}, {Kind: "Pod", Namespace: s.namespace, Name: s.pod},
		{Kind: "Secret", Namespace: s.namespace, Name: "key"},
	})
	s.kubectl(t, "get", "deployment", "web")
	s.kubectl(t, "get", "pod", s.pod)
	s.kubectl(t, "logs", s.pod)
	s.kubectl(t, "create", "configmap", "made")
	s.kubectl(t, "get", "--raw", "/api/v1/namespaces/"+s.namespace+"/events?fieldSelector=involvedObject.name%3D"+s.pod)
	for _, test := range [][]string{
		{SettingLevel, "get", "configmap", "settings"}, {SettingLevel, "get", "pods"}, {SettingLevel, "get", "nodes"},
		{SettingLevel, "create", "configmap", "made", "-n", "default"}, {SettingExec, "exec", s.pod, "--", "true"},
		{SettingLevel, "delete", "configmap", "settings"},
	} {
		if out := s.refused(t, test[1:]...); !strings.Contains(out, test[0]) {
			t.Errorf("%v: %s", test[1:], out)
		}
	}

	s.kubectl(t, "rollout", "restart", "deployment/web")

	secret := s.kubectl(t, "get", "secret", "key", "-o", "yaml")
	if strings.Contains(secret, base64.StdEncoding.EncodeToString([]byte("geheim"))) || !strings.Contains(secret, encodedMaskPrefix) {
		t.Errorf("the Secret: %s", secret)
	}
	if out := s.refused(t, "replace", "-f", writeFile(t, secret)); !strings.Contains(out, SettingSecrets) {
		t.Errorf("a mask was written: %s", out)
	}
	for _, patch := range [][]string{ // a value would be where it is not hidden; the API server would repeat it in its refusal
		{"json", `[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"copy","from":"/data/password","path":"/metadata/annotations/x"}]`},
		{"merge", `{"data":{"other":5}}`}, {"json", `[{"op":"add","path":"/data/other","value":5}]`},
	} {
		if out := s.refused(t, "patch", "secret", "key", "--type", patch[0], "--patch", patch[1], "-v=9"); !strings.Contains(out, SettingSecrets) ||
			strings.Contains(out, base64.StdEncoding.EncodeToString([]byte("geheim"))) {
			t.Errorf("%s: %s", patch[1], out)
		}
	}
	for range 2 { // kubectl keeps a copy of what it applied in the object
		s.apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: neu}\n")
	}
	stored, err := s.cluster.Client().CoreV1().Secrets(s.namespace).Get(t.Context(), "key", metav1.GetOptions{})
	if err != nil || string(stored.Data["password"]) != "neu" {
		t.Errorf("stored is %q, %v", stored.Data, err)
	}
	if secret := s.kubectl(t, "get", "secret", "key", "-o", "yaml"); strings.Contains(secret, "neu") || strings.Contains(secret, base64.StdEncoding.EncodeToString([]byte("neu"))) {
		t.Errorf("the Secret: %s", secret)
	}
}
