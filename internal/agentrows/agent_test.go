package agentrows

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

var today = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestRow_ReportsAgent(t *testing.T) {
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: today.Add(d)} }
	agent := v1alpha1.Agent{Spec: v1alpha1.Spec{Mode: "managed", Namespace: "ns", Mapping: "destination", Cluster: v1alpha1.ClusterSecret{Labels: map[string]string{"env": "prod"}}}}
	agent.Name = "w1"
	agent.Status = v1alpha1.Status{Since: at(-time.Hour), Certificate: &v1alpha1.Certificate{Fingerprint: "AB", Expires: at(time.Hour)}, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionConnected, Status: metav1.ConditionFalse, Reason: "WrongCluster", Message: "another one, confirm=not-a-hold"},
	}, Holds: []v1alpha1.Hold{{ID: "cluster-5", Reason: "another cluster"}, {ID: "5f2c", Scope: "application", Count: 9, Reason: "restored"}},
		Diverged: 4, Pending: &v1alpha1.Pending{Deliveries: 1, Deletions: 3}}
	r := Of(&agent)
	if want := []Hold{{Description: "another cluster", Reason: "confirmation required", ID: "cluster-5"}, {Description: "9 deletions of application", Reason: "restored", ID: "5f2c"}}; !slices.Equal(r.Holds, want) {
		t.Errorf("holds: %+v", r.Holds)
	}
	if r.Pending != "1 undelivered item, 3 undelivered deletions" {
		t.Errorf("pending: %q", r.Pending)
	}
	if !strings.Contains(r.Refused, "another one") || r.Expires != today.Add(time.Hour).Unix() || r.Labels != "env=prod" || r.Namespace != "ns" {
		t.Errorf("%+v", r)
	}
	// A newer certificate counts.
	agent.Annotations = map[string]string{v1alpha1.IssuedAnnotation: strings.Repeat("A", 64) + "/nonsense " + strings.Repeat("C", 64) + "/" + today.Add(48*time.Hour).Format(time.RFC3339) + " " + strings.Repeat("E", 64) + "/" + today.Add(2*time.Hour).Format(time.RFC3339)}
	if r := Of(&agent); r.Expires != today.Add(48*time.Hour).Unix() {
		t.Errorf("expires %d", r.Expires)
	}
	for reason, want := range map[string]bool{"Suspended": false, "PrincipalLost": false, "Revoked": true, "WrongProtocol": true, "WrongHub": true, "HubSuperseded": true, "Reconnect": false, "Unavailable": false} {
		agent.Status.Conditions[0].Reason = reason
		if got := Of(&agent).Refused != ""; got != want {
			t.Errorf("%s: refused is %v", reason, got)
		}
	}
}

func TestArgoCDURL_IsSafeToFollow(t *testing.T) {
	for setting, want := range map[string]string{
		"https://argocd.example/base/": "https://argocd.example/base/", "http://localhost:8080": "http://localhost:8080", "https://argocd.example/?x=1#y": "https://argocd.example/",
		"": "", "javascript:alert(1)": "", "https://me:secret@argocd.example": "", "argocd.example": "", "https://": "", "data:text/html,x": "", "https://a b": "",
	} {
		if got := ArgoCDURL(setting); got != want {
			t.Errorf("%q: %q", setting, got)
		}
	}
}
